//! A private, real Postgres as a child process, for a memser that was given no database.
//!
//! It only provides: what [`Embedded::start`] returns is a server like any other. In the data folder are
//!
//! | path | what | owner |
//! |---|---|---|
//! | `lock` | held by the memser that runs Postgres | memser's user |
//! | `pg/` | the cluster | Postgres' user |
//! | `pg.restoring/`, `pg.restored/` | one that is being restored, and one that is whole but not yet in its place | Postgres' user |
//! | `pg.TIME/` | one that a restore has replaced | Postgres' user |
//! | `run/` | the socket, where the path is short enough | Postgres' user |
//! | `pg_hba.conf`, `pg_ident.conf` | who may log in | memser's user |
//! | `postgres.log`, `postgres.log.1` | the server's log | memser's user |
//! | `postgres/` | a copy of the binaries, where Postgres' user cannot reach the original | memser's user |
//!
//! Postgres' user is memser's, save where memser is root.

mod account;
pub mod archive;
mod cluster;
mod discover;
mod installation;
mod leftover;
mod server;
mod socket;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use account::Account;
use cluster::DataFolder;
pub use cluster::Held;
use server::{Launch, connect_options};
use socket::SocketFolder;

/// Makes and repairs memser's database; never used to serve a request.
const SUPERUSER: &str = "postgres";
/// memser's own role, bound by row-level security.
const ROLE: &str = "memser";
const DATABASE: &str = "memser";

/// Where the data and the binaries are, and who runs Postgres.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// `MEMSER_DATA_DIR`; see [`resolve_data_dir`](Self::resolve_data_dir) for the default.
    pub data_dir: Option<PathBuf>,
    /// `MEMSER_PG_BIN`: the folder of `postgres` and `initdb`. When set, no other place is looked at.
    pub pg_bin: Option<PathBuf>,
    /// `MEMSER_PG_USER`: the user that runs Postgres where memser is root. Does not count otherwise.
    pub pg_user: String,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self { data_dir: None, pg_bin: None, pg_user: "nobody".to_owned() }
    }
}

impl EmbeddedSettings {
    /// The data folder: the one that was set, or `/var/lib/memser` for root, or `memser` in the user's data folder
    /// (`$XDG_DATA_HOME`, `~/.local/share`). It is absolute; nothing is created.
    ///
    /// # Errors
    ///
    /// None was set and the user has no home.
    pub fn resolve_data_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(folder) = &self.data_dir {
            return std::path::absolute(folder)
                .with_context(|| format!("MEMSER_DATA_DIR={}", folder.display()));
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/memser"));
        }
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        folder("XDG_DATA_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".local/share")))
            .map(|folder| folder.join("memser"))
            .context("there is no HOME to keep memories in: set MEMSER_DATA_DIR")
    }

    /// Whether the next server on the data folder has the same socket as the one that is reached in `folder`.
    ///
    /// # Errors
    /// There is no data folder.
    pub fn keeps_socket(&self, folder: &Path) -> anyhow::Result<bool> {
        Ok(folder == SocketFolder::near(&self.resolve_data_dir()?.canonicalize()?))
    }
}

/// A running private Postgres, kept running until [`stop`](Self::stop).
///
/// Dropping it asks the server to shut down without waiting for the end.
#[derive(Debug)]
pub struct Embedded {
    socket: PathBuf,
    stop: CancellationToken,
    supervisor: JoinHandle<anyhow::Result<()>>,
}

impl Embedded {
    /// Starts the server on the data folder, which is made and filled if need be, and waits until memser's database
    /// can be used. A server that a killed memser left there is stopped first.
    ///
    /// The server is started again, with growing pauses, whenever it ends by itself.
    ///
    /// # Errors
    ///
    /// Each says what to do: no usable binaries, data of another major version, another memser on the folder ([`Held`]),
    /// no permission, a full disk, a user that Postgres cannot run as.
    pub async fn start(settings: &EmbeddedSettings) -> anyhow::Result<Self> {
        // `sqlx` hands this variable to every connection and cannot be told not to.
        if std::env::var_os("PGOPTIONS").is_some_and(|value| !value.is_empty()) {
            bail!("PGOPTIONS is set and would change memser's own database connections: unset it");
        }
        let settings = settings.clone();
        let launch = tokio::task::spawn_blocking(move || prepare(&settings)).await??;
        let server = launch.start().await?;
        let socket = launch.socket.path.clone();
        cluster::provision(&connect_options(&socket, SUPERUSER, "postgres"))
            .await
            .context("cannot set up memser's database")?;
        tracing::info!("Postgres runs in {}", launch.data.path.display());
        let stop = CancellationToken::new();
        let supervisor = tokio::spawn(launch.supervise(server, stop.clone()));
        Ok(Self { socket, stop, supervisor })
    }

    /// Whether the data folder holds a database already.
    ///
    /// # Errors
    ///
    /// The user has no home and no folder was set.
    pub fn has_data(settings: &EmbeddedSettings) -> anyhow::Result<bool> {
        let folder = settings.resolve_data_dir()?;
        Ok(["pg/PG_VERSION", "pg.restored/PG_VERSION"].iter().any(|file| folder.join(file).exists()))
    }

    /// How to reach memser's database in a server that another memser runs on the data folder; none where none runs.
    ///
    /// # Errors
    ///
    /// The data folder cannot be read.
    pub fn running(settings: &EmbeddedSettings) -> anyhow::Result<Option<PgConnectOptions>> {
        let file = settings.resolve_data_dir()?.join("pg/postmaster.pid");
        match fs::read_to_string(&file) {
            // The fifth line is the socket's folder, empty while the server starts.
            Ok(text) => Ok(text
                .lines()
                .nth(4)
                .filter(|folder| !folder.is_empty())
                .map(|folder| connect_options(Path::new(folder), ROLE, DATABASE))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Whether memser's database can be used by another memser than the one that runs the server, which makes it first.
    pub async fn is_ready(database: &PgConnectOptions) -> bool {
        cluster::is_made(database).await.unwrap_or(false)
    }

    /// How to reach memser's database, over the socket, as a role without special rights that owns it.
    #[must_use]
    pub fn connect_options(&self) -> PgConnectOptions {
        connect_options(&self.socket, ROLE, DATABASE)
    }

    /// Shuts the server down and waits for its end. Close the pool before: open connections are cut.
    ///
    /// # Errors
    ///
    /// The server does not stop.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        (&mut self.supervisor).await?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Drops the server with the task, which asks it to shut down.
        self.supervisor.abort();
    }
}

/// Everything before the server starts. Blocks.
fn prepare(settings: &EmbeddedSettings) -> anyhow::Result<Launch> {
    let account = Account::choose(&settings.pg_user)?;
    let data = DataFolder::open(&settings.resolve_data_dir()?, &account)?;
    let major = data.major(&account)?;
    leftover::stop(&data.cluster())?;
    let installation =
        discover::find(settings.pg_bin.as_deref(), &data.path, major)?.reachable_by(&account, &data.path)?;
    data.write_access_rules()?;
    if major.is_none() {
        data.initialise(&account, &installation)?;
    }
    let socket = SocketFolder::open(&account, &data.path)?;
    Ok(Launch { account, installation, socket, data })
}

/// What to do about a failure of Postgres' programs, where their words show it.
fn hint(words: &str) -> &'static str {
    let known = [
        ("Check free disk space", "The disk is full: free some space."),
        ("No space left on device", "The disk (or shared memory, /dev/shm) is full: free some space."),
        ("Disk quota exceeded", "The disk quota is used up: free some space."),
        ("Permission denied", "Something is closed to Postgres' user: see the path below."),
        ("Read-only file system", "The data folder is on a read-only disk: set MEMSER_DATA_DIR."),
        ("Cannot allocate memory", "The system has too little memory."),
    ];
    known.iter().find(|(sign, _)| words.contains(sign)).map_or("", |(_, advice)| advice)
}

/// Removes a folder and what is in it, if it is there. Links in it are not followed.
fn remove_folder(path: &Path) -> anyhow::Result<()> {
    removed(path, fs::remove_dir_all(path))
}

/// Removes a file, if it is there. A link is not followed.
fn remove_file(path: &Path) -> anyhow::Result<()> {
    removed(path, fs::remove_file(path))
}

fn removed(path: &Path, outcome: std::io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_data_folder_becomes_absolute() {
        let settings = EmbeddedSettings { data_dir: Some("data/here".into()), ..EmbeddedSettings::default() };
        assert_eq!(settings.resolve_data_dir().unwrap(), std::env::current_dir().unwrap().join("data/here"));
    }

    #[test]
    fn a_full_disk_is_named() {
        assert!(hint("could not extend file: No space left on device").contains("disk"));
        assert!(hint("wrote only 4096 of 8192 bytes\nHINT:  Check free disk space.").contains("disk"));
        assert_eq!(hint("anything else"), "");
    }
}
