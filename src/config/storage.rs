//! Where memories are kept, and the way there.

use anyhow::{bail, ensure};
use sqlx::postgres::PgConnectOptions;

use super::source::Source;
use crate::db::Pooler;
use crate::db::embedded::EmbeddedSettings;

/// The durable store.
#[derive(Debug)]
pub enum Storage {
    /// A private Postgres in a data folder.
    Embedded(EmbeddedSettings),
    /// A Postgres that somebody else runs.
    External(Box<External>),
}

/// How to reach a Postgres that somebody else runs.
#[derive(Clone, Debug)]
pub struct External {
    /// For requests.
    pub options: PgConnectOptions,
    /// For what needs a session of its own: migrations, locks of sweeps, indexes.
    pub direct: PgConnectOptions,
    /// What is between the first and the database.
    pub pooler: Pooler,
}

pub(super) fn storage(source: &Source) -> anyhow::Result<Storage> {
    let Some(url) = source.text("DATABASE_URL") else {
        for name in ["DATABASE_DIRECT_URL", "DATABASE_POOLER"] {
            ensure!(source.text(name).is_none(), "{name} is set without DATABASE_URL: set that as well");
        }
        return Ok(Storage::Embedded(EmbeddedSettings {
            data_dir: source.maybe("MEMSER_DATA_DIR")?,
            pg_bin: source.maybe("MEMSER_PG_BIN")?,
            pg_user: source.set("MEMSER_PG_USER")?,
        }));
    };
    let direct = source.text("DATABASE_DIRECT_URL");
    let pooler = match (source.text("DATABASE_POOLER"), direct) {
        (Some("transaction"), None) => bail!(
            "DATABASE_POOLER=transaction needs DATABASE_DIRECT_URL, a way to the database past the pooler: migrations, \
             the locks of sweeps and indexes need a session of their own"
        ),
        (Some("transaction"), _) | (None, Some(_)) => Pooler::Transaction,
        _ => Pooler::None,
    };
    let options = postgres("DATABASE_URL", url)?;
    let direct = direct.map(|url| postgres("DATABASE_DIRECT_URL", url)).transpose()?;
    let direct = direct.unwrap_or_else(|| options.clone());
    Ok(Storage::External(Box::new(External { options, direct, pooler })))
}

/// The parser's own message may show the URL, and with it the password.
///
/// Left out is an option at the start of a connection that poolers refuse: the servers that memser takes write numbers in
/// full without it.
fn postgres(name: &str, url: &str) -> anyhow::Result<PgConnectOptions> {
    // The parser takes any scheme, and a text without `//` for the name of a database.
    let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    let Some(options) = url.parse::<PgConnectOptions>().ok().filter(|_| is_ours) else {
        bail!("{name} is no Postgres URL: postgres://user:password@host:5432/database");
    };
    Ok(options.extra_float_digits(None))
}
