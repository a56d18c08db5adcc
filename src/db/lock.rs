//! Which replica runs a sweep, and what came of it.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::types::Json;
use sqlx::{ConnectOptions, Connection};

use super::Db;
use crate::error::Result;

/// A session lock on a connection of its own: it ends with the connection, so that a crash cannot keep it.
#[derive(Debug)]
pub struct SweepLock {
    connection: PgConnection,
}

impl SweepLock {
    /// Takes the lock, or answers `None` at once when another replica has it. Keys are negative: positive ones lock
    /// scopes.
    ///
    /// # Errors
    /// `unavailable` when no connection can be made.
    pub async fn try_take(options: &PgConnectOptions, key: i64) -> Result<Option<Self>> {
        let mut connection = options.connect().await?;
        let taken =
            sqlx::query_scalar!("select pg_try_advisory_lock($1)", key).fetch_one(&mut connection).await?;
        Ok((taken == Some(true)).then_some(Self { connection }))
    }

    /// Whether the lock is still held: it is lost with its connection.
    pub async fn is_held(&mut self) -> bool {
        self.connection.ping().await.is_ok()
    }

    /// The lock's own connection, for statements that run in no transaction and only under the lock.
    pub const fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Frees the lock.
    pub async fn free(self) {
        // The server frees it with the connection, however the goodbye went.
        let _ = self.connection.close().await;
    }
}

/// Notes a finished sweep.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn record_run(
    db: &Db,
    job: &str,
    started_at: DateTime<Utc>,
    finished_at: DateTime<Utc>,
    outcome: &str,
    detail: &Value,
) -> Result<()> {
    sqlx::query!(
        "insert into job_runs (job, started_at, finished_at, outcome, detail) values ($1, $2, $3, $4, $5)",
        job,
        started_at,
        finished_at,
        outcome,
        Json(detail) as _
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}
