//! Every kind of input in every text argument: a result, or an error that names the argument, and nothing half-written.

use serde_json::{Value, json};

use crate::support::client::contents;
use crate::support::{ADMIN, Client, TestApp};

/// Texts that break programs, each with a name.
fn kinds() -> Vec<(&'static str, String)> {
    let kinds = [
        ("NUL", "a\0b"),
        ("zero-width", "\u{200b}\u{200d}\u{feff}"),
        ("zero-width inside", "zero\u{200b}width \u{2060}joined"),
        ("combining marks", "Z\u{351}\u{36b}\u{343}a\u{30a}\u{308}l\u{338}go"),
        ("decomposed", "cafe\u{301} A\u{30a}ngstro\u{308}m"),
        ("right to left", "\u{202e}drowssap\u{202c} مرحبا שלום"),
        ("emoji", "👩\u{200d}👩\u{200d}👧\u{200d}👦 🏳\u{fe0f}\u{200d}🌈 🇩🇪"),
        ("outside the BMP", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀 𠀋"),
        ("wildcards", "100% _ \\ * ? [a-z] %_\\"),
        ("query operators", "a & b | !c <-> (d:*) 'e' \"f\" -g OR AND NOT"),
        ("SQL", "'; drop table memories; --"),
        ("JSON", r#"{"scope":"user:2","content":["x"],"a":"\u0000"}"#),
        ("control characters", "bell\u{7} escape\u{1b}[31m delete\u{7f} next\u{85}line"),
        ("only punctuation", "?!… ---"),
        ("white space", " \t\n\u{a0}\u{3000}"),
        ("line ends", "one\r\ntwo\u{2028}three\u{b}four"),
        ("Java escapes", "\\ud800 \\x00 %00 &#0;"),
        ("template", "{{7*7}} ${jndi:ldap://x} $(id) `id`"),
        ("noncharacter", "\u{fffe}\u{ffff}\u{fdd0}"),
        ("replacement", "\u{fffd}"),
        ("private use", "\u{e000}\u{f8ff}"),
    ];
    let mut kinds: Vec<(&str, String)> = kinds.map(|(name, text)| (name, text.to_owned())).to_vec();
    kinds.push(("one long word", "x".repeat(60_000)));
    kinds.push(("many words", "word ".repeat(12_000)));
    kinds.push(("many marks", format!("a{}", "\u{301}".repeat(20_000))));
    kinds
}

/// Every text argument of every tool, in calls that are right but for it.
fn arguments() -> Vec<(&'static str, &'static str, Value)> {
    let id = "00000000-0000-7000-8000-000000000000";
    vec![
        ("store_memory", "content", json!({})),
        ("store_memory", "tags", json!({ "content": "Tagged with {n}" })),
        ("store_memory", "source", json!({ "content": "Sourced from {n}" })),
        ("store_memory", "actor", json!({ "content": "Stored by {n}" })),
        ("store_memory", "metadata", json!({ "content": "With the data {n}" })),
        ("store_memory", "idempotency_key", json!({ "content": "Under the key {n}" })),
        ("store_memory", "replaces", json!({ "content": "Instead of {n}" })),
        ("store_memory", "occurred_at", json!({ "content": "At the time {n}" })),
        ("store_memory", "on_conflict", json!({ "content": "By the policy {n}" })),
        ("recall_memory", "query", json!({})),
        ("recall_memory", "tags", json!({ "query": "q" })),
        ("recall_memory", "source", json!({ "query": "q" })),
        ("recall_memory", "as_of", json!({ "query": "q" })),
        ("recall_memory", "actor", json!({ "query": "q" })),
        ("list_memories", "tags", json!({})),
        ("list_memories", "source", json!({})),
        ("list_memories", "cursor", json!({})),
        ("list_memories", "memory_id", json!({})),
        ("forget_memory", "memory_id", json!({})),
        ("forget_memory", "tags", json!({})),
        ("consolidate_memories", "actor", json!({})),
        ("resolve_conflict", "memory_id", json!({ "action": "restore" })),
        ("resolve_conflict", "content", json!({ "action": "merge", "memory_id": id })),
    ]
}

/// Calls with `text` in the argument's place.
async fn call(
    client: &Client,
    tool: &str,
    argument: &str,
    others: &Value,
    text: &str,
    at: usize,
) -> (bool, Value) {
    let mut call = others.clone();
    call["scope"] = "user:1".into();
    if let Some(content) = call["content"].as_str() {
        call["content"] = content.replace("{n}", &at.to_string()).into();
    }
    call[argument] = match argument {
        "tags" => json!([text]),
        "metadata" => json!({ "key": text, "nested": [{ "deep": text }] }),
        _ => text.into(),
    };
    let outcome = client.call(tool, call).await;
    (outcome.is_error, outcome.structure)
}

#[tokio::test]
async fn every_kind_in_every_argument_is_taken_or_refused_by_name() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Something to be found").await;
    let mut stored = 1;
    for (tool, argument, others) in arguments() {
        for (at, (kind, text)) in kinds().iter().enumerate() {
            let (is_error, answer) = call(&client, tool, argument, &others, text, at).await;
            let error = &answer["error"];
            if is_error {
                let code = error["code"].as_str().unwrap();
                let field = error["field"].as_str().unwrap_or_default();
                let named = field == argument || field.starts_with(&format!("{argument}["));
                // What is no id of this scope is told so without a field.
                assert!(
                    (matches!(code, "invalid_argument" | "limit_exceeded") && named) || code == "not_found",
                    "{tool}.{argument}, {kind}: {answer}"
                );
                assert!(!error["hint"].as_str().unwrap().is_empty(), "{tool}.{argument}, {kind}");
            } else if tool == "store_memory" && answer["outcome"] != "duplicate" {
                stored += 1;
            } else if tool == "forget_memory" {
                stored -= answer["forgotten"]["episodic"].as_i64().unwrap();
            }
        }
    }
    // A refused call left nothing behind.
    let mut connection = app.database.connect().await;
    let rows: i64 =
        sqlx::query_scalar("select count(*) from memories").fetch_one(&mut connection).await.unwrap();
    assert_eq!(rows, stored);
    app.stop().await;
}

#[tokio::test]
async fn what_is_taken_comes_back_unchanged() {
    let app = TestApp::builder().set("DUPLICATE_THRESHOLD", "1").start().await;
    let client = app.admin();
    for (at, (kind, text)) in kinds().into_iter().enumerate() {
        let scope = format!("user:{at}");
        let metadata = json!({ "text": text, "list": [text] });
        let arguments = json!({ "scope": scope, "content": text, "tags": [text.chars().take(200).collect::<String>()], "metadata": {} });
        let mut with_data = arguments.clone();
        if metadata.to_string().len() < 16_000 {
            with_data["metadata"] = metadata.clone();
        }
        let outcome = client.call("store_memory", with_data.clone()).await;
        if outcome.is_error {
            assert!(matches!(kind, "NUL" | "zero-width" | "white space"), "{kind}: {}", outcome.structure);
            continue;
        }
        let listed = client.ok("list_memories", json!({ "scope": scope, "tags": arguments["tags"] })).await;
        assert_eq!(contents(&listed), [text.as_str()], "{kind}");
        let memory = &listed["memories"][0];
        assert_eq!(memory["tags"], arguments["tags"], "{kind}");
        if metadata.to_string().len() < 16_000 {
            assert_eq!(memory["metadata"], metadata, "{kind}");
        }
        // The whole text as the query finds it, by its words or by its vector.
        let has_words = text.chars().any(char::is_alphanumeric);
        let found = client.call("recall_memory", json!({ "scope": scope, "query": text })).await;
        assert!(!found.is_error, "{kind}: {}", found.structure);
        if has_words {
            assert_eq!(contents(&found.structure), [text.as_str()], "{kind}");
        }
    }
    app.stop().await;
}

#[tokio::test]
async fn times_and_numbers_at_their_ends_are_taken_or_refused_by_name() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Something to be found").await;
    let times = [
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
        "0000-12-31T23:59:59Z",
        "-0001-01-01T00:00:00Z",
        "-200000-01-01T00:00:00Z",
        "+10000-01-01T00:00:00Z",
        "+262142-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
        "2026-02-29T00:00:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-01",
        "1e400",
        "Infinity",
    ];
    for (tool, argument) in [
        ("store_memory", "occurred_at"),
        ("recall_memory", "as_of"),
        ("recall_memory", "occurred_after"),
        ("recall_memory", "occurred_before"),
    ] {
        for (at, time) in times.iter().enumerate() {
            let mut call = json!({ "scope": "user:1", argument: time });
            call[if tool == "store_memory" { "content" } else { "query" }] = format!("Event {at}").into();
            let outcome = client.call(tool, call).await;
            if outcome.is_error {
                let error = &outcome.structure["error"];
                assert_eq!(
                    (&error["code"], &error["field"]),
                    (&json!("invalid_argument"), &json!(argument)),
                    "{tool} {time}"
                );
            }
        }
    }
    for (tool, argument) in [
        ("recall_memory", "k"),
        ("recall_memory", "max_chars"),
        ("recall_memory", "min_score"),
        ("list_memories", "limit"),
        ("store_memory", "ttl_seconds"),
    ] {
        for number in [
            json!(0),
            json!(-0.0),
            json!(-1),
            json!(1),
            json!(i64::MIN),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(1e308),
            json!(5e-324),
            json!("99999999999999999999999999"),
            json!("1e9"),
            json!("NaN"),
            json!("0x10"),
        ] {
            let mut call = json!({ "scope": "user:1", argument: number });
            match tool {
                "store_memory" => call["content"] = "A note".into(),
                "recall_memory" => call["query"] = "found".into(),
                _ => {}
            }
            let outcome = client.call(tool, call).await;
            if outcome.is_error {
                let error = &outcome.structure["error"];
                assert_eq!(
                    (&error["code"], &error["field"]),
                    (&json!("invalid_argument"), &json!(argument)),
                    "{tool} {number}"
                );
            }
        }
    }
    app.stop().await;
}

/// What no JSON library lets a test write: it goes over the wire as it stands.
#[tokio::test]
async fn bytes_that_are_no_text_are_refused_before_they_are_read() {
    let app = TestApp::start().await;
    let call = |content: &[u8]| {
        let before = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"store_memory","arguments":{"scope":"user:1","content":""#;
        [before.as_slice(), content, br#""}}}"#].concat()
    };
    let http = reqwest::Client::new();
    let send = async |body: Vec<u8>| {
        let request =
            http.post(app.url("/mcp")).bearer_auth(ADMIN).header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    for (kind, bytes) in [
        ("a high surrogate alone", br"\ud800".as_slice()),
        ("a low surrogate alone", br"\udc00"),
        ("surrogates the wrong way round", br"\udc00\ud800"),
        ("a byte that begins nothing", b"\xff"),
        ("an overlong slash", b"\xc0\xaf"),
        ("a surrogate in UTF-8", b"\xed\xa0\x80"),
        ("a raw control character", b"\x01"),
        ("a broken escape", br"\u12"),
    ] {
        let (status, answer) = send(call(bytes)).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32700)), "{kind}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty(), "{kind}");
    }
    let (status, answer) = send(call(br"\ud83d\ude00 a pair")).await;
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(false)), "{answer}");
    let (status, answer) = send(call(&vec![b'x'; 5 << 20])).await;
    assert_eq!(status, 413);
    assert!(answer["error"]["message"].as_str().unwrap().contains("larger than"), "{answer}");
    let listed = app.admin().ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(contents(&listed), ["😀 a pair"]);
    app.stop().await;
}
