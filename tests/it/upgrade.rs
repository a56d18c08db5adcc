//! generator
use crate::support::{TestApp, TestDatabase};
use memser::jobs::Sweep;
use serde_json::json;

#[tokio::test]
async fn make() {
    let database = TestDatabase::create().await;
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", "64").on(database.clone()).start().await;
    let client = app.admin();
    for (content, more) in [
        ("Anna moved to Lisbon in March 2025.", json!({ "tags": ["people", "moves"], "source": "chat" })),
        ("Anna moved to Lisbon in March 2025.", json!({ "source": "mail" })),
        ("Ravi prefers tea over coffee.", json!({ "source": "chat", "metadata": { "page": 7 } })),
        ("The staging server listens on port 8080", json!({ "occurred_at": "2026-01-01T00:00:00Z" })),
        ("The staging server listens on port 8081", json!({ "occurred_at": "2026-01-02T00:00:00Z" })),
        ("The archive is kept for 10 years", json!({})),
        ("The archive is kept for 12 years", json!({ "on_conflict": "flag" })),
        ("The guest leaves on Friday.", json!({ "ttl_seconds": 86_400 })),
        ("Invoices are paid within a month.", json!({ "idempotency_key": "invoices-1" })),
        ("鍵は三番目の石の下にある", json!({})),
    ] {
        let mut arguments = json!({ "scope": "user:1", "content": content });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        println!("{}", client.ok("store_memory", arguments).await);
    }
    let gone = client.store("user:1", "The old alarm code was on the fridge.").await;
    client.ok("forget_memory", json!({ "scope": "user:1", "memory_id": gone })).await;
    client.recall("user:1", "Where does Anna live?").await;
    client.store("user:2", "A memory of somebody else.").await;
    client.refused("store_memory", json!({ "scope": "user:1", "content": "" })).await;
    app.stop().await;
    let app = TestApp::builder()
        .consolidating()
        .set("EMBEDDING_DIMENSIONS", "64")
        .on(database.clone())
        .start()
        .await;
    for number in 0..3 {
        let content = format!("The backup of the wiki runs every night on host alpha, as run {number} shows");
        app.admin().store("team:ops", &content).await;
    }
    println!("{}", app.admin().ok("consolidate_memories", json!({ "scope": "team:ops" })).await);
    app.jobs.run(Sweep::Prune).await;
    app.stop().await;
    let bin = std::env::var("MEMSER_PG_BIN").unwrap();
    let server = std::env::var("MEMSER_TEST_DATABASE_URL").unwrap();
    let url = format!("{}/{}", server.rsplit_once('/').unwrap().0, database.url.rsplit_once('/').unwrap().1);
    let out = std::process::Command::new(format!("{bin}/pg_dump"))
        .args([
            "--data-only",
            "--column-inserts",
            "--exclude-table=installation",
            "--exclude-table=_sqlx_migrations",
            &url,
        ])
        .output()
        .unwrap();
    std::fs::write("/tmp/safety_fixture.sql", &out.stdout).unwrap();
    println!("{}", String::from_utf8_lossy(&out.stderr));
}
