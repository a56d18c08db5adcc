//! `recall_memory`: what is found, and in what shape it comes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::contents;
use crate::support::{Client, TestApp};

async fn recall(client: &Client, query: &str, more: Value) -> Value {
    let mut arguments = json!({ "scope": "user:1", "query": query });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok("recall_memory", arguments).await
}

#[tokio::test]
async fn a_word_finds_its_memory_in_any_language() {
    let app = TestApp::start().await;
    let client = app.admin();
    let texts = ["The kettle whistles in the kitchen", "Анна переехала в Лиссабон", "我的猫喜欢吃鱼"];
    for text in texts {
        client.store("user:1", text).await;
    }
    for (query, text) in [("kettles", texts[0]), ("лиссабон", texts[1]), ("猫喜欢什么", texts[2])]
    {
        let found = recall(&client, query, json!({ "k": 1 })).await;
        assert_eq!(contents(&found), [text]);
        let hit = &found["memories"][0];
        let parts = hit["why"].as_object().unwrap().values();
        let sum: f64 = parts.map(|part| part.as_f64().unwrap()).sum();
        assert!((sum - hit["score"].as_f64().unwrap()).abs() < 1e-4, "{hit}");
        assert!(hit["why"]["lexical"].as_f64() > Some(0.0), "{hit}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_query_is_a_mebibyte_at_most() {
    let app = TestApp::builder().set("MEMSER_MAX_CONTENT_BYTES", "1048576").start().await;
    let client = app.admin();
    client.store("user:1", "The kettle whistles in the kitchen").await;
    let longest = "kettle ".repeat(149_796) + "tins";
    assert_eq!(longest.len(), 1024 * 1024);
    assert_eq!(client.recall("user:1", &longest).await.len(), 1);
    let error = client.refused("recall_memory", json!({ "scope": "user:1", "query": longest + "!" })).await;
    assert_eq!((&error["code"], &error["field"]), (&json!("limit_exceeded"), &json!("query")));
    app.stop().await;
}

/// Each query shares a word with one memory, in another form or beside other particles; no memory's language is named.
#[tokio::test]
async fn words_find_in_every_script_and_in_mixed_text() {
    let app = TestApp::start().await;
    let client = app.admin();
    let pairs = [
        ("собаки", "У Марины есть рыжая собака"),
        ("猫", "我的猫每天早上吃鱼"),
        ("コーヒーが好きですか", "毎朝コーヒーを二杯飲みます"),
        ("القطط", "أحب القطط السوداء كثيرا"),
        ("กาแฟ", "ฉันดื่มกาแฟทุกเช้า"),
        ("책", "어제 도서관에서 책을 빌렸다"),
        ("Häuser", "Wir haben das alte Haus an der Straße gekauft"),
        ("cancion", "A Lucía le gusta la canción que canta su abuela"),
        ("rust語言", "我用Rust語言寫了一個伺服器"),
        ("configParser", "The bug was in config_parser.rs of version 2.4.1"),
        ("2.4.0", "Release 2.4.0 was withdrawn"),
    ];
    for (_, text) in pairs {
        client.store("user:1", text).await;
    }
    for (query, text) in pairs {
        let found = recall(&client, query, json!({ "k": 1 })).await;
        assert_eq!(contents(&found), [text], "{query}");
        assert!(found["memories"][0]["why"]["lexical"].as_f64() > Some(0.0), "{query}: {found}");
    }
    app.stop().await;
}

#[tokio::test]
async fn filters_hold_and_max_chars_leaves_out_whole_memories() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (content, tags, source, at) in [
        ("The kettle is blue", json!(["a,b", "'"]), "chat", "2025-01-01T00:00:00Z"),
        ("A kettle broke yesterday", json!(["{x}", "'"]), "mail", "2025-06-01T00:00:00Z"),
    ] {
        let arguments = json!({ "scope": "user:1", "content": content, "tags": tags, "source": source, "occurred_at": at });
        client.ok("store_memory", arguments).await;
    }
    for (filter, count) in [
        (json!({}), 2),
        (json!({ "tags": ["'"] }), 2),
        (json!({ "tags": ["a,b", "'"] }), 1),
        (json!({ "tags": ["a,b", "{x}"] }), 0),
        (json!({ "tags": ["a,b", "{x}"], "tags_match": "any" }), 2),
        (json!({ "tags": ["a"] }), 0),
        (json!({ "source": "mail" }), 1),
        (json!({ "tiers": ["semantic"] }), 0),
        (json!({ "occurred_after": "2025-06-01T00:00:00Z" }), 1),
        (json!({ "occurred_before": "2025-06-01T00:00:00Z" }), 1),
        (json!({ "min_score": 1 }), 0),
        (json!({ "k": 1 }), 1),
    ] {
        let found = contents(&recall(&client, "kettle", filter.clone()).await);
        assert_eq!(found.len(), count, "{filter}: {found:?}");
    }
    let cut = recall(&client, "kettle", json!({ "max_chars": 25 })).await;
    assert_eq!((contents(&cut).len(), &cut["left_out"]), (1, &json!(1)));
    let empty = json!({ "scope": "user:1", "query": " " });
    assert_eq!(client.refused("recall_memory", empty).await["field"], "query");
    app.stop().await;
}

#[tokio::test]
async fn working_memories_are_found_until_they_expire_wherever_they_live() {
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        let arguments = json!({ "scope": "user:1", "content": "Call the plumber", "ttl_seconds": 60 });
        client.ok("store_memory", arguments).await;
        assert_eq!(client.recall("user:1", "plumber").await, ["Call the plumber"]);
        assert_eq!(client.recall("user:2", "plumber").await, Vec::<String>::new());
        app.clock.advance(Duration::from_secs(61));
        assert_eq!(client.recall("user:1", "plumber").await, Vec::<String>::new());
        app.stop().await;
    }
}

#[tokio::test]
async fn a_memory_is_lifted_by_what_was_said_beside_it() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (source, content) in [
        ("chat-1", "Shall we visit the aquarium in Genoa on Sunday?"),
        ("chat-1", "Yes, gladly!"),
        ("chat-2", "The invoice was paid."),
    ] {
        let arguments = json!({ "scope": "user:1", "content": content, "source": source });
        client.ok("store_memory", arguments).await;
    }
    let question = json!({ "scope": "user:1", "query": "aquarium in Genoa on Sunday" });
    let found = client.ok("recall_memory", question).await;
    let memories = found["memories"].as_array().unwrap();
    let neighbour = memories.iter().find(|memory| memory["content"] == "Yes, gladly!").unwrap();
    assert!(neighbour["why"]["neighbour"].as_f64().unwrap() > 0.0, "{neighbour}");
    assert!(memories.iter().all(|memory| {
        memory["source"] == "chat-1" || memory["why"]["neighbour"].as_f64().unwrap() == 0.0
    }));
    app.stop().await;
}

#[tokio::test]
async fn many_copies_of_the_question_do_not_push_out_its_answer() {
    let app = TestApp::builder().set("DUPLICATE_THRESHOLD", "1").set("CONFLICT_THRESHOLD", "1").start().await;
    let client = app.admin();
    let question = "Which train does Anna take to Lisbon";
    for copy in 0..20 {
        let content = format!("{question}{}", "?".repeat(copy + 1));
        let arguments = json!({ "scope": "user:1", "content": content, "tags": [format!("copy {copy}")] });
        client.ok("store_memory", arguments).await;
        // Punctuation alone is the same memory; an added word is another one.
        let content = format!("{question} please{}", " really".repeat(copy));
        let arguments = json!({ "scope": "user:1", "content": content, "on_conflict": "keep_both" });
        assert_eq!(client.ok("store_memory", arguments).await["outcome"], "stored");
    }
    client.store("user:1", "Anna takes the night train to Lisbon").await;
    let found = contents(&recall(&client, question, json!({ "k": 5 })).await);
    assert!(found.contains(&"Anna takes the night train to Lisbon".to_owned()), "{found:?}");
    app.stop().await;
}

#[tokio::test]
async fn each_recall_is_counted() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "The kettle is blue").await;
    for _ in 0..3 {
        client.recall("user:1", "kettle").await;
    }
    app.engine.flush().await;
    let mut connection = app.database.connect().await;
    let counts: Vec<i64> = sqlx::query_scalar("select access_count from memory_access")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(counts, [3]);
    app.stop().await;
}
