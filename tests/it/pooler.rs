//! A pooler that gives each transaction another session: `PgBouncer`, with the settings of Debian.

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::support::client::contents;
use crate::support::process::complaint;
use crate::support::{ADMIN, TestApp, TestAppBuilder, TestDatabase};

async fn pooled(mut builder: TestAppBuilder) -> TestApp {
    let database = TestDatabase::create().await;
    for (name, value) in database.through_pooler() {
        builder = builder.set(name, value);
    }
    builder.on(database).start().await
}

#[tokio::test]
async fn every_tool_and_every_sweep_works_through_a_pooler_of_transactions() {
    let app = pooled(TestApp::builder().consolidating()).await;
    let client = app.admin();
    // More at once than the pooler has sessions, so that they change hands.
    let stores = (0..24).map(|n| {
        let client = client.clone();
        async move {
            let scope = format!("user:{}", n % 3);
            let content = format!("The backup of the wiki runs every night on host alpha, as run {n} shows");
            client.ok("store_memory", json!({ "scope": scope, "content": content, "tags": ["wiki"] })).await
        }
    });
    for stored in futures::future::join_all(stores).await {
        assert_eq!(stored["embedding"], "ready", "{stored}");
    }
    let recalls = (0..24).map(|n| {
        let client = client.clone();
        async move { client.recall(&format!("user:{}", n % 3), "nightly backup of the wiki").await }
    });
    for found in futures::future::join_all(recalls).await {
        assert_eq!(found.len(), 8);
    }
    let working = json!({ "scope": "user:0", "content": "Only for a minute", "ttl_seconds": 60 });
    client.ok("store_memory", working).await;
    assert_eq!(client.recall("user:0", "minute").await[0], "Only for a minute");

    let port = |port: u32, policy: &str| {
        json!({ "scope": "user:9", "content": format!("The staging server listens on port {port}"),
                "on_conflict": policy, "idempotency_key": format!("{port}") })
    };
    let plain = pooled(TestApp::builder()).await;
    let reviewer = plain.admin();
    let old = reviewer.ok("store_memory", port(8080, "flag")).await;
    let new = reviewer.ok("store_memory", port(8081, "flag")).await;
    assert_eq!(
        (&new["outcome"], reviewer.ok("store_memory", port(8081, "flag")).await),
        (&json!("flagged"), new.clone())
    );
    let resolve = json!({ "scope": "user:9", "memory_id": new["id"], "action": "keep_new" });
    reviewer.ok("resolve_conflict", resolve).await;
    let forgotten = reviewer.ok("forget_memory", json!({ "scope": "user:9", "memory_id": old["id"] })).await;
    assert_eq!(forgotten["forgotten"]["episodic"], 1);
    assert_eq!(contents(&reviewer.ok("list_memories", json!({ "scope": "user:9" })).await).len(), 1);
    plain.stop().await;

    let made = client.ok("consolidate_memories", json!({ "scope": "user:0" })).await;
    assert_eq!(made["created"].as_array().unwrap().len(), 1, "{made}");
    for sweep in Sweep::ALL {
        assert_eq!(app.jobs.ring(sweep).await, Ran::Done, "{sweep}");
        assert_eq!(app.jobs.run(sweep).await, Ran::Done, "{sweep}");
    }
    let jobs: Value = app.get("/v1/jobs").await.json().await.unwrap();
    assert_eq!(jobs["jobs"][0]["runs"][1]["detail"], json!({ "changed": 2 }), "{jobs}");
    let listed = client.ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
    assert_eq!(contents(&listed).len(), 1);
    app.engine.flush().await;
    let mut database = app.database.connect().await;
    let audited: i64 =
        sqlx::query_scalar("select count(*) from memory_audit_log where action = 'recall_memory'")
            .fetch_one(&mut database)
            .await
            .unwrap();
    assert_eq!(audited, 25);
    app.stop().await;
}

#[tokio::test]
async fn a_pooler_of_transactions_is_noticed_where_nobody_told_of_it() {
    let database = TestDatabase::create().await;
    let [(_, url), _] = database.through_pooler();
    let words = complaint(&[], &[("DATABASE_URL", &url), ("MEMSER_TOKEN", ADMIN)]);
    assert!(words.contains("set DATABASE_DIRECT_URL"), "{words}");
    // And that it is one: a statement that was prepared in one transaction is not there in the next of another client.
    let options: PgConnectOptions = url.parse().unwrap();
    let refused = options.clone().connect().await.unwrap_err().to_string();
    assert!(refused.contains("extra_float_digits"), "{refused}");
}
