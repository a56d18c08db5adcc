//! Everything that speaks SQL. Statements are static and checked at build time; the few that cannot be say why.

pub mod access;
pub mod audit;
pub mod conflict;
pub mod consolidation;
pub mod embedded;
pub mod embedding;
pub mod forget;
pub mod history;
pub mod idempotency;
pub mod list;
pub mod lock;
pub mod memory;
pub mod recall;
pub mod schema;
pub mod scope;
pub mod space;
pub mod tx;
pub mod working;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

pub use schema::MIGRATOR;
pub use scope::ScopeId;
pub use tx::Tx;

/// How long a call waits for a free connection before it says that Postgres is unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pool that every caller shares.
#[derive(Clone, Debug)]
pub struct Db {
    pool: PgPool,
}

impl Db {
    /// A pool of at most `max_connections`, which connects when first used.
    #[must_use]
    pub fn new(options: PgConnectOptions, max_connections: u32) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.application_name("memser"));
        Self { pool }
    }

    /// The pool itself, for statements that need no scope.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Whether row-level security holds for memser's role: it does not for a superuser or one with BYPASSRLS.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn has_second_wall(&self) -> crate::error::Result<bool> {
        let active =
            sqlx::query_scalar!("select row_security_active('memories')").fetch_one(&self.pool).await?;
        Ok(active.unwrap_or(false))
    }

    /// Which memser this database belongs to; the same for all its replicas and for ever.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn installation(&self) -> crate::error::Result<uuid::Uuid> {
        Ok(sqlx::query_scalar!("select installation_id from installation").fetch_one(&self.pool).await?)
    }

    /// Asks the database for a sign of life.
    ///
    /// # Errors
    /// When it gives none.
    pub async fn ping(&self) -> crate::error::Result<()> {
        sqlx::query!("select 1 as one").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Waits for the connections in use and closes them all.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
