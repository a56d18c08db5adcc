//! `forget_memory` and `list_memories`.

use serde_json::{Value, json};
use sqlx::Row;

use crate::support::TestApp;
use crate::support::client::contents;

async fn forget(app: &TestApp, mut arguments: Value) -> Value {
    arguments["scope"] = "user:1".into();
    app.admin().ok("forget_memory", arguments).await
}

#[tokio::test]
async fn forgetting_counts_over_all_tiers_and_a_dry_run_changes_nothing() {
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        let store = async |content: &str, tags: &[&str], ttl: Option<u64>| {
            let mut arguments = json!({ "scope": "user:1", "content": content, "tags": tags });
            if let Some(ttl) = ttl {
                arguments["ttl_seconds"] = ttl.into();
            }
            client.ok("store_memory", arguments).await
        };
        store("The heron stands in the reeds", &["a", "b"], None).await;
        store("Bread rises overnight", &["a"], None).await;
        store("Call the plumber", &["a", "b"], Some(60)).await;
        store("Buy stamps", &[], Some(60)).await;
        let counts =
            |working: u64, episodic: u64| json!({ "working": working, "episodic": episodic, "semantic": 0 });
        let dry = forget(&app, json!({ "all": true, "dry_run": true })).await;
        assert_eq!((&dry["forgotten"], &dry["dry_run"]), (&counts(2, 2), &json!(true)));
        // Of several tags all are meant.
        assert_eq!(forget(&app, json!({ "tags": ["a", "b"] })).await["forgotten"], counts(1, 1));
        assert_eq!(forget(&app, json!({ "tier": "working" })).await["forgotten"], counts(1, 0));
        assert_eq!(forget(&app, json!({ "all": true })).await["forgotten"], counts(0, 1));
        assert_eq!(forget(&app, json!({ "all": true })).await["forgotten"], counts(0, 0));
        app.stop().await;
    }
}

#[tokio::test]
async fn a_snapshot_keeps_the_text_unless_it_is_erased() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (content, erase) in [("Kept for a while", false), ("Never to be seen again", true)] {
        let id = client.store("user:1", content).await;
        forget(&app, json!({ "memory_id": id, "erase": erase })).await;
    }
    let mut connection = app.database.connect().await;
    let rows = sqlx::query("select content, octet_length(content_hash), row_to_json(s)::text from memory_snapshot s order by memory_id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let kept: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [Some("Kept for a while".to_owned()), None]);
    assert!(rows.iter().all(|row| row.get::<i32, _>(1) == 32));
    assert!(!rows[1].get::<String, _>(2).contains("Never"));
    assert_eq!(client.recall("user:1", "kept again").await, Vec::<String>::new());
    app.stop().await;
}

#[tokio::test]
async fn a_foreign_id_and_an_absent_one_are_answered_alike() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Mine").await;
    let foreign = client.store("user:2", "Not mine").await;
    for tool in ["forget_memory", "list_memories"] {
        let mut answers = Vec::new();
        for id in [foreign.as_str(), "00000000-0000-7000-8000-000000000000"] {
            let outcome = client.call(tool, json!({ "scope": "user:1", "memory_id": id })).await;
            assert!(outcome.is_error, "{tool} {id}");
            answers.push((outcome.text, outcome.structure.to_string()));
        }
        assert_eq!(answers[0], answers[1], "{tool}");
    }
    assert_eq!(client.recall("user:2", "mine").await, ["Not mine"]);
    app.stop().await;
}

#[tokio::test]
async fn thousands_are_forgotten_exactly() {
    let app = TestApp::start().await;
    app.admin().store("user:1", "One by hand").await;
    app.admin().store("user:2", "Another scope").await;
    let mut connection = app.database.connect().await;
    sqlx::raw_sql(
        "insert into memories (scope_id, id, tier, content, content_hash, confidence, created_at, valid_from, seq, token_count)
         select scope_id, gen_random_uuid(), 'episodic', 'row ' || n, sha256(n::text::bytea), 0.8, created_at, created_at, n + 10, 2
           from scopes, generate_series(1, 2499) n where name = 'user:1'",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let answer = forget(&app, json!({ "tier": "episodic" })).await;
    assert_eq!(answer["forgotten"]["episodic"], 2_500);
    assert_eq!(answer["ids"].as_array().unwrap().len(), 100);
    let left: Vec<String> =
        sqlx::query_scalar("select content from memories").fetch_all(&mut connection).await.unwrap();
    assert_eq!(left, ["Another scope"]);
    app.stop().await;
}

#[tokio::test]
async fn pages_stay_stable_while_others_store() {
    let app = TestApp::start().await;
    let client = app.admin();
    let names = ["heron", "bread", "kettle", "violin", "granite", "lemon", "harbour"];
    for name in names {
        client.store("user:1", name).await;
        app.clock.advance(std::time::Duration::from_secs(1));
    }
    for order in ["newest", "oldest"] {
        let mut expected: Vec<String> = contents(
            &client.ok("list_memories", json!({ "scope": "user:1", "order": order, "limit": 100 })).await,
        );
        let (mut seen, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = json!({ "scope": "user:1", "order": order, "limit": 3, "cursor": cursor });
            let page = client.ok("list_memories", page).await;
            assert!(contents(&page).len() <= 3);
            seen.extend(contents(&page));
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
            client
                .store(
                    "user:1",
                    &format!(
                        "{order} newcomer {}",
                        ["zebra", "quartz", "umbrella", "fjord", "tulip"][seen.len() % 5]
                    ),
                )
                .await;
            app.clock.advance(std::time::Duration::from_secs(1));
        }
        if order == "oldest" {
            // Newcomers belong to the end of this order.
            seen.truncate(expected.len());
        }
        expected.truncate(seen.len());
        assert_eq!(seen, expected, "{order}");
        assert!(seen.len() >= names.len());
    }
    app.stop().await;
}

#[tokio::test]
async fn a_list_refuses_what_is_no_page_and_makes_no_scope() {
    let app = TestApp::start().await;
    let client = app.admin();
    let empty = client.ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(empty, json!({ "memories": [] }));
    let mut connection = app.database.connect().await;
    let scopes: i64 =
        sqlx::query_scalar("select count(*) from scopes").fetch_one(&mut connection).await.unwrap();
    assert_eq!(scopes, 0);
    for (arguments, field) in [
        (json!({ "cursor": "nonsense" }), "cursor"),
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 101 }), "limit"),
    ] {
        let mut arguments = arguments;
        arguments["scope"] = "user:1".into();
        let error = client.refused("list_memories", arguments).await;
        assert_eq!((&error["code"], &error["field"]), (&json!("invalid_argument"), &json!(field)));
    }
    app.stop().await;
}
