//! What is written a moment later: audit rows of reads and refusals, and access counts.
//!
//! A read must not wait for a write. Entries are gathered for at most a second and written in one batch; a crash may
//! lose that second, a shutdown does not.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::db::access::Recalls;
use crate::db::audit::AuditRow;
use crate::db::{self, Db, ScopeId, Tx};
use crate::error::{Result, with_causes};
use crate::metrics::Metrics;

/// The longest that an entry waits.
const GATHER: Duration = Duration::from_secs(1);
/// Entries written at once.
const BATCH: usize = 1_000;
/// Entries that may wait while the database is slow or down; further ones are dropped with a warning.
const BACKLOG: usize = 20_000;

#[derive(Debug)]
enum Entry {
    Audit(AuditRow),
    Recalled { scope: ScopeId, ids: Vec<Uuid>, at: DateTime<Utc> },
    Flush(oneshot::Sender<()>),
}

/// The way in. The writer stops when the last sender is dropped.
#[derive(Debug)]
pub(super) struct Journal {
    sender: mpsc::Sender<Entry>,
    metrics: Metrics,
}

impl Journal {
    pub(super) fn start(db: Db, metrics: Metrics) -> Self {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(write(db, receiver));
        Self { sender, metrics }
    }

    pub(super) fn audit(&self, row: AuditRow) {
        self.send(Entry::Audit(row));
    }

    pub(super) fn recalled(&self, scope: ScopeId, ids: Vec<Uuid>, at: DateTime<Utc>) {
        self.send(Entry::Recalled { scope, ids, at });
    }

    /// Returns once everything sent before is written, or could not be.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.sender.send(Entry::Flush(done)).await.is_ok() {
            // An error means that the writer is gone, and nothing waits then.
            let _ = flushed.await;
        }
    }

    fn send(&self, entry: Entry) {
        if self.sender.try_send(entry).is_err() {
            self.metrics.dropped();
            tracing::warn!("the journal is full: an audit row or an access count was dropped");
        }
    }
}

#[derive(Default)]
struct Batch {
    audit: Vec<AuditRow>,
    recalls: BTreeMap<(ScopeId, Uuid), Recalls>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Audit(row) => self.audit.push(row),
            Entry::Recalled { scope, ids, at } => {
                for id in ids {
                    let recalls =
                        self.recalls.entry((scope, id)).or_insert(Recalls { count: 0, last_at: at });
                    recalls.count += 1;
                    recalls.last_at = recalls.last_at.max(at);
                }
            }
            Entry::Flush(done) => self.flushes.push(done),
        }
    }

    fn is_full(&self) -> bool {
        !self.flushes.is_empty() || self.audit.len() + self.recalls.len() >= BATCH
    }
}

async fn write(db: Db, mut receiver: mpsc::Receiver<Entry>) {
    let mut batch = Batch::default();
    while let Some(entry) = receiver.recv().await {
        batch.add(entry);
        let deadline = Instant::now() + GATHER;
        while !batch.is_full() {
            match timeout_at(deadline, receiver.recv()).await {
                Ok(Some(entry)) => batch.add(entry),
                Ok(None) | Err(_) => break,
            }
        }
        write_batch(&db, &mut batch).await;
        for done in batch.flushes.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// Writes what it can; audit rows that could not be written stay for the next time.
async fn write_batch(db: &Db, batch: &mut Batch) {
    match append(db, &batch.audit).await {
        Ok(()) => batch.audit.clear(),
        Err(error) => {
            tracing::error!(
                error = with_causes(&error),
                rows = batch.audit.len(),
                "audit rows could not be written yet"
            );
            let surplus = batch.audit.len().saturating_sub(BACKLOG);
            batch.audit.drain(..surplus);
        }
    }
    if !batch.recalls.is_empty() {
        if let Err(error) = db::access::record(db, &batch.recalls).await {
            tracing::warn!(error = with_causes(&error), "access counts could not be written");
        }
        batch.recalls.clear();
    }
}

async fn append(db: &Db, rows: &[AuditRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut tx = Tx::of_no_scope(db).await?;
    db::audit::append(tx.conn(), rows).await?;
    tx.commit().await
}
