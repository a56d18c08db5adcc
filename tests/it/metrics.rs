//! What `/metrics` tells of the work of one process, and what it must never tell.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use memser::jobs::{Ran, Sweep};
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{ADMIN, TestApp};

/// The lines that begin with `name`, sorted.
async fn lines(app: &TestApp, name: &str) -> Vec<String> {
    let text = app.get("/metrics").await.text().await.unwrap();
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn sorted<const N: usize>(expected: [&str; N]) -> Vec<String> {
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.sort();
    expected
}

#[tokio::test]
async fn calls_are_counted_by_what_became_of_them() {
    let app = TestApp::builder().token("reader-of-user-1", &["user:1=read"]).start().await;
    let client = app.admin();
    let store = json!({ "scope": "user:1", "content": "The secret garden opens at nine" });
    client.ok("store_memory", store.clone()).await;
    client.ok("store_memory", store.clone()).await;
    client.ok("recall_memory", json!({ "scope": "user:1", "query": "garden" })).await;
    client.call("recall_memory", json!({ "scope": "user:1", "query": "" })).await;
    app.client("reader-of-user-1").call("recall_memory", json!({ "scope": "user:2", "query": "x" })).await;
    let http = reqwest::Client::new();
    for body in [json!({ "scope": "user:1", "query": "garden" }), json!({ "query": 7 })] {
        http.post(app.url("/v1/recall")).bearer_auth(ADMIN).json(&body).send().await.unwrap();
    }
    let counts = lines(&app, "memser_call_duration_seconds_count").await;
    assert_eq!(
        counts,
        sorted([
            r#"memser_call_duration_seconds_count{call="store_memory",via="mcp",outcome="ok"} 2"#,
            r#"memser_call_duration_seconds_count{call="recall_memory",via="mcp",outcome="ok"} 1"#,
            r#"memser_call_duration_seconds_count{call="recall_memory",via="mcp",outcome="invalid_argument"} 1"#,
            r#"memser_call_duration_seconds_count{call="recall_memory",via="mcp",outcome="scope_not_granted"} 1"#,
            r#"memser_call_duration_seconds_count{call="recall_memory",via="rest",outcome="ok"} 1"#,
            r#"memser_call_duration_seconds_count{call="recall_memory",via="rest",outcome="invalid_argument"} 1"#,
        ])
    );
    let stores = lines(&app, "memser_stores_total").await;
    assert_eq!(
        stores,
        sorted([
            r#"memser_stores_total{outcome="stored"} 1"#,
            r#"memser_stores_total{outcome="duplicate"} 1"#
        ])
    );
    assert_eq!(
        lines(&app, "memser_memories{").await,
        [r#"memser_memories{tier="episodic"} 1"#, r#"memser_memories{tier="semantic"} 0"#]
    );
    app.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_route_and_never_by_what_a_client_makes_up() {
    let app = TestApp::start().await;
    let id = "0198c9a4-0000-7000-8000-000000000000";
    let http = reqwest::Client::new();
    for path in [format!("/v1/memories/{id}?scope=user:1"), "/made/up".to_owned()] {
        assert_eq!(app.get(&path).await.status(), 404);
    }
    let strange = reqwest::Method::from_bytes(b"BREW").unwrap();
    http.request(strange, app.url("/livez")).send().await.unwrap();
    http.get(app.url("/metrics")).send().await.unwrap();
    let counts = lines(&app, "memser_http_request_duration_seconds_count").await;
    assert_eq!(
        counts,
        sorted([
            r#"memser_http_request_duration_seconds_count{method="GET",route="/v1/memories/{id}",status="404"} 1"#,
            r#"memser_http_request_duration_seconds_count{method="GET",route="none",status="404"} 1"#,
            r#"memser_http_request_duration_seconds_count{method="other",route="/livez",status="405"} 1"#,
            r#"memser_http_request_duration_seconds_count{method="GET",route="/metrics",status="401"} 1"#,
        ])
    );
    app.stop().await;
}

/// A memser whose embedder refuses everything.
async fn without_embedder() -> (TestApp, MockServer) {
    let endpoint = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(400)).mount(&endpoint).await;
    let app = TestApp::builder()
        .set("EMBEDDER", "openai")
        .set("EMBEDDING_URL", endpoint.uri())
        .set("EMBEDDING_MODEL", "tiny")
        .set("EMBEDDING_DIMENSIONS", "8")
        .start()
        .await;
    (app, endpoint)
}

#[tokio::test]
async fn an_embedder_that_fails_shows_in_questions_and_in_degraded_answers() {
    let (app, _endpoint) = without_embedder().await;
    let stored = app.admin().ok("store_memory", json!({ "scope": "user:1", "content": "Tea at four" })).await;
    assert_eq!(stored["degraded"], json!(["embedder"]));
    assert_eq!(
        lines(&app, "memser_provider_duration_seconds_count").await,
        [r#"memser_provider_duration_seconds_count{provider="embedder",outcome="failed"} 1"#]
    );
    assert_eq!(
        lines(&app, "memser_degraded_answers_total").await,
        [r#"memser_degraded_answers_total{part="embedder"} 1"#]
    );
    app.stop().await;
}

#[tokio::test]
async fn no_scope_text_id_or_token_is_in_the_metrics() {
    let app = TestApp::builder().token("reader-of-user-1", &["user:1=read"]).start().await;
    let stored = app
        .admin()
        .ok("store_memory", json!({ "scope": "team:blue-heron", "content": "Zanzibar sails on Friday", "tags": ["voyage"], "source": "logbook", "actor": "skipper" }))
        .await;
    app.admin().ok("recall_memory", json!({ "scope": "team:blue-heron", "query": "Zanzibar" })).await;
    app.client("reader-of-user-1")
        .call("recall_memory", json!({ "scope": "team:blue-heron", "query": "Zanzibar" }))
        .await;
    let text = app.get("/metrics").await.text().await.unwrap();
    let id = stored["id"].as_str().unwrap();
    for secret in
        ["blue-heron", "Zanzibar", "voyage", "logbook", "skipper", ADMIN, "reader-of-user-1", "user:1", id]
    {
        assert!(!text.contains(secret), "{secret}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_listener_of_their_own_shows_metrics_without_a_token_and_nothing_else() {
    let app = TestApp::builder().set("MEMSER_METRICS_BIND", "127.0.0.1:0").start().await;
    let address = app.metrics.unwrap();
    let text = reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains("memser_build_info{version="), "{text}");
    for path in ["/mcp", "/v1/scopes", "/livez"] {
        assert_eq!(reqwest::get(format!("http://{address}{path}")).await.unwrap().status(), 404);
    }
    app.stop().await;
    assert!(reqwest::get(format!("http://{address}/metrics")).await.is_err());
}

#[tokio::test]
async fn a_sweep_is_counted_where_it_ran() {
    let app = TestApp::start().await;
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    assert_eq!(
        lines(&app, "memser_sweep_duration_seconds_count").await,
        [r#"memser_sweep_duration_seconds_count{sweep="prune",outcome="done"} 1"#]
    );
    app.stop().await;
}

#[tokio::test]
async fn a_sweep_is_told_to_be_awaited_only_where_it_has_an_interval() {
    let app = TestApp::builder()
        .set("CONSOLIDATION_INTERVAL_MINUTES", "0")
        .set("DECAY_INTERVAL_MINUTES", "120")
        .start()
        .await;
    assert_eq!(
        lines(&app, "memser_sweep_interval_seconds{").await,
        [
            r#"memser_sweep_interval_seconds{sweep="decay"} 7200.0"#,
            r#"memser_sweep_interval_seconds{sweep="embed"} 15.0"#,
            r#"memser_sweep_interval_seconds{sweep="prune"} 600.0"#,
        ]
    );
    app.stop().await;
}

/// The names that begin with `memser_` in a file of this repository.
fn named(path: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("memser_")).map(str::to_owned).collect()
}

/// Whoever is called at night finds what an alert means, and promtool has seen each of them fire.
#[test]
fn every_alert_is_in_the_manual_and_was_tried() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let rules = read("deploy/prometheus/alerts.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    let (manual, tried) = (read("docs/operations.md"), read("deploy/prometheus/alerts_test.yml"));
    for alert in alerts {
        assert!(manual.contains(&format!("`{alert}`")), "{alert}");
        assert!(tried.contains(&format!("alertname: {alert}\n        exp_alerts:")), "{alert}");
    }
}

/// Alerts and dashboards ask for nothing that memser does not show, and the manual names all of it.
#[tokio::test]
async fn what_alerts_and_dashboards_ask_for_is_there() {
    // What was never counted is not shown.
    let (app, _endpoint) = without_embedder().await;
    app.admin().ok("store_memory", json!({ "scope": "user:1", "content": "Tea at four" })).await;
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let text = app.get("/metrics").await.text().await.unwrap();
    app.stop().await;
    let shown: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .flat_map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let endings: &[&str] = match kind {
                "histogram" => &["", "_bucket", "_count", "_sum"],
                "counter" => &["_total"],
                "info" => &["_info"],
                _ => &[""],
            };
            endings.iter().map(move |ending| format!("{name}{ending}"))
        })
        .collect();
    for file in ["deploy/prometheus/alerts.yml", "deploy/grafana/memser.json"] {
        let asked = named(file);
        assert!(!asked.is_empty());
        let unknown: Vec<_> = asked.difference(&shown).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let manual = named("docs/operations.md");
    let parts = ["_bucket", "_count", "_sum"];
    let unsaid: Vec<_> = shown
        .iter()
        .filter(|name| !manual.contains(*name) && !parts.iter().any(|part| name.ends_with(part)))
        .collect();
    assert!(unsaid.is_empty(), "the manual lacks {unsaid:?}");
}
