//! What consolidation makes: facts that grow with the evidence, say nothing twice, and invent nothing.

use std::time::Duration;

use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::{TestApp, TestAppBuilder, embedder};

const NIGHTLY: &str = "The backup of the wiki runs every night on host alpha";
const SAFELY: &str = "The backup of the wiki runs every night on host alpha safely";
const STILL: &str = "The backup of the wiki still runs every night on host alpha safely";

async fn store(app: &TestApp, content: &str, more: Value) -> Value {
    let mut arguments = json!({ "scope": "user:1", "content": content, "on_conflict": "keep_both" });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app.admin().ok("store_memory", arguments).await
}

async fn consolidate(app: &TestApp) -> Value {
    app.admin().ok("consolidate_memories", json!({ "scope": "user:1" })).await
}

/// The active facts.
async fn facts(app: &TestApp) -> Vec<Value> {
    let listed = app.admin().ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
    listed["memories"].as_array().unwrap().clone()
}

/// Everything that consolidation could change.
async fn state(app: &TestApp) -> Vec<String> {
    let mut connection = app.database.connect().await;
    sqlx::query_scalar(
        "select row_to_json(m)::text from memories m union all select row_to_json(o)::text from memory_origin o
          union all select row_to_json(s)::text from scopes s union all select row_to_json(c)::text from conflicts c
          order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

fn origins(fact: &Value) -> usize {
    fact["origin"].as_array().unwrap().len()
}

#[tokio::test]
async fn without_news_ten_more_runs_change_nothing() {
    let app = TestApp::builder().consolidating().start().await;
    for content in [NIGHTLY, SAFELY, "Anna plays the violin"] {
        store(&app, content, json!({})).await;
    }
    let first = consolidate(&app).await;
    assert_eq!((first["created"].as_array().unwrap().len(), &first["remaining"]), (1, &json!(0)), "{first}");
    let before = state(&app).await;
    for _ in 0..10 {
        let again = consolidate(&app).await;
        assert_eq!(
            (&again["created"], &again["updated"], &again["complete"]),
            (&json!([]), &json!([]), &json!(true))
        );
    }
    assert_eq!(state(&app).await, before);
    app.stop().await;
}

#[tokio::test]
async fn new_evidence_updates_the_fact_instead_of_adding_a_rival() {
    let app = TestApp::builder().consolidating().start().await;
    store(&app, NIGHTLY, json!({ "occurred_at": "2026-01-01T00:00:00Z", "source": "first" })).await;
    store(&app, SAFELY, json!({ "occurred_at": "2026-01-02T00:00:00Z", "source": "second" })).await;
    consolidate(&app).await;
    let old = facts(&app).await.pop().unwrap();
    assert_eq!(origins(&old), 2);

    store(&app, STILL, json!({ "occurred_at": "2026-01-03T00:00:00Z", "source": "third" })).await;
    consolidate(&app).await;
    let now = facts(&app).await;
    assert_eq!(now.len(), 1, "{now:?}");
    assert_eq!(origins(&now[0]), 3, "{now:?}");
    assert_eq!(now[0]["occurred_at"], "2026-01-03T00:00:00Z");
    assert_eq!(
        (&now[0]["metadata"]["occurred_first"], &now[0]["metadata"]["occurred_last"]),
        (&json!("2026-01-01T00:00:00Z"), &json!("2026-01-03T00:00:00Z"))
    );
    assert_eq!(now[0]["metadata"]["sources"], json!(["first", "second", "third"]));
    assert!(now[0]["confidence"].as_f64() >= old["confidence"].as_f64());
    app.stop().await;
}

#[tokio::test]
async fn what_became_part_of_a_fact_is_known_when_it_is_told_again() {
    let app = TestApp::builder().consolidating().start().await;
    store(&app, NIGHTLY, json!({})).await;
    store(&app, SAFELY, json!({})).await;
    let made = consolidate(&app).await;
    let again = store(&app, NIGHTLY, json!({})).await;
    assert_eq!((&again["outcome"], &again["id"]), (&json!("duplicate"), &made["created"][0]), "{again}");
    assert_eq!(consolidate(&app).await["created"], json!([]));
    app.stop().await;
}

#[tokio::test]
async fn contradicting_memories_are_never_told_in_one_breath() {
    let app = TestApp::builder().consolidating().start().await;
    for content in [
        "The backup of the wiki runs every night at 02:00 on host alpha",
        "The backup of the wiki runs every night at 03:00 on host alpha",
    ] {
        store(&app, content, json!({})).await;
    }
    let answer = consolidate(&app).await;
    assert_eq!(answer["created"], json!([]), "{answer}");
    app.stop().await;
}

/// Stores as a program does that lets the judge flag contradictions.
fn judging() -> TestAppBuilder {
    TestApp::builder().consolidating().set("CONFLICT_THRESHOLD", "0.4")
}

const AT_TWO: &str = "The backup of the wiki runs every night at 02:00 on host alpha";
const AT_TWO_SAFELY: &str = "The backup of the wiki runs every night at 02:00 on host alpha safely";
const AT_THREE: &str = "The backup of the wiki runs every night at 03:00 on host alpha";

/// The open pairs, as texts of the newer and the older memory.
async fn open_pairs(app: &TestApp) -> Vec<(String, String)> {
    let mut connection = app.database.connect().await;
    sqlx::query_as(
        "select n.content, o.content from conflicts c join memories n on n.id = c.new_id and n.valid_to is null
           join memories o on o.id = c.old_id and o.valid_to is null where c.status = 'open' order by 1, 2",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn what_was_to_stay_beside_each_other_stays_when_one_becomes_part_of_a_fact() {
    let app = judging().start().await;
    for content in [AT_TWO, AT_TWO_SAFELY, AT_THREE] {
        assert_eq!(store(&app, content, json!({})).await["outcome"], "stored", "{content}");
    }
    let answer = consolidate(&app).await;
    assert_eq!(answer["superseded"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(open_pairs(&app).await, []);
    // As a decision about the fact, too.
    let mut connection = app.database.connect().await;
    let kept: i64 = sqlx::query_scalar(
        "select count(*) from conflicts where resolution = 'keep_both' and $1 in (new_id::text, old_id::text)",
    )
    .bind(answer["created"][0].as_str())
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(kept, 1);
    app.stop().await;
}

#[tokio::test]
async fn what_waits_for_a_reviewer_waits_when_it_becomes_part_of_a_fact() {
    let app = judging().start().await;
    store(&app, AT_TWO, json!({})).await;
    store(&app, AT_TWO_SAFELY, json!({})).await;
    assert_eq!(store(&app, AT_THREE, json!({ "on_conflict": "flag" })).await["outcome"], "flagged");
    assert_eq!(open_pairs(&app).await.len(), 2);
    let answer = consolidate(&app).await;
    assert_eq!(answer["superseded"].as_array().unwrap().len(), 2, "{answer}");
    let pairs = open_pairs(&app).await;
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!((pairs[0].0.as_str(), &json!(pairs[0].1)), (AT_THREE, &facts(&app).await[0]["content"]));
    app.stop().await;
}

#[tokio::test]
async fn much_old_evidence_does_not_out_vote_a_change() {
    // All of it is near each other.
    let endpoint = embedder::endpoint(|text| {
        let angle = f32::from(u8::try_from(text.len() % 10).unwrap()).to_radians();
        vec![angle.cos(), angle.sin()]
    })
    .await;
    for change in ["Anna left Initech in May", "Anna works at Globex as an engineer for databases"] {
        let app = embedder::asking(&endpoint.uri(), 2)
            .consolidating()
            .set("CONFLICT_THRESHOLD", "0.4")
            .start()
            .await;
        for (day, content) in [
            "Anna works at Initech as an engineer for databases",
            "Anna works at Initech as an engineer for databases in Berlin",
            "At Initech Anna works as an engineer for large databases",
            "Anna still works at Initech as an engineer for databases",
            "Anna works at Initech as a good engineer for databases",
        ]
        .into_iter()
        .enumerate()
        {
            store(&app, content, json!({ "occurred_at": format!("2026-01-0{}T00:00:00Z", day + 1) })).await;
        }
        consolidate(&app).await;
        let old = facts(&app).await;
        assert_eq!(old.len(), 1, "{old:?}");
        let told = json!({ "occurred_at": "2026-02-01T00:00:00Z", "on_conflict": "newest_wins" });
        let outcome = store(&app, change, told).await;
        consolidate(&app).await;
        let superseded = facts(&app).await.is_empty();
        let is_flagged = open_pairs(&app).await.iter().any(|(new, _)| new == change);
        assert!(superseded || is_flagged, "{outcome}: {:?} {:?}", facts(&app).await, open_pairs(&app).await);
        // The change itself holds in any case.
        let listed = app.admin().ok("list_memories", json!({ "scope": "user:1", "tier": "episodic" })).await;
        assert!(listed["memories"].as_array().unwrap().iter().any(|memory| memory["content"] == change));
        app.stop().await;
    }
}

/// A server that summarises with a model.
fn asking(server: &MockServer) -> TestAppBuilder {
    TestApp::builder()
        .consolidating()
        .set("LLM_URL", format!("{}/v1", server.uri()))
        .set("LLM_MODEL", "tiny")
        .set("LLM_TIMEOUT_SECONDS", "1")
}

fn says(content: &Value) -> ResponseTemplate {
    let message = json!({ "content": content.to_string() });
    ResponseTemplate::new(200).set_body_json(json!({ "choices": [{ "message": message }] }))
}

async fn model(answer: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST")).respond_with(answer).mount(&server).await;
    server
}

#[tokio::test]
async fn a_model_writes_the_summary_where_one_is_configured() {
    let summary = "The backup of the wiki runs every night on host alpha, safely";
    let server = model(move |_| {
        says(&json!({ "summary": summary, "facts": [{ "text": summary, "memories": [0, 1] }] }))
    })
    .await;
    let app = asking(&server).start().await;
    store(&app, NIGHTLY, json!({})).await;
    store(&app, SAFELY, json!({})).await;
    let answer = consolidate(&app).await;
    let cluster = &answer["clusters"][0];
    assert_eq!((&cluster["summary"], &cluster["summary_by"]), (&json!(summary), &json!("llm")), "{answer}");
    let asked = server.received_requests().await.unwrap();
    let body: Value = asked[0].body_json().unwrap();
    let shown: Value = serde_json::from_str(body["messages"][1]["content"].as_str().unwrap()).unwrap();
    assert_eq!(shown["memories"][1]["text"], SAFELY, "the texts are data, not part of the task");
    app.stop().await;
}

#[tokio::test]
async fn a_summary_that_invents_or_loses_something_is_not_used() {
    for (summary, memories) in [
        ("The backup of the wiki runs every night at 04:00 on host alpha safely", json!([0, 1])),
        ("The backup of the wiki runs every night on host Gamma safely", json!([0, 1])),
        ("The backup of the wiki runs every night on host alpha safely", json!([0])),
        ("", json!([0, 1])),
    ] {
        let told = json!({ "summary": summary, "facts": [{ "text": SAFELY, "memories": memories }] });
        let server = model(move |_| says(&told)).await;
        let app = asking(&server).start().await;
        store(&app, NIGHTLY, json!({})).await;
        store(&app, SAFELY, json!({})).await;
        let answer = consolidate(&app).await;
        let cluster = &answer["clusters"][0];
        assert_eq!(cluster["summary_by"], "extractive", "{summary}: {answer}");
        assert!(cluster["note"].as_str().is_some_and(|note| note.contains("model")), "{answer}");
        app.stop().await;
    }
}

#[tokio::test]
async fn while_the_model_fails_the_memories_stay_as_they_are() {
    for failure in [
        ResponseTemplate::new(500),
        ResponseTemplate::new(200).set_body_string("no JSON"),
        ResponseTemplate::new(200).set_delay(Duration::from_secs(30)),
    ] {
        let server = model(move |_| failure.clone()).await;
        let app = asking(&server).start().await;
        store(&app, NIGHTLY, json!({})).await;
        store(&app, SAFELY, json!({})).await;
        let before = state(&app).await;
        let answer = consolidate(&app).await;
        assert_eq!((&answer["created"], &answer["degraded"]), (&json!([]), &json!(["llm"])), "{answer}");
        assert_eq!(answer["skipped"][0]["members"].as_array().unwrap().len(), 2);
        assert_eq!(answer["remaining"], 2);
        assert_eq!(state(&app).await, before);
        app.stop().await;
    }
}

#[tokio::test]
async fn a_model_that_keeps_failing_is_left_alone_and_shown_to_be_down() {
    let server = model(|_| ResponseTemplate::new(503)).await;
    let app = asking(&server).start().await;
    let ready = async || app.get("/readyz").await.json::<Value>().await.unwrap()["llm"].clone();
    assert_eq!(ready().await, "ok");
    store(&app, NIGHTLY, json!({})).await;
    store(&app, SAFELY, json!({})).await;
    for _ in 0..5 {
        consolidate(&app).await;
    }
    let asked = server.received_requests().await.unwrap().len();
    consolidate(&app).await;
    assert_eq!(server.received_requests().await.unwrap().len(), asked, "it is left alone");
    assert_eq!(ready().await, "down");
    app.stop().await;
}

#[tokio::test]
async fn who_asks_hears_how_far_it_is() {
    let app = TestApp::builder().consolidating().start().await;
    store(&app, NIGHTLY, json!({})).await;
    store(&app, SAFELY, json!({})).await;
    let answer = asked_for_progress(&app, "application/json, text/event-stream").await;
    let stream = answer.text().await.unwrap();
    let events: Vec<Value> = stream
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?.trim()).ok())
        .collect();
    let progress = events.iter().find(|event| event["method"] == "notifications/progress").unwrap();
    assert_eq!(
        (&progress["params"]["progressToken"], &progress["params"]["progress"]),
        (&json!("p1"), &json!(2.0))
    );
    let result = events.iter().find(|event| event["id"] == 1).unwrap();
    assert_eq!(result["result"]["structuredContent"]["complete"], true);
    app.stop().await;
}

#[tokio::test]
async fn who_reads_no_event_streams_gets_json_and_no_progress() {
    let app = TestApp::builder().consolidating().start().await;
    store(&app, NIGHTLY, json!({})).await;
    store(&app, SAFELY, json!({})).await;
    let answer = asked_for_progress(&app, "application/json").await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    let result: Value = answer.json().await.unwrap();
    assert_eq!(result["result"]["structuredContent"]["created"].as_array().unwrap().len(), 1, "{result}");
    app.stop().await;
}

async fn asked_for_progress(app: &TestApp, accept: &str) -> reqwest::Response {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "consolidate_memories", "arguments": { "scope": "user:1" }, "_meta": { "progressToken": "p1" },
        },
    });
    let request = reqwest::Client::new()
        .post(app.url("/mcp"))
        .bearer_auth(crate::support::ADMIN)
        .header("accept", accept)
        .json(&body);
    request.send().await.unwrap()
}
