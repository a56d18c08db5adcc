//! The working tier's table, for a memser without Redis.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::error::Result;

/// A row of the table. `support` is kept inside `entry`.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// The memory's id.
    pub id: Uuid,
    /// How often it was stated.
    pub support: i32,
    /// The memory as its owner wrote it.
    pub entry: Value,
    /// When it stops to exist.
    pub expires_at: DateTime<Utc>,
}

/// Holds back other writers of the scope until the transaction ends, so that a count stays true until the insert.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn lock(tx: &mut Tx, scope: ScopeId) -> Result<()> {
    sqlx::query!("select scope_id from scopes where scope_id = $1 for no key update", scope.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(())
}

/// States a living entry once more: it expires at `expires_at`. `None` where there is none.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn refresh(
    tx: &mut Tx,
    scope: ScopeId,
    content_hash: &[u8],
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Option<(Uuid, i32)>> {
    let row = sqlx::query!(
        r#"update working_memories
           set expires_at = $3,
               entry = jsonb_set(entry, '{support}', to_jsonb((entry ->> 'support')::integer + 1))
           where scope_id = $1 and content_hash = $2 and expires_at > $4
           returning id, (entry ->> 'support')::integer as "support!""#,
        scope.0,
        content_hash,
        expires_at,
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| (row.id, row.support)))
}

/// How many entries of the scope are alive.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn count(tx: &mut Tx, scope: ScopeId, now: DateTime<Utc>) -> Result<i64> {
    Ok(sqlx::query_scalar!(
        r#"select count(*) as "count!" from working_memories where scope_id = $1 and expires_at > $2"#,
        scope.0,
        now,
    )
    .fetch_one(tx.conn())
    .await?)
}

/// Writes a new entry, with its id and how often it was stated, over an expired one with the same content.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn insert(
    tx: &mut Tx,
    scope: ScopeId,
    content_hash: &[u8],
    (id, support): (Uuid, i32),
    entry: &Value,
    expires_at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        r#"insert into working_memories (scope_id, content_hash, id, entry, expires_at)
           values ($1, $2, $3, $4::jsonb || jsonb_build_object('support', $6::integer), $5)
           on conflict (scope_id, content_hash)
           do update set id = excluded.id, entry = excluded.entry, expires_at = excluded.expires_at"#,
        scope.0,
        content_hash,
        id,
        entry,
        expires_at,
        support,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The scope's living entries.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn list(tx: &mut Tx, scope: ScopeId, now: DateTime<Utc>) -> Result<Vec<Row>> {
    Ok(sqlx::query_as!(
        Row,
        r#"select id, (entry ->> 'support')::integer as "support!", entry, expires_at
           from working_memories
           where scope_id = $1 and expires_at > $2"#,
        scope.0,
        now,
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Deletes these entries and says which were there.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn remove(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        "delete from working_memories where scope_id = $1 and id = any($2) returning id",
        scope.0,
        ids,
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Deletes up to `limit` expired entries, the oldest first, passing by those that a put is just refreshing.
///
/// # Errors
/// `unavailable` or `internal`, as Postgres answers.
pub async fn prune(tx: &mut Tx, now: DateTime<Utc>, limit: i64) -> Result<u64> {
    Ok(sqlx::query!(
        // Materialised, or the planner may run the limited part more than once.
        "with expired as materialized (
             select scope_id, content_hash from working_memories
             where expires_at <= $1
             order by expires_at
             limit $2
             for update skip locked
         )
         delete from working_memories w using expired e
         where w.scope_id = e.scope_id and w.content_hash = e.content_hash",
        now,
        limit,
    )
    .execute(tx.conn())
    .await?
    .rows_affected())
}
