//! Schemas that are behind, ahead, or being changed by somebody else: real starts on real databases.

use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use memser::db::MIGRATOR;
use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::migrate::Migrator;
use sqlx::{Executor, PgConnection};

use crate::support::process::{Running, complaint, memser, output};
use crate::support::{ADMIN, TestApp, TestDatabase};

/// A database whose schema is as the migration of this number left it.
async fn database_at(last: i64) -> TestDatabase {
    let database = TestDatabase::provided().await;
    let until = MIGRATOR.iter().filter(|migration| migration.version <= last).cloned().collect();
    Migrator::with_migrations(until).run(&mut database.connect_as_memser().await).await.unwrap();
    database
}

async fn applied(connection: &mut PgConnection) -> Vec<i64> {
    sqlx::query_scalar("select version from _sqlx_migrations where success order by version")
        .fetch_all(connection)
        .await
        .unwrap()
}

fn known() -> Vec<i64> {
    MIGRATOR.iter().map(|migration| migration.version).collect()
}

fn variables(database: &TestDatabase) -> [(&str, &str); 2] {
    [("DATABASE_URL", &database.url), ("MEMSER_TOKEN", ADMIN)]
}

async fn serve(arguments: &[&str], database: &TestDatabase) -> Running {
    let command = memser(arguments, &variables(database));
    tokio::task::spawn_blocking(|| Running::run(command)).await.unwrap()
}

async fn stop(running: Running) -> String {
    running.signal(Signal::SIGTERM);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
    log
}

/// Whether somebody waits for a table of this database.
const IS_WAITING: &str = "select exists (select from pg_stat_activity
                                          where datname = current_database() and wait_event_type = 'Lock')";

async fn until_somebody_waits(observer: &mut PgConnection) {
    for _ in 0..3_000 {
        if sqlx::query_scalar(IS_WAITING).fetch_one(&mut *observer).await.unwrap() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody waits");
}

#[tokio::test]
async fn three_processes_that_start_at_once_on_an_empty_database_all_serve() {
    let database = TestDatabase::provided().await;
    let running = join_all((0..3).map(|_| serve(&["serve"], &database))).await;
    running[0].client(ADMIN).store("user:1", "Written by the first.").await;
    for running in &running {
        assert_eq!(
            running.client(ADMIN).recall("user:1", "Who wrote this?").await,
            ["Written by the first."]
        );
    }
    assert_eq!(applied(&mut database.connect().await).await, known());
    join_all(running.into_iter().map(stop)).await;
}

#[tokio::test]
async fn a_start_that_is_not_to_migrate_refuses_a_schema_that_is_behind_and_changes_nothing() {
    for (last, shown) in [(0, "migration 0 of"), (7, "migration 7 of")] {
        let database = if last == 0 { TestDatabase::provided().await } else { database_at(last).await };
        let words = complaint(&["serve", "--no-migrate"], &variables(&database));
        assert!(words.contains(shown) && words.contains("memser migrate"), "{words}");
        let by_setting = [&variables(&database)[..], &[("MEMSER_MIGRATE", "false")]].concat();
        for arguments in [&["serve"][..], &["jobs", "run", "prune"]] {
            let words = complaint(arguments, &by_setting);
            assert!(words.contains(shown) && words.contains("MEMSER_MIGRATE"), "{words}");
        }
        let mut connection = database.connect().await;
        let tables = "select count(*) from pg_class where relname = '_sqlx_migrations'";
        let made: i64 = sqlx::query_scalar(tables).fetch_one(&mut connection).await.unwrap();
        assert_eq!(made > 0, last > 0);
        let migrated = output(&["migrate"], &by_setting);
        assert_eq!(migrated.status.code(), Some(0), "{migrated:?}");
        assert_eq!(applied(&mut connection).await, known());
        let running = serve(&["serve", "--no-migrate"], &database).await;
        running.client(ADMIN).store("user:1", "It serves.").await;
        stop(running).await;
    }
}

/// What the next release may do to a database while replicas of this one still run and start.
const FUTURE: &str = "
    alter table memories add column mood text;
    alter table job_runs add column replica text not null default 'unknown';
    create table moods (scope_id bigint not null references scopes, mood text, primary key (scope_id, mood));
    create index memories_by_mood on memories (scope_id, mood);
    insert into _sqlx_migrations (version, description, success, checksum, execution_time)
    values (9999, 'of the future', true, '', 0)";

#[tokio::test]
async fn a_memser_goes_on_with_a_newer_schema_that_suits_it_and_refuses_one_that_does_not() {
    let database = TestDatabase::create().await;
    let mut connection = database.connect_as_memser().await;
    connection.execute(FUTURE).await.unwrap();
    let migrated = output(&["migrate"], &variables(&database));
    assert_eq!(migrated.status.code(), Some(0), "{migrated:?}");
    for arguments in [&["serve"][..], &["serve", "--no-migrate"]] {
        let running = serve(arguments, &database).await;
        let client = running.client(ADMIN);
        let kept = client.store("user:1", "The tap in the kitchen drips.").await;
        assert_eq!(client.recall("user:1", "Which tap drips?").await, ["The tap in the kitchen drips."]);
        client.ok("forget_memory", json!({ "scope": "user:1", "memory_id": kept })).await;
        client.ok("consolidate_memories", json!({ "scope": "user:1" })).await;
        assert!(stop(running).await.contains("newer than this memser and suits it"));
    }
    assert_eq!(applied(&mut connection).await, [known(), vec![9999]].concat());
    let examined = output(&["doctor"], &variables(&database));
    assert_eq!(examined.status.code(), Some(0), "{examined:?}");
    let words = String::from_utf8(examined.stdout).unwrap();
    assert!(words.contains("ok      schema: at migration 9999, newer than this memser"), "{words}");

    connection.execute("update installation set suits_from = 9999").await.unwrap();
    for arguments in [&["serve"][..], &["serve", "--no-migrate"], &["migrate"]] {
        let words = complaint(arguments, &variables(&database));
        for part in
            ["DATABASE_URL: ", "migration 9999", "newer than this memser", "start a memser that is as new"]
        {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    let examined = output(&["doctor"], &variables(&database));
    assert_eq!(examined.status.code(), Some(1), "{examined:?}");
    assert!(String::from_utf8(examined.stdout).unwrap().contains("newer than this memser"));

    let database = database_at(7).await;
    let mut connection = database.connect_as_memser().await;
    connection.execute("update _sqlx_migrations set checksum = 'other' where version = 7").await.unwrap();
    let words = complaint(&["migrate"], &variables(&database));
    assert!(words.contains("migration 7") && words.contains("modified memser"), "{words}");
}

/// The migration that changes `memories` waits for whoever reads it; when it is killed there, it has changed nothing, and
/// whoever comes next begins where it began.
#[tokio::test]
async fn a_migration_that_is_killed_in_the_middle_has_changed_nothing_and_the_next_start_goes_on() {
    let database = database_at(3).await;
    let mut reader = database.connect().await;
    reader.execute("begin; lock table memories in access share mode").await.unwrap();
    let mut observer = database.connect().await;
    let mut child = memser(&["migrate"], &variables(&database)).stderr(Stdio::null()).spawn().unwrap();
    until_somebody_waits(&mut observer).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(applied(&mut observer).await, [1, 2, 3]);
    reader.execute("rollback").await.unwrap();
    let running = serve(&["serve"], &database).await;
    running.client(ADMIN).store("user:1", "It serves.").await;
    stop(running).await;
    assert_eq!(applied(&mut observer).await, known());
}

#[tokio::test]
async fn a_migration_that_waits_for_a_table_lets_others_use_it_meanwhile() {
    let database = database_at(6).await;
    let mut long = database.connect().await;
    long.execute("begin; lock table scopes in access share mode").await.unwrap();
    let mut observer = database.connect().await;
    let mut migration = memser(&["migrate"], &variables(&database)).stderr(Stdio::null()).spawn().unwrap();
    until_somebody_waits(&mut observer).await;
    // Behind the migration, which would have the table to itself, and nobody could do anything until the reader ends.
    let read = observer.fetch_one("select count(*) from scopes");
    tokio::time::timeout(Duration::from_mins(1), read).await.expect("all wait for the migration").unwrap();
    assert!(migration.try_wait().unwrap().is_none(), "it did not wait");
    long.execute("rollback").await.unwrap();
    let status = tokio::task::spawn_blocking(move || migration.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(applied(&mut observer).await, known());
    let app = TestApp::builder().on(database).start().await;
    app.admin().store("user:1", "It serves.").await;
    app.stop().await;
}
