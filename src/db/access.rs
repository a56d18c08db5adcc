//! How often and when a memory was recalled: written in batches, apart from the memories.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Db, ScopeId, Tx};
use crate::error::Result;

/// Recalls of one memory since the last batch.
#[derive(Clone, Copy, Debug)]
pub struct Recalls {
    /// How many.
    pub count: i64,
    /// The last of them.
    pub last_at: DateTime<Utc>,
}

/// Adds a batch. Rows are taken in id order: two batches that meet in another order would deadlock. Memories that were
/// forgotten meanwhile are left out.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn record(db: &Db, batch: &BTreeMap<(ScopeId, Uuid), Recalls>) -> Result<()> {
    let scopes: Vec<_> = batch.keys().map(|(scope, _)| scope.0).collect();
    let ids: Vec<_> = batch.keys().map(|(_, id)| *id).collect();
    let counts: Vec<_> = batch.values().map(|recalls| recalls.count).collect();
    let last: Vec<_> = batch.values().map(|recalls| recalls.last_at).collect();
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!(
        "insert into memory_access as known (scope_id, memory_id, access_count, last_accessed_at)
         select m.scope_id, m.id, batch.recalls, batch.last_at
           from unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::timestamptz[])
                as batch (scope_id, memory_id, recalls, last_at)
           join memories m on m.scope_id = batch.scope_id and m.id = batch.memory_id
          order by m.scope_id, m.id
            for key share of m
             on conflict (scope_id, memory_id) do update
                set access_count = known.access_count + excluded.access_count,
                    last_accessed_at = greatest(known.last_accessed_at, excluded.last_accessed_at)",
        &scopes,
        &ids,
        &counts,
        &last
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await
}
