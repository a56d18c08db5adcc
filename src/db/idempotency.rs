//! First answers of stores that carried an idempotency key.

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::{Db, ScopeId, Tx};
use crate::api::StoreAnswer;
use crate::error::{Error, Result};

/// The answer that was given under `key`, while it is kept.
///
/// # Errors
/// `idempotency_mismatch` when the key was used with another body.
pub async fn find(
    tx: &mut Tx,
    scope: ScopeId,
    key: &str,
    body_hash: &[u8; 32],
    now: DateTime<Utc>,
) -> Result<Option<StoreAnswer>> {
    let row = sqlx::query!(
        r#"select body_hash, answer as "answer: Json<StoreAnswer>" from idempotency_keys
            where scope_id = $1 and key = $2 and expires_at > $3"#,
        scope.0,
        key,
        now
    )
    .fetch_optional(tx.conn())
    .await?;
    match row {
        Some(row) if row.body_hash == body_hash => Ok(Some(row.answer.0)),
        Some(_) => Err(Error::IdempotencyMismatch),
        None => Ok(None),
    }
}

/// Keeps an answer; the caller holds the scope's lock and found none.
///
/// # Errors
/// When the connection is lost.
pub async fn keep(
    tx: &mut Tx,
    scope: ScopeId,
    key: &str,
    body_hash: &[u8; 32],
    answer: &StoreAnswer,
    now: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "insert into idempotency_keys as kept (scope_id, key, body_hash, answer, created_at, expires_at)
         values ($1, $2, $3, $4, $5, $6)
             on conflict (scope_id, key) do update
                set body_hash = excluded.body_hash, answer = excluded.answer, created_at = excluded.created_at,
                    expires_at = excluded.expires_at
              where kept.expires_at <= excluded.created_at",
        scope.0,
        key,
        body_hash,
        Json(answer) as _,
        now,
        expires_at
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Drops keys that have expired; answers how many.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn prune(db: &Db, now: DateTime<Utc>) -> Result<u64> {
    let mut tx = Tx::all_scopes(db).await?;
    let pruned = sqlx::query!(
        // Materialised, or the planner may run the limited part more than once.
        "with expired as materialized (
             select scope_id, key from idempotency_keys
              where expires_at <= $1 order by expires_at limit 10000 for update skip locked
         )
         delete from idempotency_keys k using expired e where k.scope_id = e.scope_id and k.key = e.key",
        now
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(pruned.rows_affected())
}
