//! How replicas tell each other of changes: after the commit, together, and only where somebody listens.

use std::time::Duration;

use memser::clock::Clock;
use memser::db::{Db, Pooler, Tx, memory, scope};
use memser::model::Scope;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::time::timeout;
use uuid::Uuid;

use crate::support::changes::{Listener, settled};
use crate::support::stream::Stream;
use crate::support::{ADMIN, TestApp, TestDatabase, bulk};

/// For what comes at once where it comes at all.
const PATIENCE: Duration = Duration::from_mins(1);

fn everything() -> Value {
    json!({ "resourcesListChanged": true, "resourceSubscriptions": [] })
}

#[tokio::test]
async fn many_memories_are_one_notification_without_their_names() {
    let app = TestApp::start().await;
    let mut listener = Listener::start(&app.database).await;
    let tea = app.admin().store("user:1", "Tea is in the left drawer").await;
    let told = listener.heard().await;
    assert_eq!((&told["listed"], &told["memories"]), (&json!(true), &json!([tea])));
    let contents: Vec<String> = (0..300).map(|n| format!("Entry {n} of the log")).collect();
    bulk::store(&app, "user:1", &contents, 1_024).await;
    let gone = app.admin().ok("forget_memory", json!({ "scope": "user:1", "all": true })).await;
    assert_eq!(gone["forgotten"]["episodic"], 301, "{gone}");
    let told = listener.heard().await;
    assert_eq!((&told["listed"], &told["memories"]), (&json!(true), &Value::Null));
    app.stop().await;
}

#[tokio::test]
async fn nothing_is_told_where_nobody_listens() {
    let app = TestApp::start().await;
    let mut listener = Listener::unknown(&app.database).await;
    app.admin().store("user:1", "Tea is in the left drawer").await;
    // Now at the latest everything is told that ever will be.
    app.stop().await;
    sqlx::query("select pg_notify('memser_changes', '\"the end\"')").execute(&mut listener.0).await.unwrap();
    assert_eq!(listener.heard().await, "the end");
}

#[tokio::test]
async fn what_is_committed_just_before_a_shutdown_is_told() {
    let app = TestApp::start().await;
    let mut listener = Listener::start(&app.database).await;
    let mut stored = Vec::new();
    // The first is told at once, and those after it wait for the next time.
    for number in 0..5 {
        stored.push(app.admin().store(&format!("user:{number}"), "Tea is in the left drawer").await);
    }
    app.stop().await;
    while !stored.is_empty() {
        let told = listener.heard().await;
        let ids = told["memories"].as_array().unwrap();
        stored.retain(|id| !ids.contains(&json!(id)));
    }
}

#[tokio::test]
async fn what_cannot_be_told_is_told_later() {
    let app = TestApp::start().await;
    let id = app.admin().store("user:1", "Tea is in the left drawer").await;
    let database = app.database.clone();
    let now = Clock::Fixed(app.clock.clone()).now();
    app.stop().await;
    let mut listener = Listener::start(&database).await;
    let mut test = database.connect().await;
    sqlx::query("revoke execute on function pg_notify from public").execute(&mut test).await.unwrap();
    // With one connection everybody takes turns.
    let db = Db::new(database.url.parse().unwrap(), 1, Pooler::None);
    let scope = scope::find(&db, &Scope::parse("user:1").unwrap()).await.unwrap().unwrap();
    let mut tx = Tx::for_scope(&db, scope).await.unwrap();
    memory::support(&mut tx, scope, id.parse::<Uuid>().unwrap(), None, 0.1, now).await.unwrap();
    tx.commit().await.unwrap();
    // Between the two at the latest it is tried for the first time.
    for _ in 0..2 {
        db.tell_everything_changed().await.unwrap_err();
    }
    sqlx::query("grant execute on function pg_notify to public").execute(&mut test).await.unwrap();
    assert_eq!(listener.heard().await["memories"], json!([id]));
    db.close().await;
}

/// Makes the commit of every changed memory wait for the test.
async fn held_up(database: &TestDatabase) -> PgConnection {
    let mut connection = database.connect().await;
    sqlx::raw_sql(
        "create function wait() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(77); return new; end $$;
         create constraint trigger wait after update on memories deferrable initially deferred
            for each row execute function wait();
         select pg_advisory_lock(77)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection
}

#[tokio::test]
async fn a_caller_that_goes_away_during_the_commit_leaves_nothing_untold() {
    let app = TestApp::start().await;
    let id = app.admin().store("user:1", "Tea is in the left drawer").await;
    let uri = format!("memory:///user%3A1/{id}");
    settled(&app).await;
    let (mut stream, _) = Stream::open(&app, ADMIN, json!({ "resourceSubscriptions": [uri] })).await;
    let mut test = held_up(&app.database).await;
    let db = Db::new(app.database.url.parse().unwrap(), 2, Pooler::None);
    let scope = scope::find(&db, &Scope::parse("user:1").unwrap()).await.unwrap().unwrap();
    let now = Clock::Fixed(app.clock.clone()).now();
    let mut tx = Tx::for_scope(&db, scope).await.unwrap();
    memory::support(&mut tx, scope, id.parse::<Uuid>().unwrap(), None, 0.1, now).await.unwrap();
    let waiting = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                    where locktype = 'advisory' and objid = 77 and not granted and datname = current_database()";
    let is_waiting = async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut test).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        outcome = tx.commit() => panic!("it was not held up: {outcome:?}"),
        is_waiting = timeout(PATIENCE, is_waiting) => is_waiting.expect("the commit waits"),
    }
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(&mut test).await.unwrap();
    assert_eq!(timeout(PATIENCE, stream.told()).await.expect("it is told"), uri);
    db.close().await;
    test.close().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn a_replica_that_starts_lets_everybody_read_again() {
    let first = TestApp::start().await;
    let (mut stream, _) = Stream::open(&first, ADMIN, everything()).await;
    let second = TestApp::builder().beside(&first).start().await;
    assert_eq!(timeout(PATIENCE, stream.told()).await.expect("it is told"), "list");
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_replica_listens_only_while_somebody_subscribes() {
    let app = TestApp::start().await;
    let mut database = app.database.connect().await;
    let listening = "select count(*) from pg_stat_activity
                      where application_name = 'memser changes' and datname = current_database()";
    for _ in 0..2 {
        let (mut stream, _) = Stream::open(&app, ADMIN, everything()).await;
        assert_eq!(sqlx::query_scalar::<_, i64>(listening).fetch_one(&mut database).await.unwrap(), 1);
        app.admin().store("user:1", &format!("Note {}", Uuid::new_v4())).await;
        assert_eq!(timeout(PATIENCE, stream.told()).await.expect("it is told"), "list");
        drop(stream);
        // It looks whether it is left alone whenever something is told.
        let left = async {
            while sqlx::query_scalar::<_, i64>(listening).fetch_one(&mut database).await.unwrap() > 0 {
                app.admin().store("user:2", "Tea is in the left drawer").await;
            }
        };
        timeout(PATIENCE, left).await.expect("the connection is given back");
    }
    database.close().await.unwrap();
    app.stop().await;
}
