//! The working tier in a table.

use chrono::{DateTime, Utc};

use super::{Entry, NewWorking, Put, full};
use crate::db::{Db, ScopeId, Tx, working as table};
use crate::error::{Error, Result};
use crate::model::Memory;

/// Working memories in Postgres.
#[derive(Clone, Debug)]
pub struct Postgres {
    db: Db,
    cap: u32,
}

impl Postgres {
    pub(super) fn new(db: Db, cap: u32) -> Self {
        Self { db, cap }
    }

    pub(super) async fn put(
        &self,
        scope: ScopeId,
        new: NewWorking,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Put> {
        let (hash, id, support) = (new.content_hash, new.id, new.support);
        let entry = serde_json::to_value(Entry::from(new)).map_err(|e| Error::Internal(e.into()))?;

        let mut tx = Tx::for_scope(&self.db, scope).await?;
        table::lock(&mut tx, scope).await?;
        let put = if let Some((id, support)) = table::refresh(&mut tx, scope, &hash, expires_at, now).await? {
            Put { id, refreshed: true, support, expires_at }
        } else {
            if table::count(&mut tx, scope, now).await? >= i64::from(self.cap) {
                return Err(full(self.cap));
            }
            table::insert(&mut tx, scope, &hash, (id, support), &entry, expires_at).await?;
            Put { id, refreshed: false, support, expires_at }
        };
        tx.commit().await?;
        Ok(put)
    }

    pub(super) async fn list(&self, scope: ScopeId, now: DateTime<Utc>) -> Result<Vec<Memory>> {
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let rows = table::list(&mut tx, scope, now).await?;
        tx.commit().await?;
        read(rows)
    }

    /// Beginning a transaction is a round trip.
    pub(super) async fn ping(&self) -> Result<()> {
        Tx::all_scopes(&self.db).await?.commit().await
    }

    pub(super) async fn prune(&self, now: DateTime<Utc>, limit: u32) -> Result<u64> {
        let mut tx = Tx::all_scopes(&self.db).await?;
        let pruned = table::prune(&mut tx, now, i64::from(limit)).await?;
        tx.commit().await?;
        Ok(pruned)
    }
}

pub(super) fn read(rows: Vec<table::Row>) -> Result<Vec<Memory>> {
    rows.into_iter()
        .map(|row| {
            let entry: Entry = serde_json::from_value(row.entry)
                .map_err(|_| Error::internal("a working memory's row cannot be read"))?;
            Ok(entry.into_memory(row.id, row.support, row.expires_at))
        })
        .collect()
}
