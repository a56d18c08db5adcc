//! Streams of changes: who is told of which, from whichever replica, and how they end.

use memser::clock::Clock;
use memser::db::{Db, Pooler, Tx, memory, scope};
use memser::model::Scope;
use serde_json::{Value, json};
use sha2::Digest;
use sqlx::Connection;
use uuid::Uuid;

use crate::support::changes::settled;
use crate::support::stream::{Stream, ask};
use crate::support::{ADMIN, TestApp, TestDatabase};

const READER: &str = "reader-token-of-user-one";

fn uri(scope: &str, id: &str) -> String {
    format!("memory:///{}/{id}", scope.replace(':', "%3A"))
}

fn watching(list: bool, uris: &[&String]) -> Value {
    json!({ "resourcesListChanged": list, "resourceSubscriptions": uris })
}

async fn start() -> TestApp {
    TestApp::builder().token(READER, &["user:1=read"]).start().await
}

/// States a memory once more, which changes nothing but itself.
async fn restate(app: &TestApp, scope: &str, content: &str) {
    let again = app.admin().ok("store_memory", json!({ "scope": scope, "content": content })).await;
    assert_eq!(again["outcome"], "duplicate", "{again}");
}

#[tokio::test]
async fn what_one_replica_writes_another_tells() {
    let first = start().await;
    let second = TestApp::builder().token(READER, &["user:1=read"]).beside(&first).start().await;
    let tea = first.admin().store("user:1", "Tea is in the left drawer").await;
    let watched = uri("user:1", &tea);
    settled(&first).await;
    let (mut stream, confirmed) = Stream::open(&second, READER, watching(true, &[&watched])).await;
    assert_eq!(confirmed, watching(true, &[&watched]));
    restate(&first, "user:1", "Tea is in the left drawer").await;
    assert_eq!(stream.told().await, watched);
    first.admin().store("user:1", "The train to the coast leaves at nine").await;
    assert_eq!(stream.told().await, "list");
    first.admin().ok("forget_memory", json!({ "scope": "user:1", "memory_id": tea })).await;
    assert_eq!([stream.told().await, stream.told().await], ["list".to_owned(), watched]);
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn nothing_is_told_of_a_foreign_scope() {
    let app = start().await;
    let (mine, theirs) = ("Tea is in the left drawer", "The safe is behind the picture");
    let mine_uri = uri("user:1", &app.admin().store("user:1", mine).await);
    let theirs_uri = uri("user:2", &app.admin().store("user:2", theirs).await);
    settled(&app).await;
    let wanted = watching(true, &[&theirs_uri, &mine_uri]);
    let (mut stream, confirmed) = Stream::open(&app, READER, wanted).await;
    assert_eq!(confirmed, watching(true, &[&mine_uri]), "a foreign resource is left out");
    let (mut all, confirmed) = Stream::open(&app, ADMIN, watching(true, &[&theirs_uri])).await;
    assert_eq!(confirmed, watching(true, &[&theirs_uri]));
    restate(&app, "user:2", theirs).await;
    app.admin().store("user:2", "The spare key is under the third stone").await;
    // Together or one after the other.
    let mut told = [all.told().await, all.told().await];
    told.sort_unstable();
    assert_eq!(told, ["list".to_owned(), theirs_uri]);
    // By now this one would have been told as well, and of a list.
    restate(&app, "user:1", mine).await;
    assert_eq!(stream.told().await, mine_uri);
    app.stop().await;
}

#[tokio::test]
async fn only_what_is_committed_is_told() {
    let app = start().await;
    let ids = [app.admin().store("user:1", "Tea is in the left drawer").await, {
        app.admin().store("user:1", "The train to the coast leaves at nine").await
    }];
    let uris = ids.each_ref().map(|id| uri("user:1", id));
    settled(&app).await;
    let (mut stream, _) = Stream::open(&app, READER, watching(true, &[&uris[0], &uris[1]])).await;
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    let scope = scope::find(&db, &Scope::parse("user:1").unwrap()).await.unwrap().unwrap();
    let now = Clock::Fixed(app.clock.clone()).now();
    for (id, is_kept) in [(&ids[0], false), (&ids[1], true)] {
        let mut tx = Tx::for_scope(&db, scope).await.unwrap();
        memory::support(&mut tx, scope, id.parse::<Uuid>().unwrap(), None, 0.1, now).await.unwrap();
        if is_kept {
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(stream.told().await, uris[1]);
    db.close().await;
    app.stop().await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    let entry = |name: &str, grant: &str, more: &str| {
        let digest = hex::encode(sha2::Sha256::digest(name.as_bytes()));
        format!("[[token]]\nname={name:?}\nsha256={digest:?}\ngrants=[{grant:?}]\n{more}\n")
    };
    let expiring = entry("expiring", "user:1=read", "expires_at=2026-03-01T12:30:00Z");
    let tokens = [&*entry("revoked", "user:1=read", ""), &expiring, &entry("narrowed", "user:*=read", "")];
    std::fs::write(&path, tokens.concat()).unwrap();
    let app = TestApp::builder().set("MEMSER_TOKENS_FILE", path.to_str().unwrap()).start().await;
    let mut streams = Vec::new();
    for token in ["revoked", "expiring", "narrowed"] {
        streams.push(Stream::open(&app, token, watching(true, &[])).await.0);
    }
    std::fs::write(&path, [expiring, entry("narrowed", "user:2=read", "")].concat()).unwrap();
    app.clock.advance(std::time::Duration::from_hours(1));
    // Before a silent stream would be looked at: what is written now is told to none of them.
    app.admin().store("user:1", "Tea is in the left drawer").await;
    for mut stream in streams {
        let last = stream.next().await.unwrap();
        assert!(last["result"].is_object(), "{last}");
        assert_eq!(stream.next().await, None);
    }
    app.stop().await;
}

#[tokio::test]
async fn a_connection_that_was_cut_is_made_again_and_what_was_missed_is_told() {
    let app = start().await;
    let tea = uri("user:1", &app.admin().store("user:1", "Tea is in the left drawer").await);
    settled(&app).await;
    let (mut stream, _) = Stream::open(&app, READER, watching(true, &[&tea])).await;
    let mut database = app.database.connect().await;
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where application_name = 'memser changes' and datname = current_database()";
    assert_eq!(sqlx::query_scalar::<_, i64>(cut).fetch_one(&mut database).await.unwrap(), 1);
    assert_eq!([stream.told().await, stream.told().await], ["list", &tea]);
    restate(&app, "user:1", "Tea is in the left drawer").await;
    assert_eq!(stream.told().await, tea);
    database.close().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_streams_at_once() {
    let app = start().await;
    let (stream, _) = Stream::open(&app, READER, watching(true, &[])).await;
    let (ended, ()) = tokio::join!(stream.ended(), app.stop());
    assert!(ended);
}

#[tokio::test]
async fn a_stream_counts_as_one_of_its_tokens_requests() {
    let app =
        TestApp::builder().token(READER, &["user:1=read"]).set("MEMSER_MAX_CONCURRENT", "1").start().await;
    let (_stream, _) = Stream::open(&app, READER, watching(true, &[])).await;
    assert_eq!(ask(&app, READER, &watching(true, &[])).await.status(), 429);
    // Another token has places of its own.
    drop(Stream::open(&app, ADMIN, watching(true, &[])).await);
    app.stop().await;
}

#[tokio::test]
async fn changes_are_told_past_a_pooler_of_transactions() {
    let database = TestDatabase::create().await;
    let mut builder = TestApp::builder().on(database.clone());
    for (name, value) in database.through_pooler() {
        builder = builder.set(name, value);
    }
    let app = builder.start().await;
    let (mut stream, _) = Stream::open(&app, ADMIN, watching(true, &[])).await;
    app.admin().store("user:1", "Tea is in the left drawer").await;
    assert_eq!(stream.told().await, "list");
    app.stop().await;
}

#[tokio::test]
async fn subscribing_is_offered_only_where_it_works() {
    let app = start().await;
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let shaken = app.admin().rpc("initialize", hello).await;
    assert_eq!(shaken["result"]["capabilities"]["resources"], json!({}), "{shaken}");
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let refused = app.admin().rpc(method, json!({ "uri": uri("user:1", "x") })).await;
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }
    // What is never told is not confirmed.
    let wanted =
        json!({ "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["x:y"] });
    let (_stream, confirmed) = Stream::open(&app, READER, wanted).await;
    assert_eq!(confirmed, json!({}));
    let uris: Vec<String> = (0..101).map(|n| uri("user:1", &n.to_string())).collect();
    let refused = ask(&app, READER, &watching(false, &uris.iter().collect::<Vec<_>>())).await;
    assert_eq!(refused.status(), 400);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    app.stop().await;
}
