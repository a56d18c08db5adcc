//! `memser export` and `memser import` as a person runs them: files, exit codes, a kill in the middle.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use sqlx::PgConnection;

use crate::support::process::{Running, complaint, data_folder, memser, output};
use crate::support::{ADMIN, TestDatabase};

fn settings(database: &TestDatabase) -> [(&'static str, String); 1] {
    [("DATABASE_URL", database.url.clone())]
}

fn print(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The official memory server's file, with so many observations.
fn observations(count: usize) -> String {
    (0..count)
        .map(|n| {
            let line = json!({ "type": "entity", "name": format!("thing {n}"), "entityType": "thing", "observations": ["is here"] });
            line.to_string() + "\n"
        })
        .collect()
}

async fn count(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select count(*) from memories").fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn memories_move_from_one_embedded_memser_to_another_also_while_they_run() {
    let (first, second, files) = (data_folder(), data_folder(), tempfile::tempdir().unwrap());
    let file = files.path().join("memories.jsonl");
    let path = file.to_str().unwrap();
    let token = [("MEMSER_TOKEN", ADMIN)];
    let running = Running::start(first.path(), &token);
    running.client(ADMIN).store("user:1", "Ravi prefers tea over coffee.").await;
    let first_data = first.path().to_str().unwrap();
    let written = output(&["export", "--out", path], &[("MEMSER_DATA_DIR", first_data)]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    let told = String::from_utf8(written.stdout).unwrap();
    assert_eq!(told, format!("{path}: 1 memories and 0 working memories of 1 scopes\n"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(print(files.path()), ["memories.jsonl"]);
    let printed = output(&["export", "--scope", "user:*"], &[("MEMSER_DATA_DIR", first_data)]);
    assert_eq!(
        String::from_utf8(printed.stdout).unwrap().lines().count(),
        fs::read_to_string(&file).unwrap().lines().count()
    );
    drop(running);

    let second_data = second.path().to_str().unwrap();
    let read = output(&["import", path], &[("MEMSER_DATA_DIR", second_data)]);
    let told = String::from_utf8(read.stdout).unwrap();
    assert_eq!(read.status.code(), Some(0), "{told}");
    assert!(
        told.contains("a file of memser") && told.contains("1 stored") && told.contains("by meaning"),
        "{told}"
    );
    let running = Running::start(second.path(), &token);
    assert_eq!(running.client(ADMIN).recall("user:1", "tea").await, ["Ravi prefers tea over coffee."]);
}

#[tokio::test]
async fn what_cannot_go_in_is_told_with_the_way_out() {
    let database = TestDatabase::create().await;
    let settings = settings(&database);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let graph = write("graph", &observations(2));
    let complaint = |arguments: &[&str]| complaint(arguments, &settings);
    assert!(complaint(&["import", &graph]).contains("--scope user:42"));
    assert!(complaint(&["import", "/nowhere/at/all"]).contains("/nowhere/at/all: No such file"));
    assert!(complaint(&["import", &write("words", "hello")]).contains("--format"));
    assert!(complaint(&["import", &write("zip", "PK\x03\x04")]).contains("unpack"));
    assert!(complaint(&["import", &graph, "--format", "mem1"]).contains("mem0"));
    let half = write("half", &(observations(1) + "{\"type\":\"entity\""));
    let partly = output(&["import", &half, "--scope", "user:1"], &settings);
    let (told, said) = (String::from_utf8(partly.stdout).unwrap(), String::from_utf8(partly.stderr).unwrap());
    assert_eq!(partly.status.code(), Some(1));
    assert!(told.contains("1 refused") && told.contains("line 2: it is no JSON"), "{told}");
    assert!(said.contains("not everything went in"), "{said}");
    let nowhere = files.path().join("missing/out.jsonl");
    assert!(complaint(&["export", "--out", nowhere.to_str().unwrap()]).contains("cannot write"));
    let wrong = output(&["export", "--scope", "a*b"], &settings);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

#[tokio::test]
async fn an_import_that_is_killed_in_the_middle_goes_on_where_it_was() {
    let database = TestDatabase::create().await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("memory.jsonl");
    fs::write(&file, observations(3_500)).unwrap();
    let arguments = ["import", file.to_str().unwrap(), "--scope", "user:1"];
    let settings = settings(&database);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // In the third transaction it waits for a lock that the test has.
    let mut connection = database.connect().await;
    sqlx::raw_sql(
        "create function wait() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(77); return new; end $$;
         create trigger wait before insert on memories for each row when (new.content = 'thing 2500: is here')
            execute function wait();
         select pg_advisory_lock(77)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let mut child =
        memser(&arguments, &settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let waits = "select exists (select from pg_locks l join pg_database d on d.oid = l.database
                    where locktype = 'advisory' and objid = 77 and not granted and datname = current_database())";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut connection).await.unwrap() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the kill");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What is left of it in Postgres goes on, finds nobody, and ends; the trigger goes after that.
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(&mut connection).await.unwrap();
    sqlx::raw_sql("drop trigger wait on memories").execute(&mut connection).await.unwrap();
    let second = output(&arguments, &settings);
    let told = String::from_utf8(second.stdout).unwrap();
    assert_eq!(second.status.code(), Some(0), "{told}");
    assert!(told.contains("3500 read"), "{told}");
    assert_eq!(count(&mut connection).await, 3_500);
    let there =
        told.lines().find(|line| line.contains("there already")).expect("nothing was kept of the first run");
    assert!(there.trim().starts_with("2000") || there.trim().starts_with("3000"), "{told}");
    let pending: i64 = sqlx::query_scalar(
        "select count(*) from memories where id not in (select memory_id from memory_embedding)",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(pending, 0);
}

#[tokio::test]
async fn an_export_that_is_stopped_leaves_no_file() {
    let database = TestDatabase::create().await;
    let files = tempfile::tempdir().unwrap();
    let out = files.path().join("memories.jsonl");
    fs::write(&out, "the one before").unwrap();
    let mut connection = database.connect().await;
    sqlx::raw_sql("begin; lock table scopes in access exclusive mode")
        .execute(&mut connection)
        .await
        .unwrap();
    let settings = settings(&database);
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut child = memser(&["export", "--out", out.to_str().unwrap()], &settings)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while print(files.path()).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(print(files.path()), ["memories.jsonl"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "the one before");
}

/// What somebody else put where the file is begun: one that others can read, and a link to a file of this user.
#[tokio::test]
async fn an_export_goes_into_no_file_that_was_there_before() {
    let database = TestDatabase::create().await;
    let folder = tempfile::tempdir().unwrap();
    let [out, partial, other] =
        ["out.jsonl", "out.jsonl.partial", "other"].map(|name| folder.path().join(name));
    fs::write(&other, "kept").unwrap();
    for link in [false, true] {
        if link {
            symlink(&other, &partial).unwrap();
        } else {
            fs::write(&partial, "").unwrap();
            fs::set_permissions(&partial, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let written = output(&["export", "--out", out.to_str().unwrap()], &[("DATABASE_URL", &database.url)]);
        assert_eq!(written.status.code(), Some(0), "{written:?}");
        let made = fs::symlink_metadata(&out).unwrap();
        assert!(made.is_file(), "{link}");
        assert_eq!(made.permissions().mode() & 0o777, 0o600, "{link}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    }
}
