//! Every kind of start: what a database or a disk may be like, and what a person is told about it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use futures::future::join_all;
use memser::db::MIGRATOR;
use memser::db::schema::bring_up_to_date;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Uid, geteuid};
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor, PgConnection};

use crate::support::process::{Running, complaint, data_folder, memser, output, postmaster};
use crate::support::{ADMIN, TestApp, TestDatabase};

/// Why memser does not start on this database.
fn refusal(url: &str) -> String {
    let words = complaint(&[], &[("DATABASE_URL", url), ("MEMSER_TOKEN", ADMIN)]);
    assert!(words.starts_with("memser: DATABASE_URL: "), "{words}");
    words
}

/// The log of a memser that started on this database and was stopped again.
async fn log_of_a_start(url: &str) -> String {
    let running = Running::run(memser(&[], &[("DATABASE_URL", url), ("MEMSER_TOKEN", ADMIN)]));
    running.signal(Signal::SIGTERM);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
    log
}

async fn applied(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select count(*) from _sqlx_migrations where success")
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn memories_outlive_a_kill_of_memser_and_postgres_together() {
    let data = data_folder();
    let running = Running::start(data.path(), &[("MEMSER_TOKEN", ADMIN)]);
    running.client(ADMIN).store("user:1", "The vault code is in the blue folder.").await;
    running.signal(Signal::SIGKILL);
    kill(postmaster(data.path()), Signal::SIGKILL).unwrap();
    running.end().await;
    let running = Running::start(data.path(), &[("MEMSER_TOKEN", ADMIN)]);
    let found = running.client(ADMIN).recall("user:1", "Where is the vault code?").await;
    assert_eq!(found, ["The vault code is in the blue folder."]);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().await.0, Some(0));
}

#[tokio::test]
async fn another_postgres_in_path_does_not_open_the_data() {
    let data = data_folder();
    let migrated = output(&["migrate"], &[("MEMSER_DATA_DIR", data.path().to_str().unwrap())]);
    assert_eq!(migrated.status.code(), Some(0), "{migrated:?}");
    // An older major with pgvector, which a first start could take.
    let other = data_folder();
    let (bin, share) = (other.path().join("bin"), other.path().join("share/extension"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&share).unwrap();
    fs::write(share.join("vector.control"), "default_version = '0.8.1'\n").unwrap();
    for program in ["postgres", "initdb"] {
        fs::write(bin.join(program), "#!/bin/sh\necho 'postgres (PostgreSQL) 15.9'\n").unwrap();
        fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let real = std::env::var("MEMSER_PG_BIN").expect("run by scripts/test-services.sh");
    let mut command = memser(&["serve"], &[("MEMSER_TOKEN", ADMIN)]);
    command.env_remove("MEMSER_PG_BIN").current_dir(other.path()).env("MEMSER_DATA_DIR", data.path());
    command.env("PATH", format!("{}:{real}:/usr/bin:/bin", bin.display()));
    let running = Running::run(command);
    running.signal(Signal::SIGTERM);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
}

/// Runs a shell script as this user with a disk of its own on `folder`, which the script sizes and fills as it likes.
fn with_own_disk(folder: &Path, size: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !geteuid().is_root() {
        command.arg("--user").arg(format!("--map-user={}", Uid::effective())).arg("--keep-caps");
    }
    let mount = format!("mount -t tmpfs -o size={size} tmpfs {}", folder.display());
    command.args(["sh", "-c", &format!("{mount} || exit 99\n{script}")]).stdin(Stdio::null());
    command
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    let disk = data_folder();
    let folder = disk.path().display();
    // 20 MB are too little for a cluster; what that left behind is no obstacle once there is room. Later the disk is
    // filled up under a cluster that is there.
    let script = format!(
        r#"
        "$MEMSER" migrate; echo "first: $?" >&2
        mount -o remount,size=400m {folder} || exit 99
        "$MEMSER" migrate; echo "second: $?" >&2
        cat /dev/zero >{folder}/filler 2>/dev/null
        "$MEMSER" doctor >&2
        "$MEMSER" migrate; echo "third: $?" >&2
        rm {folder}/filler
        "$MEMSER" migrate; echo "fourth: $?" >&2
        "#
    );
    let mut command = with_own_disk(disk.path(), "20m", &script);
    let inherited = memser(&[], &[]);
    command.env_clear().envs(inherited.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("MEMSER", env!("CARGO_BIN_EXE_memser")).env("MEMSER_DATA_DIR", disk.path().join("data"));
    let output = command.output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(99) || words.starts_with("unshare: ") {
        println!("not tested: this system gives nobody a disk of their own: {words}");
        return;
    }
    for (end, expected) in [("first: ", "1"), ("second: ", "0"), ("third: ", "1"), ("fourth: ", "0")] {
        assert!(words.contains(&format!("{end}{expected}\n")), "{words}");
    }
    assert_eq!(words.matches("free some space").count(), 2, "{words}");
    assert!(words.contains("FAILED  disk: 0 MiB are free") && words.contains("make room"), "{words}");
}

#[tokio::test]
async fn a_role_that_row_level_security_does_not_bind_is_warned_of() {
    let database = TestDatabase::create().await;
    let warning = "bypasses row-level security";
    let log = log_of_a_start(&database.url).await;
    assert!(!log.contains(warning), "{log}");
    let server = std::env::var("MEMSER_TEST_DATABASE_URL").expect("run by scripts/test-services.sh");
    let name = database.url.rsplit_once('/').unwrap().1;
    let log = log_of_a_start(&format!("{}/{name}", server.rsplit_once('/').unwrap().0)).await;
    assert!(log.contains(warning), "{log}");
}

#[tokio::test]
async fn a_database_that_does_not_let_memser_in_is_told_apart() {
    let database = TestDatabase::create().await;
    let (before, after) = database.url.split_once("memser_test@").unwrap();
    let words = refusal(&format!("{before}hunter2@{after}"));
    assert!(words.contains("check user and password") && !words.contains("hunter2"), "{words}");
    let words = refusal(&format!("{}_gone", database.url));
    assert!(words.contains("does not exist") && words.contains("createdb"), "{words}");
}

#[tokio::test]
async fn a_database_that_lacks_what_memser_needs_is_refused_with_the_way_out() {
    let database = TestDatabase::bare("memser_test").await;
    let words = refusal(&database.url);
    assert!(words.contains("as a superuser") && words.contains("create extension vector"), "{words}");

    let database = TestDatabase::bare("postgres").await;
    database.connect().await.execute("create extension vector").await.unwrap();
    let words = refusal(&database.url);
    assert!(words.contains("permission denied") && words.contains("owner to"), "{words}");

    let database = TestDatabase::create().await;
    let mut connection = database.connect().await;
    let older = "update pg_extension set extversion = '0.7.4' where extname = 'vector'";
    connection.execute(older).await.unwrap();
    let words = refusal(&database.url);
    assert!(words.contains("0.7.4") && words.contains("alter extension vector update"), "{words}");
}

#[tokio::test]
async fn a_schema_that_is_behind_is_brought_up_to_date() {
    let database = TestDatabase::provided().await;
    let first = Migrator::with_migrations(MIGRATOR.iter().take(1).cloned().collect());
    first.run(&mut database.connect_as_memser().await).await.unwrap();
    let mut connection = database.connect().await;
    connection.execute("insert into scopes (name, created_at) values ('user:1', now())").await.unwrap();
    assert_eq!(applied(&mut connection).await, 1);
    log_of_a_start(&database.url).await;
    assert_eq!(applied(&mut connection).await, i64::try_from(MIGRATOR.iter().count()).unwrap());
    let kept: String =
        sqlx::query_scalar("select name from scopes").fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, "user:1");
}

#[tokio::test]
async fn replicas_that_start_at_once_on_an_empty_database_all_start() {
    let database = TestDatabase::provided().await;
    let starts = (0..4).map(|_| TestApp::builder().on(database.clone()).start());
    let replicas = join_all(starts).await;
    replicas[0].admin().store("user:1", "Written by the first.").await;
    for replica in &replicas {
        assert_eq!(replica.admin().recall("user:1", "Who wrote this?").await, ["Written by the first."]);
    }
    let mut connection = database.connect().await;
    assert_eq!(applied(&mut connection).await, i64::try_from(MIGRATOR.iter().count()).unwrap());
    let spaces: i64 =
        sqlx::query_scalar("select count(*) from embedding_spaces").fetch_one(&mut connection).await.unwrap();
    assert_eq!(spaces, 1);
    join_all(replicas.into_iter().map(TestApp::stop)).await;
}

/// The lock is tried again and again: whoever waited for it inside Postgres would hold a snapshot, for whose end an
/// index that is built concurrently has to wait.
#[tokio::test]
async fn a_replica_that_waits_for_another_ones_migration_does_not_hold_it_up() {
    let database = TestDatabase::provided().await;
    let mut migrating = database.connect_as_memser().await;
    migrating.execute("select pg_advisory_lock(-1001)").await.unwrap();
    let options = database.url.parse().unwrap();
    let mut waiting = std::pin::pin!(bring_up_to_date(&options));
    let mut observer = database.connect().await;
    let tries = "select count(*) from pg_stat_activity
                  where datname = current_database() and query like 'select pg_try_advisory_lock%'";
    let migration = async {
        while sqlx::query_scalar::<_, i64>(tries).fetch_one(&mut observer).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        migrating.execute("create table big (n int)").await.unwrap();
        migrating.execute("create index concurrently on big (n)").await.unwrap();
        migrating.close().await.unwrap();
    };
    tokio::select! {
        biased;
        () = migration => {}
        early = &mut waiting => panic!("it did not wait: {early:?}"),
    }
    waiting.await.unwrap();
    assert!(applied(&mut observer).await > 0);
}
