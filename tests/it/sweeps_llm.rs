//! Consolidation by sweep while the language model fails: for everybody, or for one scope alone.

use std::time::Duration;

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::TestApp;

const HOUR: Duration = Duration::from_hours(1);

/// Two memories of each of so many things that a scope is told.
async fn fill(app: &TestApp, scope: &str, things: usize) {
    const THINGS: [&str; 4] = [
        "backup of the wiki runs every night on host alpha",
        "violin lesson of Anna takes place at noon",
        "bread of the bakery needs flour and water",
        "invoice of the landlord arrives by post",
    ];
    for thing in &THINGS[..things] {
        for more in ["", " as usual"] {
            app.admin().store(scope, &format!("The {scope} {thing}{more}")).await;
        }
    }
}

/// A model that answers as it should where `fails` says nothing else of what it is shown.
async fn model(fails: impl Fn(&str) -> Option<ResponseTemplate> + Send + Sync + 'static) -> MockServer {
    let server = MockServer::start().await;
    let respond = move |request: &Request| {
        let body: Value = request.body_json().unwrap();
        let shown = body["messages"][1]["content"].as_str().unwrap();
        fails(shown).unwrap_or_else(|| {
            let shown: Value = serde_json::from_str(shown).unwrap();
            // The last of the memories says everything.
            let last = shown["memories"].as_array().unwrap().last().unwrap()["text"].clone();
            let told = json!({ "summary": last, "facts": [{ "text": last, "memories": [0, 1] }] });
            let message = json!({ "content": told.to_string() });
            ResponseTemplate::new(200).set_body_json(json!({ "choices": [{ "message": message }] }))
        })
    };
    Mock::given(method("POST")).respond_with(respond).mount(&server).await;
    server
}

async fn start(server: &MockServer) -> TestApp {
    TestApp::builder()
        .consolidating()
        .set("LLM_URL", format!("{}/v1", server.uri()))
        .set("LLM_MODEL", "tiny")
        .set("LLM_TIMEOUT_SECONDS", "1")
        .start()
        .await
}

async fn facts(app: &TestApp, scope: &str) -> usize {
    let listed = app.admin().ok("list_memories", json!({ "scope": scope, "tier": "semantic" })).await;
    listed["memories"].as_array().unwrap().len()
}

/// The scopes that a failure was counted for, with how many.
async fn blamed(app: &TestApp) -> Vec<(String, i32, String)> {
    let mut connection = app.database.connect().await;
    sqlx::query_as(
        "select name, tries, reason from consolidation_failures join scopes using (scope_id) order by name",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn while_the_model_is_down_every_run_fails_and_no_scope_is_blamed() {
    for failure in [
        ResponseTemplate::new(503),
        ResponseTemplate::new(401),
        ResponseTemplate::new(200).set_body_string("no JSON"),
    ] {
        let server = model(move |_| Some(failure.clone())).await;
        let app = start(&server).await;
        for scope in ["one", "two", "three", "four"] {
            fill(&app, scope, 1).await;
        }
        for _ in 0..4 {
            // A cron's memser knows nothing of the run before.
            let cron = TestApp::builder()
                .consolidating()
                .set("LLM_URL", format!("{}/v1", server.uri()))
                .set("LLM_MODEL", "tiny")
                .beside(&app)
                .start()
                .await;
            for replica in [&app, &cron] {
                assert_eq!(replica.jobs.run(Sweep::Consolidate).await, Ran::Failed);
            }
            app.clock.advance(HOUR);
            cron.stop().await;
        }
        assert_eq!(blamed(&app).await, []);
        app.stop().await;
    }
}

#[tokio::test]
async fn a_scope_that_the_model_always_fails_is_parked_and_the_others_proceed() {
    for failure in [ResponseTemplate::new(503), ResponseTemplate::new(400)] {
        let server = model(move |shown| shown.contains("poison").then(|| failure.clone())).await;
        let app = start(&server).await;
        // It is the fullest, so that it comes first, and fails often enough to have the model left alone.
        fill(&app, "poison", 4).await;
        for tries in 1..=3 {
            let other = format!("other-{tries}");
            fill(&app, &other, 2).await;
            assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Failed);
            assert_eq!(facts(&app, &other).await, 2, "try {tries}");
            app.clock.advance(HOUR);
        }
        let jobs: Value = app.get("/v1/jobs").await.json().await.unwrap();
        let parked = jobs["parked"].as_array().unwrap();
        assert_eq!((parked.len(), &parked[0]["scope"]), (1, &json!("poison")), "{jobs}");
        assert!(parked[0]["reason"].as_str().unwrap().starts_with("unavailable"), "{jobs}");
        assert_eq!(facts(&app, "poison").await, 0);
        // The next run leaves it alone.
        assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Done);
        app.stop().await;
    }
}
