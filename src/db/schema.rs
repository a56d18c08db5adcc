//! What a database has to be before memser uses it: reachable, new enough, with pgvector, its schema up to date.

mod version;

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use backon::{ConstantBuilder, Retryable};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use self::version::{Applied, Standing};
use super::pooler::keeps_session;

/// The schema, forward only. The migrator's own lock is off: [`bring_up_to_date`] takes one, and decides what becomes of a
/// schema with migrations that this memser does not know.
pub static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrator = sqlx::migrate!();
    migrator.set_locking(false).set_ignore_missing(true);
    migrator
});

/// Older servers lack what the schema uses (`unique nulls not distinct`, `on delete set null (column)`).
pub(in crate::db) const OLDEST_POSTGRES: u32 = 15;
/// The first pgvector with iterative index scans, which recall needs to not come back short.
pub(in crate::db) const OLDEST_PGVECTOR: (u32, u32) = (0, 8);

/// Held by the memser that migrates. Negative, because positive keys lock scopes.
const LOCK: i64 = -1_001;
/// Pause between two attempts to take that lock, and to reach a server that is still starting.
const PAUSE: Duration = Duration::from_millis(200);
/// How many attempts a starting server gets: five minutes, for a long recovery.
const ATTEMPTS: usize = 1_500;
/// How long a migration waits for a table, and everybody else behind it.
const LOCK_TIMEOUT: &str = "2s";
/// How long the others have the table for themselves then.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Checks the database and brings its schema up to date.
///
/// Of replicas that start at once, one does it and the others
/// wait; the lock ends with its connection, so that a crash leaves nothing to clear, and a migration that was cut off has
/// changed nothing. A schema that a newer memser made is left as it is where it suits this one.
///
/// # Errors
/// Each says what to do: the server cannot be reached or does not let memser in, there is a pooler of transactions before
/// it, it or its pgvector is too old, the role lacks a right, the schema is too new for this memser, a migration fails.
pub async fn bring_up_to_date(options: &PgConnectOptions) -> anyhow::Result<()> {
    let mut connection = checked(options).await?;
    wait_for_lock(&mut connection).await?;
    add_pgvector(&mut connection).await?;
    if Applied::of(&mut connection).await?.judge()? == Standing::Ahead {
        note_newer();
    }
    migrate(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Checks the database and that its schema is up to date, and changes nothing.
///
/// # Errors
/// Those of [`bring_up_to_date`], and where the schema is behind this memser.
pub async fn expect_up_to_date(options: &PgConnectOptions) -> anyhow::Result<()> {
    let mut connection = checked(options).await?;
    let applied = Applied::of(&mut connection).await?;
    match applied.judge()? {
        Standing::Behind => bail!(
            "the database's schema is at migration {} of {}, and this start is not to change it (MEMSER_MIGRATE, \
             --no-migrate): run memser migrate of this version before",
            applied.last().unwrap_or_default(),
            last_migration()
        ),
        Standing::Current => {}
        Standing::Ahead => note_newer(),
    }
    Ok(connection.close().await?)
}

/// A connection to a database that memser can work with, whatever its schema.
async fn checked(options: &PgConnectOptions) -> anyhow::Result<PgConnection> {
    let mut connection = connect(options).await?;
    ensure!(
        keeps_session(&mut connection, options).await?,
        "this is a pooler that gives each transaction another session: set DATABASE_DIRECT_URL to a way past it, for \
         migrations, the locks of sweeps and indexes"
    );
    ask(&mut connection).await?.judge()?;
    Ok(connection)
}

fn note_newer() {
    tracing::info!("the database's schema is newer than this memser and suits it");
}

/// Applies what is lacking, each migration in a transaction of its own.
///
/// While one waits for a table, whoever comes after it waits as well: it gives up soon and tries again, and lets the others
/// through meanwhile.
async fn migrate(connection: &mut PgConnection) -> anyhow::Result<()> {
    sqlx::query!("select set_config('lock_timeout', $1, false)", LOCK_TIMEOUT)
        .fetch_one(&mut *connection)
        .await?;
    loop {
        match MIGRATOR.run(&mut *connection).await {
            Err(MigrateError::ExecuteMigration(error, version))
                if code(&error).as_deref() == Some("55P03") =>
            {
                tracing::warn!(
                    "migration {version} waits for a transaction that uses its table; see pg_stat_activity for one that \
                     hangs"
                );
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            outcome => return outcome.map_err(explain),
        }
    }
}

/// What a database is like, for a person who looks after it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Such as `18.6`.
    pub postgres: String,
    /// Such as `0.8.6`; none where the database has none.
    pub pgvector: Option<String>,
    /// Whether memser's role may add pgvector, as far as the server's tables say: a managed one may allow more.
    pub may_add_pgvector: bool,
    /// Whether memser's role may make tables.
    pub may_make_tables: bool,
    /// The last migration that was applied; none before the first.
    pub migration: Option<i64>,
    /// Why memser cannot work with it, with the way out.
    pub objection: Option<String>,
}

/// Looks at a database and changes nothing.
///
/// # Errors
/// When it cannot be reached or does not let memser in.
pub async fn inspect(options: &PgConnectOptions) -> anyhow::Result<Inspection> {
    let mut connection = connect(options).await?;
    let server = ask(&mut connection).await?;
    let applied = Applied::of(&mut connection).await?;
    connection.close().await?;
    Ok(Inspection {
        postgres: format!("{}.{}", server.version / 10_000, server.version % 10_000),
        objection: server.judge().and_then(|()| applied.judge()).err().map(|error| error.to_string()),
        pgvector: server.pgvector,
        may_add_pgvector: server.may_add_pgvector,
        may_make_tables: server.may_make_tables,
        migration: applied.last(),
    })
}

/// The last migration that this memser knows.
#[must_use]
pub fn last_migration() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Connects; a server that says that it is starting is waited for.
async fn connect(options: &PgConnectOptions) -> anyhow::Result<PgConnection> {
    let is_starting = |error: &sqlx::Error| code(error).as_deref() == Some("57P03");
    (|| options.connect())
        .retry(ConstantBuilder::default().with_delay(PAUSE).with_max_times(ATTEMPTS))
        .when(is_starting)
        .await
        .map_err(with_advice)
        .context("cannot connect")
}

/// By trying: a session that waits inside Postgres for a lock holds a snapshot, and an index that the lock's holder
/// builds concurrently would wait for that snapshot in turn.
async fn wait_for_lock(connection: &mut PgConnection) -> anyhow::Result<()> {
    let mut is_told = false;
    while sqlx::query_scalar!("select pg_try_advisory_lock($1)", LOCK).fetch_one(&mut *connection).await?
        != Some(true)
    {
        if !is_told {
            tracing::info!("another memser brings the schema up to date; waiting for it");
            is_told = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// What a server says about itself.
#[derive(Clone, Debug)]
struct Server {
    /// Such as 180006 for 18.6.
    version: i32,
    encoding: String,
    is_standby: bool,
    /// The version of pgvector in this database.
    pgvector: Option<String>,
    /// The version that the server's files would install.
    available: Option<String>,
    may_add_pgvector: bool,
    may_make_tables: bool,
}

async fn ask(connection: &mut PgConnection) -> anyhow::Result<Server> {
    sqlx::query_as!(
        Server,
        r#"select current_setting('server_version_num')::int as "version!",
                  current_setting('server_encoding') as "encoding!",
                  pg_is_in_recovery() as "is_standby!",
                  (select extversion from pg_extension where extname = 'vector') as pgvector,
                  (select default_version from pg_available_extensions where name = 'vector') as available,
                  exists (select from pg_available_extension_versions v
                            join pg_roles r on r.rolname = current_user
                           where v.name = 'vector'
                             and (r.rolsuper
                                  or v.trusted and has_database_privilege(current_database(), 'create')))
                    as "may_add_pgvector!",
                  coalesce(has_schema_privilege(current_schema(), 'create'), false) as "may_make_tables!""#
    )
    .fetch_one(connection)
    .await
    .map_err(with_advice)
}

impl Server {
    /// Refuses what memser cannot work with, with the way out.
    fn judge(&self) -> anyhow::Result<()> {
        let major = self.version / 10_000;
        ensure!(
            major >= OLDEST_POSTGRES.cast_signed(),
            "the server is PostgreSQL {major}; memser needs {OLDEST_POSTGRES} or newer"
        );
        ensure!(!self.is_standby, "the server is a read-only standby; name the primary server instead");
        ensure!(
            self.encoding == "UTF8",
            "the database's encoding is {}; memser needs one made with: create database … encoding 'UTF8' template \
             template0",
            self.encoding
        );
        let is_enough = |version: &str| major_minor(version).is_some_and(|found| found >= OLDEST_PGVECTOR);
        let package = format!("on the server, such as the package postgresql-{major}-pgvector");
        match (self.pgvector.as_deref(), self.available.as_deref()) {
            (Some(found), _) if is_enough(found) => Ok(()),
            (Some(found), Some(available)) if is_enough(available) => bail!(
                "the database's pgvector is {found}; memser needs 0.8 or newer: as a superuser, run in it: alter \
                 extension vector update (gives {available})"
            ),
            (None, Some(available)) if is_enough(available) => Ok(()),
            (Some(found), _) | (None, Some(found)) => bail!(
                "pgvector is {found}; memser needs 0.8 or newer: install that {package}, then run in the database: \
                 alter extension vector update"
            ),
            (None, None) => bail!("the server has no pgvector: install 0.8 or newer {package}"),
        }
    }
}

/// Major and minor of a version such as `0.8.1`.
pub(in crate::db) fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// pgvector is no trusted extension: only a superuser can add it, and memser's role should be none.
async fn add_pgvector(connection: &mut PgConnection) -> anyhow::Result<()> {
    let added = sqlx::query!("create extension if not exists vector").execute(connection).await;
    if let Err(error) = &added
        && code(error).as_deref() == Some("42501")
    {
        bail!("the database lacks pgvector: as a superuser, run in it: create extension vector");
    }
    added.context("pgvector cannot be added")?;
    Ok(())
}

fn explain(error: MigrateError) -> anyhow::Error {
    match error {
        MigrateError::VersionMismatch(version) => anyhow::anyhow!(
            "migration {version} of the database's schema is not the one that this memser has: it was made by a \
             modified memser; use that one, or another database"
        ),
        MigrateError::Execute(error) => with_advice(error),
        MigrateError::ExecuteMigration(error, version) => {
            with_advice(error).context(format!("migration {version} failed and was undone"))
        }
        other => other.into(),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(Into::into)
}

/// The error with what a person can do about it.
fn with_advice(error: sqlx::Error) -> anyhow::Error {
    let advice = match (&error, code(&error).as_deref()) {
        (sqlx::Error::Io(_), _) => "check host and port, and that the server runs",
        (sqlx::Error::Tls(_), _) => "check sslmode and sslrootcert",
        (_, Some("28P01" | "28000")) => "check user and password, and the server's pg_hba.conf",
        (_, Some("3D000")) => "create it, owned by memser's role: createdb -O ROLE NAME",
        (_, Some("42501")) => {
            "memser's role has to own its database and what is in it: alter database NAME owner to ROLE; reassign owned by \
             FORMER to ROLE"
        }
        (_, Some("53300")) => {
            "raise the server's max_connections, or lower DATABASE_MAX_CONNECTIONS of each memser"
        }
        (_, Some("53100")) => "the server's disk is full: free some space",
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            version: 180_006,
            encoding: "UTF8".to_owned(),
            is_standby: false,
            pgvector: Some("0.8.6".to_owned()),
            available: Some("0.8.6".to_owned()),
            may_add_pgvector: true,
            may_make_tables: true,
        }
    }

    fn objection(change: impl FnOnce(&mut Server)) -> String {
        let mut server = server();
        change(&mut server);
        server.judge().map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_server_that_will_do_is_taken() {
        assert_eq!(objection(|_| {}), "");
        assert_eq!(objection(|server| server.version = 150_000), "");
        assert_eq!(objection(|server| server.pgvector = Some("0.10.0".to_owned())), "");
        assert_eq!(objection(|server| server.pgvector = Some("1.0".to_owned())), "");
        // It can be added.
        assert_eq!(objection(|server| server.pgvector = None), "");
    }

    #[test]
    fn a_server_that_will_not_do_is_refused_with_the_way_out() {
        let words = objection(|server| server.version = 140_012);
        assert!(words.contains("PostgreSQL 14") && words.contains("15 or newer"), "{words}");
        let words = objection(|server| server.is_standby = true);
        assert!(words.contains("primary"), "{words}");
        let words = objection(|server| server.encoding = "SQL_ASCII".to_owned());
        assert!(words.contains("SQL_ASCII") && words.contains("encoding 'UTF8'"), "{words}");
        let words = objection(|server| server.pgvector = Some("0.7.4".to_owned()));
        assert!(words.contains("0.7.4") && words.contains("alter extension vector update"), "{words}");
        for pgvector in [None, Some("0.7.4".to_owned())] {
            let words = objection(|server| {
                server.pgvector = pgvector;
                server.available = Some("0.7.4".to_owned());
            });
            assert!(words.contains("0.7.4") && words.contains("postgresql-18-pgvector"), "{words}");
        }
        let words = objection(|server| (server.pgvector, server.available) = (None, None));
        assert!(words.contains("no pgvector"), "{words}");
    }
}
