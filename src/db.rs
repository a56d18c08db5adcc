//! Everything that speaks SQL. Statements are static and checked at build time; the few that cannot be say why.

pub mod access;
pub mod audit;
mod change;
pub mod checkup;
pub mod conflict;
pub mod consolidation;
pub mod decay;
pub mod embedded;
pub mod embedding;
pub mod export;
pub mod feed;
pub mod forget;
pub mod history;
pub mod idempotency;
pub mod import;
pub mod job;
pub mod list;
pub mod lock;
pub mod memory;
mod pooler;
pub mod recall;
pub mod schema;
pub mod scope;
pub mod space;
mod tell;
pub mod tx;
pub mod working;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

pub use pooler::Pooler;
pub use schema::MIGRATOR;
pub use scope::ScopeId;
use tell::Untold;
pub use tx::Tx;

/// How long a call waits for a free connection before it says that Postgres is unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pool that every caller shares.
#[derive(Clone, Debug)]
pub struct Db {
    pool: PgPool,
    pooler: Pooler,
    untold: Arc<Untold>,
}

/// How a pool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Taken by calls.
    pub in_use: u32,
    /// Open and free.
    pub idle: u32,
    /// How many may be open.
    pub most: u32,
}

impl Db {
    /// A pool of at most `max_connections`, which connects when first used.
    ///
    /// Behind a pooler of transactions no statement is remembered as prepared.
    #[must_use]
    pub fn new(options: PgConnectOptions, max_connections: u32, pooler: Pooler) -> Self {
        let options = match pooler {
            Pooler::None => options,
            Pooler::Transaction => options.statement_cache_capacity(0),
        };
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.application_name("memser"));
        Self { pool, pooler, untold: Arc::default() }
    }

    /// Whether row-level security holds for memser's role: it does not for a superuser or one with BYPASSRLS.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn has_second_wall(&self) -> crate::error::Result<bool> {
        let mut tx = Tx::of_no_scope(self).await?;
        let active =
            sqlx::query_scalar!("select row_security_active('memories')").fetch_one(tx.conn()).await?;
        tx.commit().await?;
        Ok(active.unwrap_or(false))
    }

    /// Which memser this database belongs to; the same for all its replicas and for ever.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn installation(&self) -> crate::error::Result<uuid::Uuid> {
        let mut tx = Tx::of_no_scope(self).await?;
        let id = sqlx::query_scalar!("select installation_id from installation").fetch_one(tx.conn()).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Asks the database for a sign of life.
    ///
    /// # Errors
    /// When it gives none.
    pub async fn ping(&self) -> crate::error::Result<()> {
        // In one message, so that no pooler can come between its parts.
        sqlx::raw_sql("select 1").execute(&self.pool).await?;
        Ok(())
    }

    /// How the pool is used now.
    #[must_use]
    pub fn connections(&self) -> Connections {
        let (open, idle) = (self.pool.size(), self.pool.num_idle());
        let idle = u32::try_from(idle).unwrap_or(open).min(open);
        Connections { in_use: open - idle, idle, most: self.pool.options().get_max_connections() }
    }

    /// Tells what is committed, waits for the connections in use and closes them all.
    pub async fn close(&self) {
        self.untold.flush().await;
        self.pool.close().await;
    }
}
