//! What may be between memser and its database.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::time::timeout;

/// How long a session is waited for; a pooler may have only one.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is between memser and its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooler {
    /// Nothing, or a pooler that leaves a session to its client until that goes.
    #[default]
    None,
    /// A pooler that may give each transaction another session, such as `PgBouncer` with `pool_mode = transaction`.
    Transaction,
}

/// Whether `connection`, made with `options`, keeps its session between transactions.
///
/// A pooler of transactions has taken the session back by now, and gives it to the next who begins one; this connection
/// then gets another.
///
/// # Errors
/// When a connection is lost.
pub(super) async fn keeps_session(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> sqlx::Result<bool> {
    let before = session(connection).await?;
    let mut other = options.connect().await?;
    sqlx::raw_sql("begin; select 1").execute(&mut other).await?;
    let after = timeout(PATIENCE, session(connection)).await;
    // Whatever its goodbye, it has changed nothing.
    let _ = other.close().await;
    Ok(after.is_ok_and(|after| after.is_ok_and(|after| after == before)))
}

/// In one message: a pooler may come between the parts of a prepared statement.
async fn session(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::raw_sql("select pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
