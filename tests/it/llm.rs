//! The judge by language model: what it may decide, what becomes of a store when it fails, and that nobody waits for it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::{TestApp, TestAppBuilder};

/// Near, and neither the same words nor a value in place of another.
const OLD: &str = "Anna walks her dog through the park every morning";
const NEW: &str = "Anna walks her puppy through the park every morning";

fn asking(url: &str) -> TestAppBuilder {
    TestApp::builder()
        .set("JUDGE", "llm")
        .set("LLM_URL", url)
        .set("LLM_MODEL", "tiny")
        .set("LLM_API_KEY", "sk-test")
        .set("LLM_TIMEOUT_SECONDS", "1")
}

/// What the model was shown.
fn shown(request: &Request) -> Value {
    let body: Value = request.body_json().unwrap();
    serde_json::from_str(body["messages"][1]["content"].as_str().unwrap()).unwrap()
}

fn says(content: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "choices": [{ "message": { "content": content } }] }))
}

/// The same verdict on every text that is shown.
fn verdict(request: &Request, verdict: &str) -> ResponseTemplate {
    let count = shown(request)["old"].as_array().unwrap().len();
    let verdicts: Vec<Value> =
        (0..count).map(|number| json!({ "number": number, "verdict": verdict })).collect();
    says(&json!({ "verdicts": verdicts }).to_string())
}

async fn model(answer: impl Fn(&Request) -> ResponseTemplate + Send + Sync + 'static) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/v1/chat/completions"))
        .and(header("authorization", "Bearer sk-test"))
        .respond_with(answer)
        .mount(&server)
        .await;
    server
}

fn url(server: &MockServer) -> String {
    format!("{}/v1", server.uri())
}

async fn store(app: &TestApp, content: &str) -> Value {
    app.admin().ok("store_memory", json!({ "scope": "user:1", "content": content })).await
}

#[tokio::test]
async fn it_decides_what_the_rules_leave_open() {
    for (opinion, outcome) in [("duplicate", "duplicate"), ("conflict", "superseded"), ("distinct", "stored")]
    {
        let server = model(move |request| verdict(request, opinion)).await;
        let app = asking(&url(&server)).start().await;
        let old = store(&app, OLD).await;
        let new = store(&app, NEW).await;
        assert_eq!(new["outcome"], outcome);
        assert_eq!(new["degraded"], json!([]));
        if opinion == "duplicate" {
            assert_eq!(new["duplicate_of"]["id"], old["id"]);
        }
        let requests = server.received_requests().await.unwrap();
        assert_eq!(requests.len(), 1, "the first store has nothing to compare");
        let body: Value = requests[0].body_json().unwrap();
        assert_eq!(body["response_format"]["json_schema"]["schema"]["additionalProperties"], false);
        assert_eq!(shown(&requests[0]), json!({ "new": NEW, "old": [{ "number": 0, "text": OLD }] }));
        app.stop().await;
    }
}

#[tokio::test]
async fn it_is_not_asked_again_when_a_store_is_repeated_with_its_key() {
    let server = model(|request| verdict(request, "distinct")).await;
    let app = asking(&url(&server)).start().await;
    store(&app, OLD).await;
    let keyed = json!({ "scope": "user:1", "content": NEW, "idempotency_key": "walk" });
    let first = app.admin().ok("store_memory", keyed.clone()).await;
    assert_eq!(first["outcome"], "stored");
    // As long as its text is active, nobody would need to be asked anyway.
    let other = json!({ "scope": "user:1", "content": "Ravi keeps bees in Lyon", "replaces": first["id"] });
    app.admin().ok("store_memory", other).await;
    assert_eq!(app.admin().ok("store_memory", keyed).await, first);
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
    app.stop().await;
}

#[tokio::test]
async fn it_is_not_asked_about_what_the_rules_know() {
    let server = model(|request| verdict(request, "distinct")).await;
    let app = asking(&url(&server)).start().await;
    store(&app, "The staging server listens on port 8080").await;
    assert_eq!(store(&app, "The staging server listens on port 8081").await["outcome"], "superseded");
    assert_eq!(store(&app, "the staging server listens on PORT 8081!").await["outcome"], "duplicate");
    assert_eq!(store(&app, "On port 8081 the staging server listens").await["outcome"], "duplicate");
    assert_eq!(store(&app, "Bread needs flour, water, salt and time").await["outcome"], "stored");
    assert!(server.received_requests().await.unwrap().is_empty());
    app.stop().await;
}

#[tokio::test]
async fn it_makes_no_duplicate_of_a_difference_that_carries_meaning() {
    let server = model(|request| verdict(request, "duplicate")).await;
    let app = asking(&url(&server)).start().await;
    store(&app, "On Sunday we met Caroline at the zoo near the lake").await;
    assert_eq!(store(&app, "On Sunday we met Melanie at the zoo near the lake").await["outcome"], "stored");
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
    app.stop().await;
}

#[tokio::test]
async fn where_it_fails_the_rules_decide_and_the_answer_says_so() {
    let answers: Vec<fn(&Request) -> ResponseTemplate> = vec![
        |_| ResponseTemplate::new(500),
        |_| ResponseTemplate::new(429),
        |_| ResponseTemplate::new(200).set_body_string("no JSON"),
        |_| ResponseTemplate::new(200).set_body_json(json!({ "choices": [] })),
        |_| says("a duplicate, I think"),
        |_| says(r#"{"verdicts":[]}"#),
        |_| says(r#"{"verdicts":[{"number":7,"verdict":"duplicate"}]}"#),
        |_| says(r#"{"verdicts":[{"number":0,"verdict":"same"}]}"#),
        |_| says(&"x".repeat(300_000)),
        |request| verdict(request, "duplicate").set_delay(Duration::from_mins(1)),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        let server = model(answer).await;
        let app = asking(&url(&server)).start().await;
        store(&app, OLD).await;
        let new = store(&app, NEW).await;
        assert_eq!((&new["outcome"], &new["degraded"]), (&json!("stored"), &json!(["llm"])), "answer {at}");
        app.stop().await;
    }
}

#[tokio::test]
async fn without_anybody_at_its_address_a_store_succeeds() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let app = asking(&format!("http://127.0.0.1:{port}/v1")).start().await;
    store(&app, OLD).await;
    let new = store(&app, NEW).await;
    assert_eq!((&new["outcome"], &new["degraded"]), (&json!("stored"), &json!(["llm"])));
    app.stop().await;
}

#[tokio::test]
async fn no_store_waits_for_it_and_its_verdict_holds_for_what_it_was_shown() {
    let (asked, mut was_asked) = mpsc::unbounded_channel();
    let server = model(move |request| {
        asked.send(()).unwrap();
        verdict(request, "duplicate").set_delay(Duration::from_secs(2))
    })
    .await;
    let app = asking(&url(&server)).set("LLM_TIMEOUT_SECONDS", "30").start().await;
    let old = store(&app, OLD).await;
    let client = app.admin();
    let waiting =
        tokio::spawn(
            async move { client.ok("store_memory", json!({ "scope": "user:1", "content": NEW })).await },
        );
    was_asked.recv().await.unwrap();
    // The scope is free meanwhile, and what was compared is replaced.
    let arguments =
        json!({ "scope": "user:1", "content": "Bread needs flour, water, salt", "replaces": old["id"] });
    let replacing = app.admin().ok("store_memory", arguments).await;
    assert_eq!(replacing["outcome"], "superseded");
    assert!(!waiting.is_finished());
    assert_eq!(waiting.await.unwrap()["outcome"], "stored");
    app.stop().await;
}
