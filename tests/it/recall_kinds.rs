//! Kinds of mistakes that other memory servers made in what they found.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::client::contents;
use crate::support::{Client, TestApp};

const SCOPE: &str = "user:1";

async fn recall(client: &Client, query: &str) -> Value {
    client.ok("recall_memory", json!({ "scope": SCOPE, "query": query, "k": 100 })).await
}

/// As lists, in their order, and letter by letter: on every way out, in both tiers.
#[tokio::test]
async fn tags_come_back_as_the_list_that_was_sent() {
    let tags = json!(["mcp", "a,b", "c|d", "{x}", "'", "\"quoted\"", "[\"nested\"]", "Ünïcode", "1"]);
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        for more in [json!({}), json!({ "ttl_seconds": 60 })] {
            let tier = if more == json!({}) { "episodic" } else { "working" };
            let mut arguments =
                json!({ "scope": SCOPE, "content": format!("The {tier} kettle"), "tags": tags });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let id = client.ok("store_memory", arguments).await["id"].clone();
            for (tool, question) in [
                (
                    "recall_memory",
                    json!({ "scope": SCOPE, "query": format!("{tier} kettle"), "tiers": [tier] }),
                ),
                ("list_memories", json!({ "scope": SCOPE, "tier": tier })),
                ("list_memories", json!({ "scope": SCOPE, "memory_id": id })),
            ] {
                let answer = client.ok(tool, question).await;
                assert_eq!(answer["memories"][0]["tags"], tags, "{tool}: {answer}");
            }
            for tag in tags.as_array().unwrap() {
                let question = json!({ "scope": SCOPE, "query": "kettle", "tags": [tag], "tiers": [tier] });
                assert_eq!(contents(&client.ok("recall_memory", question).await).len(), 1, "{tag}");
            }
            // Nor does a part of a tag find it.
            for part in ["m", "a", "b", "x", "nested", "quoted"] {
                let question = json!({ "scope": SCOPE, "query": "kettle", "tags": [part] });
                assert_eq!(
                    contents(&client.ok("recall_memory", question).await),
                    Vec::<String>::new(),
                    "{part}"
                );
            }
        }
        app.stop().await;
    }
}

/// [`what_is_forgotten_is_found_by_no_road`](crate::forget) reads; this tries to change.
#[tokio::test]
async fn what_was_forgotten_is_changed_revived_and_repeated_by_no_call() {
    let app = TestApp::start().await;
    let client = app.admin();
    let text = "The staging server listens on port 8080";
    let id = client.store(SCOPE, text).await;
    client.ok("forget_memory", json!({ "scope": SCOPE, "memory_id": id })).await;
    for (tool, arguments) in [
        ("store_memory", json!({ "content": "It listens on port 9000", "replaces": id })),
        ("list_memories", json!({ "memory_id": id })),
        ("forget_memory", json!({ "memory_id": id })),
        ("resolve_conflict", json!({ "memory_id": id, "action": "restore" })),
        ("resolve_conflict", json!({ "memory_id": id, "action": "keep_old" })),
    ] {
        let mut arguments = arguments;
        arguments["scope"] = json!(SCOPE);
        assert_eq!(client.refused(tool, arguments.clone()).await["code"], "not_found", "{tool} {arguments}");
    }
    // What contradicts it contradicts nothing.
    let other = json!({ "scope": SCOPE, "content": "The staging server listens on port 8081" });
    let other = client.ok("store_memory", other).await;
    assert_eq!((&other["outcome"], &other["supersedes"]), (&json!("stored"), &json!([])));
    client.ok("forget_memory", json!({ "scope": SCOPE, "memory_id": other["id"] })).await;
    // The same text is a new memory, and no repeat of the old one.
    let again = client.ok("store_memory", json!({ "scope": SCOPE, "content": text })).await;
    assert_eq!((&again["outcome"], &again["support"]), (&json!("stored"), &json!(1)));
    assert_ne!(again["id"], json!(id));
    client.ok("consolidate_memories", json!({ "scope": SCOPE })).await;
    let found = recall(&client, "staging server port").await;
    app.engine.flush().await;
    assert_eq!(contents(&found), [text]);
    assert_eq!(found["memories"][0]["id"], again["id"]);
    let mut connection = app.database.connect().await;
    let left: i64 = sqlx::query_scalar(
        "select (select count(*) from memories) + (select count(*) from memory_embedding)
              + (select count(*) from memory_access) + (select count(distinct memory_id) from memory_term)",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(left, 4, "one row of each is left, that of the new memory");
    app.stop().await;
}

/// A superseded memory is no longer there for anything that speaks of what is.
#[tokio::test]
async fn what_was_superseded_takes_part_in_nothing_but_history() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = client.store(SCOPE, "The staging server listens on port 8080").await;
    let new = client
        .ok("store_memory", json!({ "scope": SCOPE, "content": "The staging server listens on port 8081" }))
        .await;
    assert_eq!(new["supersedes"][0]["id"], json!(old));
    let replaces = json!({ "scope": SCOPE, "content": "It listens on port 8082", "replaces": old });
    assert!(client.call("store_memory", replaces).await.is_error);
    let third = client
        .ok("store_memory", json!({ "scope": SCOPE, "content": "The staging server listens on port 8083" }))
        .await;
    assert_eq!(third["supersedes"].as_array().unwrap().len(), 1, "only what was active: {third}");
    assert_eq!(
        contents(&recall(&client, "staging server port").await),
        ["The staging server listens on port 8083"]
    );
    let listed = client.ok("list_memories", json!({ "scope": SCOPE })).await;
    assert_eq!(contents(&listed).len(), 1);
    app.stop().await;
}

/// As many different words as broke others, the one that counts among them.
#[tokio::test]
async fn a_question_of_58_000_words_is_answered() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store(SCOPE, "The kettle is blue").await;
    let mut question = "kettle".to_owned();
    for number in 0..58_000 {
        write!(question, " word{number}").unwrap();
    }
    assert_eq!(contents(&recall(&client, &question).await), ["The kettle is blue"]);
    // As one word, and as one sign over and over.
    for question in ["x".repeat(600_000), "& ( | ! : * ".repeat(50_000), "猫".repeat(200_000)] {
        let outcome = client.call("recall_memory", json!({ "scope": SCOPE, "query": question })).await;
        assert!(!outcome.is_error, "{}", outcome.structure);
    }
    app.stop().await;
}

#[tokio::test]
async fn equals_come_in_one_order_whoever_asks_and_however_often() {
    let app = TestApp::start().await;
    let other = TestApp::builder().beside(&app).start().await;
    // More than there are candidates, and nothing to tell them apart by but their numbers.
    for number in 0..70 {
        let arguments =
            json!({ "scope": SCOPE, "content": format!("kettle {number}"), "on_conflict": "keep_both" });
        app.admin().ok("store_memory", arguments).await;
    }
    let question = json!({ "scope": SCOPE, "query": "kettle", "k": 10 });
    let first = contents(&app.admin().ok("recall_memory", question.clone()).await);
    assert_eq!(first.len(), 10);
    for app in [&other, &app, &other] {
        app.engine.flush().await;
        assert_eq!(contents(&app.admin().ok("recall_memory", question.clone()).await), first);
    }
    other.stop().await;
    app.stop().await;
}
