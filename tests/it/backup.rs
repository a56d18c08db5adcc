//! `memser backup` and `memser restore`, as a person runs them: what comes back is what was there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::support::client::contents;
use crate::support::process::{Running, complaint, data_folder, memser, output};
use crate::support::{ADMIN, Client, TestDatabase};

const TOKEN: (&str, &str) = ("MEMSER_TOKEN", ADMIN);

fn start(data: &Path) -> Running {
    Running::start(data, &[TOKEN])
}

async fn stop(running: Running) {
    running.signal(Signal::SIGTERM);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
}

fn folder_of(data: &Path) -> [(&str, &str); 1] {
    [("MEMSER_DATA_DIR", data.to_str().unwrap())]
}

/// Runs a command that has to succeed on the data folder; gives what it printed.
fn run(arguments: &[&str], data: &Path) -> String {
    let output = output(arguments, &folder_of(data));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A connection to the private Postgres that sees everything.
async fn superuser(data: &Path) -> PgConnection {
    let socket = data.join("run");
    let options = PgConnectOptions::new_without_pgpass().socket(socket).username("postgres");
    options.database("memser").connect().await.unwrap()
}

/// Memories of every kind: with tags, corrected, in conflict, consolidated by nobody, for a while only.
async fn remember(client: &Client) {
    for (content, more) in [
        ("Anna moved to Lisbon in March 2025.", json!({ "tags": ["people"], "source": "chat" })),
        ("The launch of Zephyrine is planned for October.", json!({ "metadata": { "page": 7 } })),
        ("The staging server listens on port 8080", json!({ "occurred_at": "2026-01-01T00:00:00Z" })),
        ("The staging server listens on port 8081", json!({ "occurred_at": "2026-01-02T00:00:00Z" })),
        ("The staging server listens on port 8082", json!({ "on_conflict": "flag" })),
        ("The guest leaves on Friday.", json!({ "ttl_seconds": 86_400 })),
        ("Заметка: ключ под третьим камнем — 鍵は石の下", json!({})),
    ] {
        let mut arguments = json!({ "scope": "user:1", "content": content });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.ok("store_memory", arguments).await;
    }
    client.store("user:2", "A memory of somebody else.").await;
}

/// Everything that the tools tell of two scopes, but for scores, which change as time goes by.
async fn told(client: &Client) -> Vec<Value> {
    let mut all = Vec::new();
    for scope in ["user:1", "user:2"] {
        for status in ["active", "superseded", "conflicted", "pending"] {
            let asked = json!({ "scope": scope, "status": status, "limit": 100 });
            all.push(client.ok("list_memories", asked).await);
        }
        for query in ["Where does Anna live?", "staging server port", "Zephyrine", "камень", "鍵"] {
            all.push(json!(client.recall(scope, query).await));
        }
    }
    all
}

#[tokio::test]
async fn a_memser_that_runs_is_backed_up_and_a_restored_one_answers_the_same() {
    let (data, backups, other) = (data_folder(), tempfile::tempdir().unwrap(), data_folder());
    let running = start(data.path());
    let client = running.client(ADMIN);
    remember(&client).await;
    let before = told(&client).await;
    assert!(before.iter().any(|answer| answer.to_string().contains("8080")), "{before:?}");

    // One who stores all the time: the backup is of one moment, and the store goes on.
    client.store("log", "Entry 0 of the log, about matter 0").await;
    let (finish, mut finished) = oneshot::channel::<()>();
    let writer = tokio::spawn(async move {
        let mut stored = 1;
        while finished.try_recv().is_err() {
            client.store("log", &format!("Entry {stored} of the log, about matter {}", stored * 7)).await;
            stored += 1;
        }
        stored
    });
    let file = backups.path().join("memser.dump");
    let (printed, stored) = {
        let (data, file) = (data.path().to_owned(), file.clone());
        let backup = move || run(&["backup", file.to_str().unwrap()], &data);
        let printed = tokio::task::spawn_blocking(backup).await.unwrap();
        finish.send(()).unwrap();
        (printed, writer.await.unwrap())
    };
    assert_eq!(printed.trim(), file.to_str().unwrap());
    assert_eq!(names(backups.path()), ["memser.dump"]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    stop(running).await;

    run(&["restore", file.to_str().unwrap()], other.path());
    assert!(!other.path().join("pg.restoring").exists() && !other.path().join("pg.restored").exists());
    let restored = start(other.path());
    let client = restored.client(ADMIN);
    assert_eq!(told(&client).await, before);
    let log = client.ok("list_memories", json!({ "scope": "log", "limit": 100, "order": "oldest" })).await;
    let entries = contents(&log);
    assert!(entries.len() <= stored && !entries.is_empty(), "{} of {stored}", entries.len());
    for (at, entry) in entries.iter().enumerate() {
        assert!(entry.starts_with(&format!("Entry {at} of")), "a gap before {entry}");
    }
    // And it goes on as the one before would have.
    let again = json!({ "scope": "user:1", "content": "Anna moved to Lisbon in March 2025." });
    assert_eq!(client.ok("store_memory", again).await["outcome"], "duplicate");
    let mut database = superuser(other.path()).await;
    let read_by_index: bool =
        sqlx::query_scalar("select relallvisible > 0 from pg_class where relname = 'memory_term'")
            .fetch_one(&mut database)
            .await
            .unwrap();
    assert!(read_by_index, "recall would visit the table for each word");
    drop(database);
    stop(restored).await;
}

#[tokio::test]
async fn a_stopped_memser_is_backed_up_and_restored_over_only_when_told() {
    let (data, backups) = (data_folder(), tempfile::tempdir().unwrap());
    let words = complaint(&["backup", backups.path().to_str().unwrap()], &folder_of(data.path()));
    assert!(words.contains("there is no database") && words.contains("MEMSER_DATA_DIR"), "{words}");
    assert_eq!(names(data.path()), Vec::<String>::new(), "a backup makes nothing in the data folder");

    let running = start(data.path());
    running.client(ADMIN).store("user:1", "Known to the backup.").await;
    stop(running).await;
    let printed = run(&["backup", backups.path().to_str().unwrap()], data.path());
    let file = PathBuf::from(printed.trim());
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("memser-2") && name.ends_with("Z.dump"), "{name}");
    assert!(!data.path().join("pg/postmaster.pid").exists(), "Postgres still runs");
    let file = file.to_str().unwrap();
    let words = complaint(&["backup", file], &folder_of(data.path()));
    assert!(words.contains("exists already"), "{words}");

    let running = start(data.path());
    running.client(ADMIN).store("user:1", "Told after the backup.").await;
    for arguments in [&["restore", file][..], &["restore", file, "--replace"]] {
        let words = complaint(arguments, &folder_of(data.path()));
        assert!(words.contains("another memser"), "{words}");
    }
    stop(running).await;
    let words = complaint(&["restore", file], &folder_of(data.path()));
    assert!(words.contains("holds a database already") && words.contains("--replace"), "{words}");
    let gone = backups.path().join("gone");
    let words = complaint(&["restore", gone.to_str().unwrap(), "--replace"], &folder_of(data.path()));
    assert!(words.contains("cannot read") && words.contains("gone"), "{words}");
    let running = start(data.path());
    let both = running.client(ADMIN).ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&both).len(), 2, "{both}");
    stop(running).await;

    let printed = run(&["restore", file, "--replace"], data.path());
    let former = names(data.path()).into_iter().find(|name| name.starts_with("pg.2")).unwrap();
    assert!(printed.contains(&former), "{printed}");
    let running = start(data.path());
    let listed = running.client(ADMIN).ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&listed), ["Known to the backup."]);
    stop(running).await;
    // What was put aside is whole.
    fs::rename(data.path().join("pg"), data.path().join("pg.away")).unwrap();
    fs::rename(data.path().join(former), data.path().join("pg")).unwrap();
    let running = start(data.path());
    let listed = running.client(ADMIN).ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&listed).len(), 2, "{listed}");
    stop(running).await;
}

/// A memser with a memory, whose backups wait until `held` is closed.
async fn held_up() -> (TempDir, Running, PgConnection) {
    let data = data_folder();
    let running = start(data.path());
    running.client(ADMIN).store("user:1", "Worth a backup.").await;
    let mut held = superuser(data.path()).await;
    sqlx::raw_sql("begin; lock table memories in access exclusive mode").execute(&mut held).await.unwrap();
    (data, running, held)
}

/// Looks at a condition again and again, for as long as a loaded machine may take.
async fn wait_until(observer: &mut PgConnection, condition: &str) -> bool {
    for _ in 0..3_000 {
        let asked = AssertSqlSafe(format!("select {condition}"));
        if sqlx::query_scalar(asked).fetch_one(&mut *observer).await.unwrap() {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    false
}

/// Ends every session of a backup; that of one that was killed waits on until it is told.
async fn end_sessions(observer: &mut PgConnection) {
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pg_dump'";
    sqlx::raw_sql(end).execute(&mut *observer).await.unwrap();
    let are_gone = "not exists (select from pg_stat_activity where application_name = 'pg_dump')";
    assert!(wait_until(observer, are_gone).await, "a session does not end");
}

/// Starts a backup and waits until it waits.
async fn waiting_backup(data: &Path, file: &Path, observer: &mut PgConnection) -> Child {
    end_sessions(observer).await;
    let mut command = memser(&["backup", file.to_str().unwrap()], &folder_of(data));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waits = "exists (select from pg_stat_activity
                          where application_name = 'pg_dump' and wait_event_type = 'Lock')";
    if !wait_until(observer, waits).await {
        child.kill().unwrap();
        panic!("the backup never waited: {:?}", child.wait_with_output());
    }
    child
}

#[tokio::test]
async fn a_backup_that_is_cut_off_leaves_nothing_that_looks_like_one() {
    let backups = tempfile::tempdir().unwrap();
    let file = backups.path().join("memser.dump");
    let (data, running, mut held) = held_up().await;
    let mut observer = superuser(data.path()).await;
    let child = waiting_backup(data.path(), &file, &mut observer).await;
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("stopped before its end"), "{ended:?}");
    assert_eq!(names(backups.path()), Vec::<String>::new());

    let child = waiting_backup(data.path(), &file, &mut observer).await;
    end_sessions(&mut observer).await;
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("pg_dump failed"), "{ended:?}");
    assert_eq!(names(backups.path()), Vec::<String>::new());

    let mut child = waiting_backup(data.path(), &file, &mut observer).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let left = names(backups.path());
    assert!(left.len() == 1 && left[0].starts_with('.') && left[0].ends_with(".partial"), "{left:?}");

    // The memser that runs has seen nothing of it, and the next backup is one.
    sqlx::raw_sql("rollback").execute(&mut held).await.unwrap();
    drop((held, observer));
    run(&["backup", file.to_str().unwrap()], data.path());
    assert!(file.exists());
    stop(running).await;
}

#[tokio::test]
async fn a_restore_that_fails_or_is_cut_off_leaves_the_former_database_in_its_place() {
    let (data, backups) = (data_folder(), tempfile::tempdir().unwrap());
    let running = start(data.path());
    running.client(ADMIN).store("user:1", "Known to the backup.").await;
    let file = backups.path().join("memser.dump");
    run(&["backup", file.to_str().unwrap()], data.path());
    running.client(ADMIN).store("user:1", "Told after the backup.").await;
    stop(running).await;

    let whole = fs::read(&file).unwrap();
    let broken = backups.path().join("broken.dump");
    for content in [&whole[..whole.len() / 2], &whole[..whole.len() * 19 / 20], b"no archive at all"] {
        fs::write(&broken, content).unwrap();
        let words = complaint(&["restore", broken.to_str().unwrap(), "--replace"], &folder_of(data.path()));
        assert!(words.contains("pg_restore failed") && words.contains("pg_restore: "), "{words}");
        assert!(!words.contains("Known to the backup"), "{words}");
        assert!(!data.path().join("pg.restoring/postmaster.pid").exists(), "Postgres still runs");
    }
    // As a killed one leaves it.
    assert!(data.path().join("pg.restoring").exists());
    let running = start(data.path());
    let listed = running.client(ADMIN).ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&listed).len(), 2, "{listed}");
    stop(running).await;

    // As one leaves it that was killed when the former database was out of its place.
    fs::rename(data.path().join("pg"), data.path().join("pg.20260101T000000Z")).unwrap();
    fs::create_dir(data.path().join("made")).unwrap();
    run(&["restore", file.to_str().unwrap()], &data.path().join("made"));
    fs::rename(data.path().join("made/pg"), data.path().join("pg.restored")).unwrap();
    let running = start(data.path());
    let listed = running.client(ADMIN).ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&listed), ["Known to the backup."]);
    stop(running).await;
    run(&["restore", file.to_str().unwrap(), "--replace"], data.path());
    assert!(!data.path().join("pg.restoring").exists());
}

#[tokio::test]
async fn somebody_elses_postgres_is_left_to_its_own_tools() {
    let database = TestDatabase::create().await;
    for arguments in [["backup", "/tmp"], ["restore", "/dev/null"]] {
        let words = complaint(&arguments, &[("DATABASE_URL", &database.url)]);
        assert!(words.contains("DATABASE_URL") && words.contains("pg_dump"), "{words}");
    }
}
