//! Which replica runs a sweep.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::time::timeout;

use crate::error::Result;

/// A lock whose connection is silent for so long counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

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
        matches!(timeout(PATIENCE, self.connection.ping()).await, Ok(Ok(())))
    }

    /// The lock's own connection, for statements that run in no transaction and only under the lock.
    pub const fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Frees the lock.
    pub async fn free(self) {
        // The server frees it with the connection, however the goodbye went.
        let _ = timeout(PATIENCE, self.connection.close()).await;
    }
}
