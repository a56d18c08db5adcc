//! The end of a real process: what is under way is answered, within a limit, and nothing is held afterwards.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::process::{Running, memser};
use crate::support::stream::Stream;
use crate::support::{ADMIN, TestDatabase};

/// Looks at a condition again and again, for as long as a loaded machine may take.
async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

async fn serve(database: &TestDatabase, limit: &str) -> Running {
    let variables =
        [("DATABASE_URL", &*database.url), ("MEMSER_TOKEN", ADMIN), ("MEMSER_SHUTDOWN_SECONDS", limit)];
    let command = memser(&["serve"], &variables);
    tokio::task::spawn_blocking(|| Running::run(command)).await.unwrap()
}

/// A memser with a store under way that waits for the lock of its scope, which the connection holds.
async fn with_a_store_under_way(limit: &str) -> (TestDatabase, Running, PgConnection, JoinHandle<Value>) {
    let database = TestDatabase::create().await;
    let running = serve(&database, limit).await;
    let client = running.client(ADMIN);
    client.store("user:1", "The first.").await;
    let mut held = database.connect().await;
    sqlx::raw_sql("select pg_advisory_lock(scope_id) from scopes").execute(&mut held).await.unwrap();
    let store = tokio::spawn(async move {
        client.call("store_memory", json!({ "scope": "user:1", "content": "On its way." })).await.structure
    });
    wait_until("the store waits", async || {
        let waits =
            "select exists (select from pg_locks where locktype = 'advisory' and not granted and database =
                         (select oid from pg_database where datname = current_database()))";
        sqlx::query_scalar(waits).fetch_one(&mut held).await.unwrap()
    })
    .await;
    (database, running, held, store)
}

async fn contents(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    sqlx::query_scalar("select content from memories order by id").fetch_all(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_store_under_way_is_finished_and_answered_while_nobody_new_is_let_in() {
    let (database, running, held, store) = with_a_store_under_way("60").await;
    let address = running.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
    running.signal(Signal::SIGTERM);
    wait_until("the door is shut", async || TcpStream::connect(&address).await.is_err()).await;
    assert!(!store.is_finished(), "the store waits for a lock that it cannot have");
    drop(held);
    let answer = store.await.unwrap();
    assert_eq!(answer["outcome"], "stored", "{answer}");
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(contents(&database).await, ["The first.", "On its way."]);
}

#[tokio::test]
async fn a_store_that_hangs_is_answered_at_the_limit_and_the_process_ends() {
    let (database, running, mut held, store) = with_a_store_under_way("1").await;
    running.signal(Signal::SIGTERM);
    let answer = store.await.unwrap();
    assert_eq!(answer["error"]["code"], "unavailable", "{answer}");
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("calls that took longer than 1 s were stopped"), "{log}");
    // Whatever Postgres does about its side later, it keeps nothing of what was refused.
    sqlx::raw_sql("select pg_advisory_unlock_all()").execute(&mut held).await.unwrap();
    wait_until("its session has ended", async || {
        let is_gone = "select not exists (select from pg_stat_activity
                                           where datname = current_database() and pid <> pg_backend_pid())";
        sqlx::query_scalar(is_gone).fetch_one(&mut held).await.unwrap()
    })
    .await;
    assert_eq!(contents(&database).await, ["The first."]);
}

#[tokio::test]
async fn an_open_stream_is_told_of_the_end_and_does_not_hold_it_up() {
    let database = TestDatabase::create().await;
    let running = serve(&database, "60").await;
    let (stream, _) = Stream::at(&running.url, ADMIN, json!({ "resourcesListChanged": true })).await;
    running.signal(Signal::SIGTERM);
    assert!(stream.ended().await);
    let (code, _, log) = running.end().await;
    assert_eq!(code, Some(0), "{log}");
}
