//! What still works while a part is down, and that everything comes back by itself.

use std::time::{Duration, Instant};

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::wire::Wire;
use crate::support::{TestApp, TestDatabase, embedder};

/// Longer than memser waits for a connection, and far below the limit of a call.
const QUICKLY: Duration = Duration::from_secs(15);
/// Longer than anything takes that comes back by itself.
const PATIENCE: Duration = Duration::from_mins(2);

async fn health(app: &TestApp, path: &str) -> (u16, Value) {
    let answer = reqwest::get(app.url(path)).await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn without_redis_only_the_working_tier_is_missing() {
    // Bound and dropped: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let app = TestApp::builder().set("REDIS_URL", format!("redis://{closed}")).start().await;
    let client = app.admin();

    let working = json!({ "scope": "user:1", "content": "a note for now", "ttl_seconds": 60 });
    let error = client.refused("store_memory", working).await;
    assert_eq!(error["code"], "unavailable", "{error}");
    assert!(error["message"].as_str().unwrap().contains("working"), "{error}");

    let text = "Anna moved to Lisbon in March 2025.";
    client.store("user:1", text).await;
    let query = json!({ "scope": "user:1", "query": "Where does Anna live?" });
    let found = client.ok("recall_memory", query).await;
    assert_eq!(found["degraded"], json!(["working"]));
    assert_eq!(crate::support::client::contents(&found), [text]);

    let (status, parts) = health(&app, "/readyz").await;
    assert_eq!(status, 200);
    assert_eq!((&parts["postgres"], &parts["working"]), (&json!("ok"), &json!("down")));
    app.stop().await;
}

/// A memser whose way to its database can be cut.
async fn behind_a_wire() -> (Wire, TestApp) {
    let database = TestDatabase::create().await;
    let server = database.superuser.clone();
    let direct = format!("{}:{}", server.get_host(), server.get_port());
    let wire = Wire::to(direct.clone()).await;
    let url = database.url.replace(&direct, &wire.address.to_string());
    let app = TestApp::builder().on(database).set("DATABASE_URL", url).start().await;
    (wire, app)
}

async fn until_ready(app: &TestApp) {
    let back = async {
        while health(app, "/readyz").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("memser stayed down");
}

/// Nobody resets the connections, so that each that memser has is found out only by waiting for it.
#[tokio::test]
async fn a_postgres_that_hangs_is_told_by_health_and_metrics_and_left_for_new_connections() {
    let (wire, app) = behind_a_wire().await;
    let client = app.admin();
    client.store("user:1", "Anna moved to Lisbon in March 2025.").await;
    wire.open.send_replace(false);
    assert_eq!(health(&app, "/livez").await.0, 200);
    let (status, parts) = health(&app, "/readyz").await;
    assert_eq!((status, &parts["postgres"], &parts["embedder"]), (503, &json!("down"), &json!("ok")));
    let metrics = app.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("memser_part_up{part=\"postgres\"} 0"), "{metrics}");
    let query = json!({ "scope": "user:1", "query": "Anna" });
    assert_eq!(client.refused("recall_memory", query.clone()).await["code"], "unavailable");
    wire.open.send_replace(true);
    until_ready(&app).await;
    client.ok("recall_memory", query).await;
    app.stop().await;
}

#[tokio::test]
async fn without_postgres_calls_say_so_at_once_and_recover_by_themselves() {
    let (wire, app) = behind_a_wire().await;
    let client = app.admin();
    let text = "Anna moved to Lisbon in March 2025.";
    client.store("user:1", text).await;

    wire.whole.send_replace(false);
    let scope = "user:1";
    for (tool, arguments) in [
        ("store_memory", json!({ "scope": scope, "content": "The office moved to Porto." })),
        ("store_memory", json!({ "scope": scope, "content": "A note.", "ttl_seconds": 60 })),
        ("recall_memory", json!({ "scope": scope, "query": "Anna" })),
        ("list_memories", json!({ "scope": scope })),
        ("forget_memory", json!({ "scope": scope, "all": true })),
        ("consolidate_memories", json!({ "scope": scope })),
    ] {
        let asked = Instant::now();
        let error = client.refused(tool, arguments).await;
        assert_eq!(error["code"], "unavailable", "{tool}: {error}");
        assert!(asked.elapsed() < QUICKLY, "{tool} took {:?}", asked.elapsed());
    }
    assert_eq!(health(&app, "/livez").await.0, 200);
    let (status, parts) = health(&app, "/readyz").await;
    assert_eq!((status, &parts["postgres"]), (503, &json!("down")));

    wire.whole.send_replace(true);
    until_ready(&app).await;
    // What was refused was not carried out.
    let listed = client.ok("list_memories", json!({ "scope": scope })).await;
    assert_eq!(crate::support::client::contents(&listed), [text]);
    client.store(scope, "The office moved to Porto.").await;
    app.stop().await;
}

/// As where its password was changed, its role was locked, or the database was renamed.
#[tokio::test]
async fn a_database_that_lets_memser_in_no_longer_is_unavailable() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Anna moved to Lisbon in March 2025.").await;
    let name = app.database.superuser.get_database().unwrap();
    let mut superuser = app.database.connect().await;
    let shut = format!(
        "revoke connect on database {name} from public, memser_test;
         select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and usename = 'memser_test'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(shut)).execute(&mut superuser).await.unwrap();
    let query = json!({ "scope": "user:1", "query": "Anna" });
    assert_eq!(client.refused("recall_memory", query.clone()).await["code"], "unavailable");
    assert_eq!(app.get("/v1/memories?scope=user:1").await.status(), 503);
    assert_eq!(health(&app, "/readyz").await.0, 503);
    let open = format!("grant connect on database {name} to memser_test");
    sqlx::raw_sql(sqlx::AssertSqlSafe(open)).execute(&mut superuser).await.unwrap();
    client.ok("recall_memory", query).await;
    app.stop().await;
}

#[tokio::test]
async fn an_embedding_endpoint_that_is_down_is_not_waited_for_and_comes_back_by_itself() {
    let endpoint = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(503)).mount(&endpoint).await;
    let app = embedder::asking(&endpoint.uri(), 2).start().await;
    let client = app.admin();
    assert_eq!(health(&app, "/readyz").await.1["embedder"], "ok", "nothing is known against it");
    client.store("user:1", "Anna plays the cello.").await;
    assert_eq!(health(&app, "/readyz").await, (200, parts("down")));

    let asked = async || endpoint.received_requests().await.unwrap().len();
    let before = asked().await;
    let stored = client.ok("store_memory", json!({ "scope": "user:1", "content": "Ravi drinks tea." })).await;
    assert_eq!((&stored["embedding"], &stored["degraded"]), (&json!("pending"), &json!(["embedder"])));
    let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "cello" })).await;
    assert_eq!(crate::support::client::contents(&found), ["Anna plays the cello."]);
    assert_eq!(found["degraded"], json!(["embedder"]));
    assert_eq!(asked().await, before, "nobody asks it for now");

    embedder::answer_with(&endpoint, |_| vec![1.0, 0.0]).await;
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Failed);
    app.clock.advance(Duration::from_mins(1));
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(health(&app, "/readyz").await, (200, parts("ok")));
    let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "music" })).await;
    assert_eq!(found["degraded"], json!([]));
    assert_eq!(found["memories"].as_array().unwrap().len(), 2, "both are found by meaning");
    app.stop().await;
}

fn parts(embedder: &str) -> Value {
    json!({ "status": "ok", "postgres": "ok", "working": "ok", "embedder": embedder })
}
