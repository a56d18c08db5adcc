//! Pairs of memories that contradict each other and wait for a reviewer.
//!
//! A pair is open while nobody has resolved it and both memories are active: one that is superseded meanwhile settles
//! it, and one that is restored brings it back.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::error::Result;

/// An open pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its id.
    pub id: Uuid,
    /// The memory that came later.
    pub new: Uuid,
    /// The memory that it contradicts.
    pub old: Uuid,
}

/// Opens a pair for review, also one that was resolved before.
///
/// # Errors
/// When the connection is lost.
pub async fn open(
    tx: &mut Tx,
    scope: ScopeId,
    pair: Pair,
    similarity: Option<f32>,
    at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "insert into conflicts (scope_id, conflict_id, new_id, old_id, similarity, created_at)
         values ($1, $2, $3, $4, $5, $6)
             on conflict (scope_id, new_id, old_id) do update
                set status = 'open', resolution = null, resolved_by = null, resolved_at = null",
        scope.0,
        pair.id,
        pair.new,
        pair.old,
        similarity,
        at
    )
    .execute(tx.conn())
    .await?;
    tx.changed(scope, &[pair.new, pair.old]);
    Ok(())
}

/// The open pairs of a memory, oldest first.
///
/// # Errors
/// When the connection is lost.
pub async fn open_pairs(tx: &mut Tx, scope: ScopeId, memory: Uuid) -> Result<Vec<Pair>> {
    Ok(sqlx::query_as!(
        Pair,
        r#"select c.conflict_id as id, c.new_id as "new", c.old_id as old
             from conflicts c
             join memories n on n.scope_id = c.scope_id and n.id = c.new_id and n.valid_to is null
             join memories o on o.scope_id = c.scope_id and o.id = c.old_id and o.valid_to is null
            where c.scope_id = $1 and c.status = 'open' and (c.new_id = $2 or c.old_id = $2)
            order by c.conflict_id"#,
        scope.0,
        memory
    )
    .fetch_all(tx.conn())
    .await?)
}

/// An open pair with what else is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its id.
    pub id: Uuid,
    /// The memory that came later.
    pub new: Uuid,
    /// The memory that it contradicts.
    pub old: Uuid,
    /// Null where it was never measured.
    pub similarity: Option<f32>,
    /// Since when it waits.
    pub opened_at: DateTime<Utc>,
}

/// A page of a scope's open pairs, oldest first, beyond the last one of the page before.
///
/// # Errors
/// When the connection is lost.
pub async fn page(tx: &mut Tx, scope: ScopeId, beyond: Option<Uuid>, limit: i64) -> Result<Vec<Waiting>> {
    Ok(sqlx::query_as!(
        Waiting,
        r#"select c.conflict_id as id, c.new_id as "new", c.old_id as "old", c.similarity, c.created_at as opened_at
             from conflicts c
             join memories n on n.scope_id = c.scope_id and n.id = c.new_id and n.valid_to is null
             join memories o on o.scope_id = c.scope_id and o.id = c.old_id and o.valid_to is null
            where c.scope_id = $1 and c.status = 'open' and ($2::uuid is null or c.conflict_id > $2)
            order by c.conflict_id limit $3"#,
        scope.0,
        beyond,
        limit
    )
    .fetch_all(tx.conn())
    .await?)
}

/// How a reviewer resolved a pair.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// What was decided.
    pub resolution: &'a str,
    /// The token's name.
    pub by: &'a str,
    /// Now.
    pub at: DateTime<Utc>,
}

/// Closes pairs, with which both of each are changed.
///
/// # Errors
/// When the connection is lost.
pub async fn resolve(tx: &mut Tx, scope: ScopeId, pairs: &[Uuid], how: Resolved<'_>) -> Result<()> {
    let closed = sqlx::query!(
        "update conflicts set status = 'resolved', resolution = $3, resolved_by = $4, resolved_at = $5
          where scope_id = $1 and conflict_id = any($2)
      returning new_id, old_id",
        scope.0,
        pairs,
        how.resolution,
        how.by,
        how.at
    )
    .fetch_all(tx.conn())
    .await?;
    for pair in closed {
        tx.changed(scope, &[pair.new_id, pair.old_id]);
    }
    Ok(())
}
