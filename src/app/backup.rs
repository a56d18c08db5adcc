//! Backups of a memser that runs its own Postgres.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, Utc};

use super::keeper::share;
use crate::config::{Config, Storage};
use crate::db::embedded::{Embedded, EmbeddedSettings, archive};

/// Writes all durable memories, as they are at this moment, into a new file.
///
/// Answers which; in a folder it gets a name with the time. The Postgres of a memser that runs is used and not disturbed, otherwise one is started.
///
/// The file appears under its name only when it is whole and on disk. Memser's user alone can read it.
///
/// # Errors
/// When there is nothing to back up, the file exists, or it cannot be written; the message says what to do.
pub async fn backup(config: &Config, to: &Path, now: DateTime<Utc>) -> anyhow::Result<PathBuf> {
    let settings = embedded(config)?;
    ensure!(
        Embedded::has_data(settings)?,
        "there is no database in {}: set MEMSER_DATA_DIR as the memser has it",
        settings.resolve_data_dir()?.display()
    );
    let to = std::path::absolute(to)?;
    let to = if to.is_dir() { to.join(format!("memser-{}.dump", now.format("%Y%m%dT%H%M%SZ"))) } else { to };
    ensure!(!to.exists(), "{} exists already: nothing is written over it", to.display());
    let folder = to.parent().with_context(|| format!("{} is no file", to.display()))?;
    // Beside its place, so that it can be given its name in one step; removed when it gets none.
    let partial = tempfile::Builder::new().prefix(".memser-").suffix(".partial").tempfile_in(folder);
    let partial = partial.with_context(|| format!("cannot write into {}", folder.display()))?;
    let (keeper, database) = share(config).await?;
    let written = archive::write(settings, &database.direct, partial.path()).await;
    keeper.stop().await?;
    written?;
    partial.as_file().sync_all()?;
    if let Err(error) = partial.persist_noclobber(&to) {
        if error.error.kind() == ErrorKind::AlreadyExists {
            bail!("{} exists already: nothing is written over it", to.display());
        }
        return Err(error.error).with_context(|| format!("cannot write {}", to.display()));
    }
    std::fs::File::open(folder)?.sync_all()?;
    Ok(to)
}

/// Makes the database of a data folder from a backup; answers where the former one is, if there was one and `replace`
/// allowed to put it aside.
///
/// # Errors
/// When a memser uses the folder, or the folder has a database and that is to stay, or the backup cannot be read; nothing
/// has changed then. The message says what to do.
pub async fn restore(
    config: &Config,
    from: &Path,
    replace: bool,
    now: DateTime<Utc>,
) -> anyhow::Result<Option<PathBuf>> {
    let settings = embedded(config)?;
    let from = std::path::absolute(from)?;
    // Before anything is stopped or made for its sake.
    std::fs::File::open(&from).with_context(|| format!("cannot read {}", from.display()))?;
    archive::restore(settings, &from, replace, now).await
}

fn embedded(config: &Config) -> anyhow::Result<&EmbeddedSettings> {
    match &config.storage {
        Storage::Embedded(settings) => Ok(settings),
        Storage::External(_) => bail!(
            "DATABASE_URL names a Postgres that memser does not run: use its own tools, pg_dump and pg_restore \
             (docs/operations.md, Backup and restore)"
        ),
    }
}
