//! The server process: start it, wait for it, keep it running, stop it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::process::{Child, Command};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::account::Account;
use super::cluster::DataFolder;
use super::installation::Installation;
use super::leftover::{FAST_SHUTDOWN, IMMEDIATE_SHUTDOWN};
use super::socket::{PORT, SocketFolder};
use super::{SUPERUSER, hint};

/// How long a server may show no sign of life at its start.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Pause between two attempts to connect to a starting server.
const POLL: Duration = Duration::from_millis(30);
/// Pauses before a server that ended is started again: doubled each time, from the first to the last.
const RESTART_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A server that ran this long had not failed at its start: its restart waits the short pause again.
const STEADY: Duration = Duration::from_mins(1);
const LOG_CHECK: Duration = Duration::from_mins(5);
/// One log of this size and one before it are kept.
const LOG_LIMIT: u64 = 8 << 20;

/// What a server needs to start. The socket's folder and the hold on the data end with it.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) account: Account,
    pub(super) installation: Installation,
    pub(super) socket: SocketFolder,
    pub(super) data: DataFolder,
}

/// A running server. Dropping it asks for a fast shutdown without waiting.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
}

impl Launch {
    /// Starts the server and waits until it lets the superuser in.
    pub(super) async fn start(&self) -> anyhow::Result<Server> {
        self.socket.clear()?;
        let log = Log::of(&self.data.path);
        log.rotate()?;
        let from = log.len();
        let mut server = self.spawn(&log)?;
        server.ready(&connect_options(&self.socket.path, SUPERUSER, "postgres")).await.map_err(|error| {
            let tail = log.tail(from);
            error.context(format!(
                "Postgres did not start. {} Its last words ({}):\n{tail}",
                hint(&tail),
                log.path.display()
            ))
        })?;
        Ok(server)
    }

    fn spawn(&self, log: &Log) -> anyhow::Result<Server> {
        let mut command = self.account.command(self.installation.bin.join("postgres"));
        command.arg("-D").arg(self.data.cluster());
        for setting in self.settings() {
            command.arg("-c").arg(setting);
        }
        let file = log.open()?;
        command.stdout(file.try_clone()?).stderr(file);
        // Not `kill_on_drop`: a killed postmaster leaves its children and a recovery behind.
        let child = Command::from(command).spawn().context("cannot run postgres")?;
        Ok(Server { child })
    }

    /// Settings on the command line win over every file, so that an edited file cannot undo them.
    fn settings(&self) -> Vec<OsString> {
        let (hba, ident) = self.data.access_files();
        let path = |name: &str, value: &Path| {
            let mut setting = OsString::from(name);
            setting.push("=");
            setting.push(value);
            setting
        };
        // This one is a list, in which a quoted element may hold a comma.
        let socket = format!("\"{}\"", self.socket.path.display().to_string().replace('"', "\"\""));
        let mut settings = vec![
            path("hba_file", &hba),
            path("ident_file", &ident),
            path("unix_socket_directories", Path::new(&socket)),
            format!("port={PORT}").into(),
        ];
        settings.extend(
            [
                "listen_addresses=",
                "unix_socket_permissions=0700",
                "fsync=on",
                "full_page_writes=on",
                "max_connections=100",
                "shared_buffers=128MB",
                "maintenance_work_mem=128MB",
                // A parallel HNSW build takes maintenance_work_mem from /dev/shm, of which a container has 64 MB.
                "max_parallel_maintenance_workers=0",
                // Compiling a query costs more than memser's short ones take.
                "jit=off",
                "cluster_name=memser",
                "log_destination=stderr",
                "logging_collector=off",
                "log_line_prefix=%m [%p] ",
                // Statements could carry what somebody asked memser to remember.
                "log_min_error_statement=panic",
            ]
            .map(OsString::from),
        );
        settings
    }

    /// Keeps a server running until `stop` is cancelled, then shuts it down.
    ///
    /// The pool reconnects by itself, so that a server that was killed costs its callers a moment.
    pub(super) async fn supervise(self, server: Server, stop: CancellationToken) -> anyhow::Result<()> {
        let log = Log::of(&self.data.path);
        let mut log_check = tokio::time::interval(LOG_CHECK);
        log_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut running = Ok(server);
        let mut since = Instant::now();
        let mut pause = RESTART_PAUSES.0;
        loop {
            if let Ok(server) = &mut running {
                tokio::select! {
                    () = stop.cancelled() => return server.stop().await,
                    _ = log_check.tick() => {
                        if let Err(error) = log.rotate() {
                            tracing::warn!("Cannot shorten Postgres' log: {error:#}");
                        }
                        continue;
                    }
                    status = server.child.wait() => {
                        tracing::error!("Postgres ended ({status:?}), starting it again; its log: {}", log.path.display());
                    }
                }
                if since.elapsed() > STEADY {
                    pause = RESTART_PAUSES.0;
                }
            }
            // Also long enough for memser to be told to stop by the same signal that ended Postgres.
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(pause) => {}
            }
            pause = RESTART_PAUSES.1.min(pause * 2);
            running = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                started = self.start() => started,
            };
            since = Instant::now();
            match &running {
                Ok(_) => tracing::info!("Postgres runs again"),
                Err(error) => tracing::error!("{error:#}"),
            }
        }
    }
}

impl Server {
    /// Waits until the server lets `options` in, or says why not.
    async fn ready(&mut self, options: &PgConnectOptions) -> anyhow::Result<()> {
        let mut alive = Instant::now();
        loop {
            // The limit is for an attempt that hangs; a socket that is not there yet answers at once.
            let attempt = timeout(START_LIMIT, options.connect());
            let outcome = tokio::select! {
                status = self.child.wait() => bail!("it ended while starting ({})", status?),
                outcome = attempt => outcome.context("it does not answer")?,
            };
            match outcome {
                Ok(connection) => return Ok(connection.close().await?),
                // Recovering after a crash can take minutes, and would begin anew if it were cut off.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("57P03") => {
                    alive = Instant::now();
                }
                Err(sqlx::Error::Io(_)) if alive.elapsed() < START_LIMIT => {}
                Err(error) => return Err(error.into()),
            }
            sleep(POLL).await;
        }
    }

    /// Shuts the server down and waits for its end.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        // Fast: open transactions are rolled back. Immediate: a recovery at the next start, but nothing is lost.
        for (signal, limit) in [(Signal::SIGINT, FAST_SHUTDOWN), (Signal::SIGQUIT, IMMEDIATE_SHUTDOWN)] {
            self.signal(signal);
            if let Ok(status) = timeout(limit, self.child.wait()).await {
                let status = status?;
                if !status.success() {
                    tracing::warn!("Postgres ended with {status}");
                }
                return Ok(());
            }
        }
        bail!("Postgres (pid {:?}) does not stop", self.child.id())
    }

    fn signal(&self, signal: Signal) {
        // There is no id once the end was seen, so that no other process can have it.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::SIGINT);
    }
}

/// How to reach a database of the server as a role.
///
/// Every value that `sqlx` would take from the environment is set here, save `PGOPTIONS`; see
/// [`Embedded::start`](super::Embedded::start).
pub(super) fn connect_options(socket: &Path, role: &str, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(PORT)
        .socket(socket)
        .username(role)
        .password("")
        .database(database)
        .ssl_mode(PgSslMode::Disable)
        .application_name("memser")
}

/// The server's log. Postgres appends to one open file, which is therefore shortened in place.
struct Log {
    path: PathBuf,
}

impl Log {
    fn of(data_dir: &Path) -> Self {
        Self { path: data_dir.join("postgres.log") }
    }

    fn open(&self) -> anyhow::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.open(&self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn len(&self) -> u64 {
        self.path.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Moves a long log's content to `postgres.log.1`.
    fn rotate(&self) -> anyhow::Result<()> {
        if self.len() > LOG_LIMIT {
            fs::copy(&self.path, self.path.with_extension("log.1"))?;
            self.open()?.set_len(0)?;
        }
        Ok(())
    }

    /// The end of what was written since the log was `from` bytes long.
    fn tail(&self, from: u64) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(from.max(self.len().saturating_sub(4096))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_is_shortened_under_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::of(folder.path());
        let mut writer = log.open().unwrap();
        writer.write_all(b"short\n").unwrap();
        log.rotate().unwrap();
        assert_eq!(log.len(), 6);

        let limit = usize::try_from(LOG_LIMIT).unwrap();
        writer.write_all(&vec![b'x'; limit]).unwrap();
        log.rotate().unwrap();
        writer.write_all(b"after\n").unwrap();

        assert_eq!(fs::read_to_string(&log.path).unwrap(), "after\n");
        assert_eq!(folder.path().join("postgres.log.1").metadata().unwrap().len(), LOG_LIMIT + 6);
    }

    #[test]
    fn the_tail_is_of_this_start_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::of(folder.path());
        log.open().unwrap().write_all(b"earlier\n").unwrap();
        let from = log.len();
        assert_eq!(log.tail(from), "");
        log.open().unwrap().write_all(b"FATAL: now\n").unwrap();
        assert_eq!(log.tail(from), "FATAL: now");
        log.open().unwrap().write_all(&[b'y'; 9000]).unwrap();
        assert_eq!(log.tail(from).len(), 4096);
    }
}
