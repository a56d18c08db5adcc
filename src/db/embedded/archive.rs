//! Backups of the private Postgres' database: archives of `pg_dump`, which hold one moment of it, do not disturb who uses
//! it, and can be read by later major versions of Postgres.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, Utc};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::account::{Account, clean_command};
use super::cluster::{DataFolder, provision};
use super::server::{Launch, connect_options};
use super::socket::{PORT, SocketFolder};
use super::{DATABASE, EmbeddedSettings, ROLE, SUPERUSER, discover, hint, leftover};
use crate::db::schema::bring_up_to_date;

/// Writes memser's database, as it is at this moment, into a file that is there already.
///
/// `server` is a way to its running server.
///
/// # Errors
///
/// There is no `pg_dump` beside the server's binaries, it fails, or the file cannot be written. The file's content counts
/// for nothing then.
pub async fn write(
    settings: &EmbeddedSettings,
    server: &PgConnectOptions,
    archive: &Path,
) -> anyhow::Result<()> {
    let settings = settings.clone();
    let bin = tokio::task::spawn_blocking(move || {
        let data = settings.resolve_data_dir()?;
        let version = std::fs::read_to_string(data.join("pg/PG_VERSION"));
        let version = version.with_context(|| format!("cannot read {}", data.join("pg").display()))?;
        let installation = discover::find(settings.pg_bin.as_deref(), &data, version.trim().parse().ok())?;
        anyhow::Ok(installation.bin)
    });
    let socket = server.get_socket().context("the private Postgres is reached over its socket")?;
    let mut command = client(&bin.await??, "pg_dump", socket)?;
    command.args(["--format=custom", "--file"]).arg(archive).arg(DATABASE);
    run(command).await
}

/// Makes a cluster of an archive and lets it take the place of the data folder's own.
///
/// Answers where the former one is, if there was one. Until the new one is whole and its schema up to date, the former one stays in its place.
///
/// # Errors
///
/// Each says what to do: the folder holds a database and `replace` does not allow to put it aside, a memser uses the
/// folder ([`Held`](super::Held)), the archive is none or is not whole, it is newer than this memser.
pub async fn restore(
    settings: &EmbeddedSettings,
    archive: &Path,
    replace: bool,
    now: DateTime<Utc>,
) -> anyhow::Result<Option<PathBuf>> {
    let settings = settings.clone();
    let launch = tokio::task::spawn_blocking(move || prepare(&settings, replace)).await??;
    let mut server = launch.start().await?;
    let filled = fill(&launch, archive).await;
    server.stop().await?;
    filled?;
    launch.data.put_in_place(now)
}

/// An empty cluster beside the one that is used. Blocks.
fn prepare(settings: &EmbeddedSettings, replace: bool) -> anyhow::Result<Launch> {
    let account = Account::choose(&settings.pg_user)?;
    let data = DataFolder::open(&settings.resolve_data_dir()?, &account)?;
    ensure!(
        replace || data.major(&account)?.is_none(),
        "{} holds a database already: name another MEMSER_DATA_DIR, or put it aside with --replace",
        data.path.display()
    );
    leftover::stop(&data.cluster())?;
    let installation =
        discover::find(settings.pg_bin.as_deref(), &data.path, None)?.reachable_by(&account, &data.path)?;
    data.write_access_rules()?;
    let data = data.restoring();
    leftover::stop(&data.cluster())?;
    data.clear_restore()?;
    data.initialise(&account, &installation)?;
    let socket = SocketFolder::open(&account, &data.path)?;
    Ok(Launch { account, installation, socket, data })
}

async fn fill(launch: &Launch, archive: &Path) -> anyhow::Result<()> {
    let socket = &launch.socket.path;
    provision(&connect_options(socket, SUPERUSER, "postgres")).await?;
    let mut command = client(&launch.installation.bin, "pg_restore", socket)?;
    command.args(["--exit-on-error", "--single-transaction", "--dbname", DATABASE]).arg(archive);
    run(command).await?;
    bring_up_to_date(&connect_options(socket, ROLE, DATABASE)).await?;
    // An archive has neither the planner's statistics nor which pages recall may read by an index alone.
    let mut database = connect_options(socket, SUPERUSER, DATABASE).connect().await?;
    sqlx::raw_sql("vacuum (analyze)").execute(&mut database).await?;
    Ok(database.close().await?)
}

/// One of Postgres' client programs, as memser's own user: the only one that the server lets in.
fn client(bin: &Path, program: &str, socket: &Path) -> anyhow::Result<Command> {
    let program = bin.join(program);
    ensure!(
        program.is_file(),
        "there is no {}: install the client programs of the same PostgreSQL (in Debian: postgresql-client-18)",
        program.display()
    );
    let mut command = clean_command(program);
    command.arg("--host").arg(socket).arg(format!("--port={PORT}"));
    command.args([&format!("--username={SUPERUSER}"), "--no-password"]);
    Ok(command)
}

/// Runs a program to its end; it is killed when the caller stops waiting.
async fn run(mut command: Command) -> anyhow::Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    command.stdout(Stdio::null());
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output().await.with_context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    // What follows a program's own line may quote rows.
    let own: Vec<&str> = words.lines().filter(|line| line.starts_with(&name)).collect();
    bail!("{name} failed ({}). {}\n{}", output.status, hint(&words), own.join("\n"))
}
