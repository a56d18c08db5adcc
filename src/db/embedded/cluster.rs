//! The data: the folder, the cluster in it, who may log in, memser's role and database.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Uid, User, geteuid};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::account::{Account, memser_user};
use super::installation::Installation;
use super::{DATABASE, ROLE, SUPERUSER, hint, remove_folder};

/// The folder of the cluster that is used, of one that is being restored, and of one that is restored whole.
const CLUSTER: &str = "pg";
const RESTORING: &str = "pg.restoring";
const RESTORED: &str = "pg.restored";

/// Why a data folder cannot be had now: another process has it.
#[derive(Debug, thiserror::Error)]
#[error(
    "another memser (pid {pid}) uses {folder}: stop it, connect to it, or give this one its own MEMSER_DATA_DIR",
    folder = .folder.display()
)]
pub struct Held {
    pid: String,
    folder: PathBuf,
}

/// The data folder, held by this process alone until it is dropped.
#[derive(Debug)]
pub(super) struct DataFolder {
    /// Absolute, without links.
    pub(super) path: PathBuf,
    /// The name of the cluster that is worked with.
    cluster: &'static str,
    /// Unlocks when it is dropped. Closing the file alone would not do: a program that another thread is just
    /// starting has inherited it and keeps it open until it runs.
    _lock: Flock<File>,
}

impl DataFolder {
    /// Creates the folder if need be, and takes it.
    pub(super) fn open(path: &Path, account: &Account) -> anyhow::Result<Self> {
        // Postgres' user has to pass through the folder to its own, but need not see what else is there.
        let passage = if account.is_switched() { 0o011 } else { 0 };
        let explain = || {
            format!(
                "cannot use the data folder {} (set MEMSER_DATA_DIR, or DATABASE_URL for a Postgres elsewhere)",
                path.display()
            )
        };
        DirBuilder::new().recursive(true).mode(0o700 | passage).create(path).with_context(explain)?;
        let path = path.canonicalize().with_context(explain)?;
        let metadata = path.metadata().with_context(explain)?;
        let owner = Uid::from_raw(metadata.uid());
        if owner == geteuid() {
            // Whoever else can write here can replace what memser reads.
            let mode = metadata.mode() & 0o7755 | passage;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(explain)?;
        } else if !owner.is_root() {
            bail!("the data folder {} belongs to user {}, not to memser's", path.display(), name_of(owner));
        }
        if let Some(barrier) = account.barrier(&path)? {
            bail!(
                "user {user}, who runs Postgres because memser is root, cannot pass through {}: open it (chmod o+x), \
                 set MEMSER_DATA_DIR to another place, or MEMSER_PG_USER to another user",
                barrier.display(),
                user = account.name
            );
        }
        let lock = lock(&path)?;
        let data = Self { path, cluster: CLUSTER, _lock: lock };
        data.finish_restore()?;
        Ok(data)
    }

    /// The same folder, to restore a cluster beside the one that is used.
    pub(super) fn restoring(self) -> Self {
        Self { cluster: RESTORING, ..self }
    }

    /// Uses a cluster that was restored whole, where memser was killed after it had put the former one aside.
    fn finish_restore(&self) -> anyhow::Result<()> {
        let (restored, cluster) = (self.path.join(RESTORED), self.path.join(CLUSTER));
        if restored.is_dir() && cluster.symlink_metadata().is_err() {
            fs::rename(&restored, &cluster)
                .with_context(|| format!("cannot rename {}", restored.display()))?;
        }
        Ok(())
    }

    /// Removes what an interrupted restore has left.
    pub(super) fn clear_restore(&self) -> anyhow::Result<()> {
        remove_folder(&self.path.join(RESTORING))?;
        remove_folder(&self.path.join(RESTORED))
    }

    /// Uses the restored cluster from now on; answers where the former one is, if there was one.
    ///
    /// At any time one of both is there under the name that the next start looks for, or is given it then.
    pub(super) fn put_in_place(&self, now: DateTime<Utc>) -> anyhow::Result<Option<PathBuf>> {
        let folder = File::open(&self.path)?;
        let (restored, cluster) = (self.path.join(RESTORED), self.path.join(CLUSTER));
        fs::rename(self.path.join(RESTORING), &restored)?;
        folder.sync_all()?;
        let former = if cluster.symlink_metadata().is_ok() {
            let former = self.path.join(format!("{CLUSTER}.{}", now.format("%Y%m%dT%H%M%SZ")));
            fs::rename(&cluster, &former)?;
            Some(former)
        } else {
            None
        };
        self.finish_restore()?;
        folder.sync_all()?;
        Ok(former)
    }

    /// The folder of the cluster, which may not be there yet.
    pub(super) fn cluster(&self) -> PathBuf {
        self.path.join(self.cluster)
    }

    /// Which files say who may log in; see [`write_access_rules`](Self::write_access_rules).
    pub(super) fn access_files(&self) -> (PathBuf, PathBuf) {
        (self.path.join("pg_hba.conf"), self.path.join("pg_ident.conf"))
    }

    /// Lets in memser's system user, and nobody else, as any role: the kernel tells Postgres who connects (`peer`).
    ///
    /// A password would be no stronger, since memser's user could read it too, and it could leak. The files are
    /// outside the cluster: root must not write into a folder of another user, who could put a link there.
    pub(super) fn write_access_rules(&self) -> anyhow::Result<()> {
        let (hba, ident) = self.access_files();
        let user = memser_user()?.name.replace('"', "\"\"");
        for (file, rules) in [
            (hba, "local all all peer map=memser\n".to_owned()),
            (ident, format!("memser \"{user}\" {SUPERUSER}\nmemser \"{user}\" {ROLE}\n")),
        ] {
            fs::write(&file, format!("# Written by memser at every start.\n{rules}"))
                .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o644)))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// The major version of the data, or none where there is no cluster yet.
    pub(super) fn major(&self, account: &Account) -> anyhow::Result<Option<u32>> {
        let pg = self.cluster();
        let Ok(metadata) = pg.symlink_metadata() else {
            return Ok(None);
        };
        if !account.owns(&metadata) {
            let owner = name_of(Uid::from_raw(metadata.uid()));
            let way_out = if account.is_switched() {
                format!("set MEMSER_PG_USER={owner}")
            } else {
                format!("run memser as {owner}, or as root with MEMSER_PG_USER={owner}")
            };
            bail!(
                "the database in {} belongs to user {owner}, not to {}: {way_out}",
                pg.display(),
                account.name
            );
        }
        match fs::read_to_string(pg.join("PG_VERSION")) {
            Ok(text) => match text.trim().parse() {
                Ok(major) => Ok(Some(major)),
                Err(_) => bail!("{} names no version: {text:?}", pg.join("PG_VERSION").display()),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if fs::read_dir(&pg)?.next().is_some() {
                    // Not a half-made cluster: memser makes them elsewhere and renames them. Nothing unknown is deleted.
                    bail!("{} holds files but no PostgreSQL cluster: move them away", pg.display());
                }
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", pg.display())),
        }
    }

    /// Makes the cluster. It appears under its name only when complete, so that an interrupted start leaves nothing
    /// that looks like one.
    pub(super) fn initialise(&self, account: &Account, installation: &Installation) -> anyhow::Result<()> {
        let new = self.path.join(format!("{}.new", self.cluster));
        remove_folder(&new)?;
        DirBuilder::new()
            .mode(0o700)
            .create(&new)
            .with_context(|| format!("cannot create {}", new.display()))?;
        account.give(&new)?;
        tracing::info!("Creating a database in {} ({})", self.path.display(), installation.version);
        let mut command = account.command(installation.bin.join("initdb"));
        // C: memser folds case and sorts by itself, and a system update cannot change the order under an index.
        command.args(["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]);
        command.args([&format!("--username={SUPERUSER}"), "--auth-local=peer", "--auth-host=reject"]);
        let output = command.arg("-D").arg(&new).output().context("cannot run initdb")?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!(
                "initdb as user {} failed ({}). {}\n{}",
                account.name,
                output.status,
                hint(&words),
                words.trim()
            );
        }
        fs::rename(&new, self.cluster())?;
        File::open(&self.path)?.sync_all()?;
        Ok(())
    }
}

/// Takes the folder for this process. The kernel gives it back when the process ends, however it ends.
fn lock(data_dir: &Path) -> anyhow::Result<Flock<File>> {
    let path = data_dir.join("lock");
    let explain = || format!("cannot use {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).with_context(explain)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            lock.set_len(0)?;
            write!(lock, "{}", std::process::id()).with_context(explain)?;
            Ok(lock)
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(Held { pid, folder: data_dir.to_owned() }.into())
        }
        Err((_, errno)) => Err(errno).with_context(explain),
    }
}

fn name_of(uid: Uid) -> String {
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

/// Makes memser's role and database, and brings pgvector to the version of the binaries.
///
/// Every step looks first, so that the next start repairs what a crash left half done. Needs the superuser, because
/// pgvector is no trusted extension. The role gets no right beyond its database, so that row-level security binds it.
pub(super) async fn provision(superuser: &PgConnectOptions) -> anyhow::Result<()> {
    let mut server = superuser.clone().database("postgres").connect().await?;
    if !exists(&mut server, "select 1 from pg_roles where rolname = $1", ROLE).await? {
        run(&mut server, format!("create role {ROLE}")).await?;
    }
    run(&mut server, format!("alter role {ROLE} login nosuperuser nobypassrls nocreatedb nocreaterole"))
        .await?;
    if !exists(&mut server, "select 1 from pg_database where datname = $1", DATABASE).await? {
        // A statement of its own: Postgres removes what a crash leaves of a `create database`.
        run(&mut server, format!("create database {DATABASE} owner {ROLE} template template0")).await?;
    }
    server.close().await?;

    let mut database = superuser.clone().database(DATABASE).connect().await?;
    run(&mut database, "create extension if not exists vector".to_owned()).await?;
    let outdated =
        "select 1 from pg_available_extensions where name = $1 and installed_version <> default_version";
    if exists(&mut database, outdated, "vector").await? {
        run(&mut database, "alter extension vector update".to_owned()).await?;
    }
    database.close().await?;
    Ok(())
}

/// Whether the memser that makes a database is done with it: pgvector comes last.
pub(super) async fn is_made(database: &PgConnectOptions) -> sqlx::Result<bool> {
    let mut connection = database.connect().await?;
    let is_made = exists(&mut connection, "select 1 from pg_extension where extname = $1", "vector").await?;
    connection.close().await?;
    Ok(is_made)
}

async fn exists(connection: &mut PgConnection, query: &'static str, name: &str) -> sqlx::Result<bool> {
    Ok(sqlx::query(query).bind(name).fetch_optional(connection).await?.is_some())
}

/// Runs DDL, which takes no parameters; the names in it are this module's constants.
async fn run(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone()))
        .execute(connection)
        .await
        .with_context(|| format!("cannot {statement}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_given_back_is_free_even_while_another_program_starts() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        let refusal = format!("{:#}", lock(folder.path()).unwrap_err());
        assert!(refusal.contains(&format!("another memser (pid {})", std::process::id())), "{refusal}");

        // What a process that another thread has forked holds until it becomes another program.
        let inherited = held.try_clone().unwrap();
        drop(held);

        lock(folder.path()).unwrap();
        drop(inherited);
    }
}
