//! Tells every replica that listens what was committed.
//!
//! What is committed waits for a task, which gathers it, sends it in a transaction of its own, and ends when there is no
//! more: nothing is told before its commit, and no commit waits for it. A notification within the transaction that it is
//! about would let Postgres commit those transactions one after the other, in all of its databases.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{Postgres, Transaction};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::change::Changes;
use super::{Db, Tx};
use crate::error::{Error, Result};

/// Where changes are told.
pub(super) const CHANNEL: &str = "memser_changes";
/// The lock that each session which listens shares for as long as it does.
pub(super) const LISTENERS: i64 = -1_002;
/// Between two transactions that tell something; what is committed in the meantime is told together.
const REST: Duration = Duration::from_millis(100);
/// Between attempts while the database takes nothing.
const RETRY: Duration = Duration::from_secs(1);

/// What is committed and not told yet.
#[derive(Debug, Default)]
pub(super) struct Untold {
    waiting: Mutex<Waiting>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Changes,
    /// Whether a task is on its way to them.
    has_task: bool,
}

impl Untold {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be told next; `None` ends the task.
    fn next(&self) -> Option<Changes> {
        let mut waiting = self.waiting();
        waiting.has_task = !waiting.changes.is_empty();
        waiting.has_task.then(|| std::mem::take(&mut waiting.changes))
    }

    /// Waits until everything is told; what the database does not take now, never is.
    pub(super) async fn flush(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Db {
    /// Commits, and tells what changed once that is done.
    ///
    /// In a task of its own: a caller that goes away during the commit would otherwise leave behind what nobody is told of.
    pub(super) async fn commit(
        &self,
        transaction: Transaction<'static, Postgres>,
        changes: Changes,
    ) -> Result<()> {
        let db = self.clone();
        let commit = self.untold.tasks.spawn(async move {
            let outcome = transaction.commit().await;
            // Whoever lost the connection does not know whether it is committed. Telling too much does no harm.
            if !matches!(outcome, Err(sqlx::Error::Database(_))) {
                db.tell(changes);
            }
            outcome
        });
        Ok(commit.await.map_err(|error| Error::Internal(error.into()))??)
    }

    /// Tells all subscribers of all replicas that anything may have changed.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn tell_everything_changed(&self) -> Result<()> {
        send(self, &Changes::Everything).await
    }

    fn tell(&self, changes: Changes) {
        let mut waiting = self.untold.waiting();
        waiting.changes.merge(changes);
        if !std::mem::replace(&mut waiting.has_task, true) {
            self.untold.tasks.spawn(tell(self.clone()));
        }
    }
}

/// Tells what waits until nothing does.
async fn tell(db: Db) {
    let (untold, mut is_failing) = (&db.untold, false);
    while let Some(changes) = untold.next() {
        let pause = match send(&db, &changes).await {
            Ok(()) => {
                is_failing = false;
                REST
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!("changes cannot be told to other replicas for now: {error:#}");
                }
                if untold.closing.is_cancelled() {
                    return;
                }
                untold.waiting().changes.merge(changes);
                RETRY
            }
        };
        tokio::select! {
            () = untold.closing.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Sends one notification a scope, if anybody listens. Whoever comes to listen later was not there at the commit.
async fn send(db: &Db, changes: &Changes) -> Result<()> {
    let mut tx = Tx::of_no_scope(db).await?;
    // A lock's bigint key is shown in two halves.
    sqlx::query!(
        "select pg_notify($1, payload) from unnest($2::text[]) as payload
          where exists (select from pg_locks
                         where locktype = 'advisory' and objsubid = 1 and granted
                           and database = (select oid from pg_database where datname = current_database())
                           and (classid::bigint << 32 | objid::bigint) = $3)",
        CHANNEL,
        &changes.payloads()?,
        LISTENERS
    )
    .fetch_all(tx.conn())
    .await?;
    tx.commit().await
}
