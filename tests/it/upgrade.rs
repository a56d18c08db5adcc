//! Data of an earlier schema: brought up to date, every tool answers over it as before.

use memser::db::MIGRATOR;
use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use sqlx::migrate::Migrator;

use crate::support::client::contents;
use crate::support::{Client, TestApp, TestDatabase};

/// What memser had in its tables at migration 7.
const DATA: &str = include_str!("../data/schema_0007.sql");

const ANNA: &str = "Anna moved to Lisbon in March 2025.";
const TEN_YEARS: &str = "The archive is kept for 10 years";
const TWELVE_YEARS: &str = "The archive is kept for 12 years";

/// A database with that data in that schema.
async fn database() -> TestDatabase {
    let database = TestDatabase::provided().await;
    let until_then = MIGRATOR.iter().filter(|migration| migration.version <= 7).cloned().collect();
    Migrator::with_migrations(until_then).run(&mut database.connect_as_memser().await).await.unwrap();
    // In one transaction, because a memory may be superseded by one that comes later in the file.
    let mut connection = database.connect().await;
    sqlx::raw_sql("begin").execute(&mut connection).await.unwrap();
    sqlx::raw_sql(DATA).execute(&mut connection).await.unwrap();
    sqlx::raw_sql("commit").execute(&mut connection).await.unwrap();
    database
}

async fn list(client: &Client, scope: &str, status: &str) -> Value {
    client
        .ok("list_memories", json!({ "scope": scope, "status": status, "order": "oldest", "limit": 100 }))
        .await
}

async fn id_of(client: &Client, scope: &str, status: &str, content: &str) -> String {
    let listed = list(client, scope, status).await;
    let memories = listed["memories"].as_array().unwrap();
    let memory = memories.iter().find(|memory| memory["content"] == content);
    memory.unwrap_or_else(|| panic!("{content}: {listed}"))["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn data_of_the_schema_before_answers_every_tool_after_the_upgrade() {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", "64").on(database().await).start().await;
    let client = app.admin();

    // What was there is there: facts, history, pairs in review, working memories.
    let active = [
        ANNA,
        "Ravi prefers tea over coffee.",
        "The staging server listens on port 8081",
        TEN_YEARS,
        TWELVE_YEARS,
        "Invoices are paid within a month.",
        "鍵は三番目の石の下にある",
    ];
    assert_eq!(contents(&list(&client, "user:1", "active").await), active);
    assert_eq!(
        contents(&list(&client, "user:1", "superseded").await),
        ["The staging server listens on port 8080"]
    );
    assert_eq!(contents(&list(&client, "user:1", "conflicted").await), [TEN_YEARS, TWELVE_YEARS]);
    assert_eq!(contents(&list(&client, "user:1", "pending").await), Vec::<String>::new());
    let working = client.ok("list_memories", json!({ "scope": "user:1", "tier": "working" })).await;
    assert_eq!(contents(&working), ["The guest leaves on Friday."]);
    assert_eq!(contents(&list(&client, "team:ops", "superseded").await).len(), 3);

    // By words and by meaning, with everything that is told of a hit.
    let found =
        client.ok("recall_memory", json!({ "scope": "user:1", "query": "Where did Anna move?" })).await;
    let first = &found["memories"][0];
    assert_eq!((&first["content"], &first["support"]), (&json!(ANNA), &json!(2)), "{found}");
    assert!(
        first["why"]["vector"].as_f64() > Some(0.0) && first["why"]["lexical"].as_f64() > Some(0.0),
        "{found}"
    );
    assert!(first["why"]["frequency"].as_f64() > Some(0.0), "{found}");
    assert_eq!(found["degraded"], json!([]), "{found}");
    assert_eq!(client.recall("user:1", "石").await[0], "鍵は三番目の石の下にある");
    let fact =
        client.ok("recall_memory", json!({ "scope": "team:ops", "query": "backup of the wiki" })).await;
    assert_eq!(fact["memories"][0]["origin"].as_array().map(Vec::len), Some(3), "{fact}");

    // Stores meet what was stored before.
    let store = async |content: &str, more: Value| {
        let mut arguments = json!({ "scope": "user:1", "content": content });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.ok("store_memory", arguments).await
    };
    let again = store(ANNA, json!({})).await;
    assert_eq!((&again["outcome"], &again["support"]), (&json!("duplicate"), &json!(3)), "{again}");
    let invoices = id_of(&client, "user:1", "active", "Invoices are paid within a month.").await;
    let kept = store("Invoices are paid within a month.", json!({ "idempotency_key": "invoices-1" })).await;
    assert_eq!((&kept["outcome"], &kept["id"]), (&json!("stored"), &json!(invoices)), "not the first answer");
    let corrected = store("The staging server listens on port 8082", json!({})).await;
    assert_eq!(corrected["outcome"], "superseded", "{corrected}");

    // A reviewer ends what was open, and undoes what was decided.
    let twelve = id_of(&client, "user:1", "conflicted", TWELVE_YEARS).await;
    let keep_new = json!({ "scope": "user:1", "memory_id": twelve, "action": "keep_new" });
    client.ok("resolve_conflict", keep_new).await;
    assert_eq!(contents(&list(&client, "user:1", "conflicted").await), Vec::<String>::new());
    let ten = id_of(&client, "user:1", "superseded", TEN_YEARS).await;
    client.ok("resolve_conflict", json!({ "scope": "user:1", "memory_id": ten, "action": "restore" })).await;
    assert!(contents(&list(&client, "user:1", "active").await).contains(&TEN_YEARS.to_owned()));

    // Consolidation has nothing to do again; an origin that is forgotten takes its fact along.
    let nothing = client.ok("consolidate_memories", json!({ "scope": "team:ops" })).await;
    assert_eq!((&nothing["created"], &nothing["complete"]), (&json!([]), &json!(true)), "{nothing}");
    let origin = &fact["memories"][0]["origin"][0];
    let gone = client.ok("forget_memory", json!({ "scope": "team:ops", "memory_id": origin })).await;
    assert_eq!(gone["retracted"].as_array().map(Vec::len), Some(1), "{gone}");

    // Who did what before is told, and the sweeps go on.
    let audit: Value = app.get("/v1/audit?scope=user:1&limit=100").await.json().await.unwrap();
    let calls = audit["calls"].as_array().unwrap();
    assert!(calls.iter().any(|call| call["action"] == "forget_memory"), "{audit}");
    for sweep in Sweep::ALL {
        assert_eq!(app.jobs.run(sweep).await, Ran::Done, "{sweep}");
    }
    assert_eq!(contents(&list(&client, "user:2", "active").await), ["A memory of somebody else."]);
    app.stop().await;
}
