//! Nothing that is stored, asked, tagged or shown as a token comes out where operators look: the log, whatever its filter
//! says, what is printed, Postgres' own log, the metrics, and the traces.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memser::mcp::ToolName;
use nix::sys::signal::Signal;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::collector::Collector;
use crate::support::process::{Running, data_folder};
use crate::support::wire::Wire;
use crate::support::{ADMIN, Client};

const SCOPE: &str = "user:scopevantor";
const KEY: &str = "sk-keydrimmel";
const WRONG_TOKEN: &str = "wrong-token-tokfrasby";
/// What must come out nowhere: words that mean nothing, one for each way in, and how vectors begin.
const PRIVATE: [&str; 17] = [
    "quixandrel",
    "vornmaith",
    "blistrogue",
    "taglurien",
    "srcmordeth",
    "metafrondel",
    "actbrellow",
    "idemkrasty",
    "argplowick",
    "bodyjunket",
    "typosklen",
    "scopevantor",
    "keydrimmel",
    "tokfrasby",
    ADMIN,
    "0.31415",
    "0.94939",
];

/// A model of either kind that answers as it should while `fault` is 0, and otherwise in ways that repeat what it was asked.
async fn echo(fault: Arc<AtomicUsize>) -> MockServer {
    let server = MockServer::start().await;
    let respond = move |request: &Request| {
        let said = String::from_utf8_lossy(&request.body).into_owned();
        let body: Value = request.body_json().unwrap();
        match fault.load(Ordering::SeqCst) {
            0 if body["input"].is_array() => {
                let texts = body["input"].as_array().unwrap().len();
                let vector = [0.314_159_27, 0.949_39, 0.0, 0.0];
                let data: Vec<Value> =
                    (0..texts).map(|index| json!({ "index": index, "embedding": vector })).collect();
                ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
            }
            // To a question this is no verdict and no summary.
            0 | 1 => ResponseTemplate::new(200).set_body_json(
                json!({ "choices": [{ "message": { "content": said } }], "data": [{ "index": said }] }),
            ),
            2 => ResponseTemplate::new(400).set_body_string(said),
            _ => ResponseTemplate::new(500).set_body_string(said),
        }
    };
    Mock::given(method("POST")).respond_with(respond).mount(&server).await;
    server
}

/// A memser with everything that it can be asked through.
struct Watched {
    running: Running,
    client: Client,
    http: reqwest::Client,
}

impl Watched {
    fn url(&self, path: &str) -> String {
        self.running.url.replace("/mcp", path)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = self.http.request(method, self.url(path)).bearer_auth(ADMIN);
        let answer =
            body.into_iter().fold(request, |request, body| request.json(&body)).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    async fn ok(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    async fn store(&self, content: &str) -> String {
        let stored = self.client.ok("store_memory", memory(content)).await;
        stored["id"].as_str().unwrap().to_owned()
    }

    /// Every tool, as it should be used.
    async fn tools(&self) {
        self.store("The quixandrel server listens on port 8080").await;
        let flagged = self.store("The quixandrel server listens on port 9090").await;
        self.store("Anna quixandrel walks her dog through the park every morning").await;
        self.store("Anna quixandrel walks her puppy through the park every morning").await;
        let client = &self.client;
        let working =
            json!({ "scope": SCOPE, "content": "The vornmaith is open for now", "ttl_seconds": 600 });
        client.ok("store_memory", working).await;
        client
            .ok(
                "recall_memory",
                json!({ "scope": SCOPE, "query": "blistrogue vornmaith", "tags": ["taglurien"] }),
            )
            .await;
        client
            .ok("list_memories", json!({ "scope": SCOPE, "tags": ["taglurien"], "source": "srcmordeth" }))
            .await;
        let resolve = json!({ "scope": SCOPE, "memory_id": flagged, "action": "merge", "content": "The quixandrel server listens on port 7070" });
        client.ok("resolve_conflict", resolve).await;
        client.ok("consolidate_memories", json!({ "scope": SCOPE })).await;
        let found = client.ok("search", json!({ "query": "quixandrel blistrogue" })).await;
        client.ok("fetch", json!({ "id": found["results"][0]["id"] })).await;
        let uri = found["results"][0]["url"].clone();
        for (method, params) in [
            ("resources/list", json!({})),
            ("resources/read", json!({ "uri": uri })),
            (
                "prompts/get",
                json!({ "name": "recall_context", "arguments": { "topic": "quixandrel", "scope": SCOPE } }),
            ),
            ("prompts/get", json!({ "name": "review_conflicts", "arguments": { "scope": SCOPE } })),
        ] {
            let answer = client.rpc(method, params).await;
            assert!(answer["error"].is_null(), "{method}: {answer}");
        }
        client.ok("forget_memory", json!({ "scope": SCOPE, "tags": ["taglurien"], "dry_run": true })).await;
    }

    /// Every route of `/v1`, as it should be used.
    async fn routes(&self) {
        let of_scope = format!("scope={SCOPE}");
        let stored =
            self.ok(Method::POST, "/v1/memories", Some(memory("The quixandrel lamp costs 10 euros"))).await;
        let other =
            self.ok(Method::POST, "/v1/memories", Some(memory("The quixandrel lamp costs 20 euros"))).await;
        let batch =
            json!({ "memories": [memory("A quixandrel sings"), memory("A quixandrel dances at noon")] });
        self.ok(Method::POST, "/v1/memories/batch", Some(batch)).await;
        self.ok(Method::GET, &format!("/v1/memories?{of_scope}&tags=taglurien&source=srcmordeth"), None)
            .await;
        let one = format!("/v1/memories/{}?{of_scope}", stored["id"].as_str().unwrap());
        self.ok(Method::GET, &one, None).await;
        self.ok(Method::POST, "/v1/recall", Some(json!({ "scope": SCOPE, "query": "blistrogue" }))).await;
        self.ok(Method::GET, &format!("/v1/conflicts?{of_scope}"), None).await;
        let resolve = json!({ "scope": SCOPE, "memory_id": other["id"], "action": "keep_both" });
        self.ok(Method::POST, "/v1/conflicts/resolve", Some(resolve)).await;
        self.ok(Method::POST, "/v1/consolidate", Some(json!({ "scope": SCOPE }))).await;
        for path in ["/v1/scopes?prefix=user:scopevantor", "/v1/audit", "/v1/jobs"] {
            self.ok(Method::GET, path, None).await;
        }
        self.ok(Method::DELETE, &one, None).await;
    }

    /// Whatever a client can get wrong.
    async fn mistakes(&self) {
        for (tool, arguments) in [
            ("store_memory", json!({ "scope": SCOPE, "content": "quixandrel".repeat(10_000) })),
            ("store_memory", json!({ "scope": SCOPE, "content": "", "argplowick": "argplowick" })),
            ("store_memory", json!({ "scope": SCOPE, "content": "quixandrel", "occurred_at": "argplowick" })),
            ("recall_memory", json!({ "scope": SCOPE, "query": "blistrogue", "k": "argplowick" })),
            ("recall_memory", json!({ "scope": ["argplowick"], "query": "blistrogue" })),
            ("forget_memory", json!({ "scope": SCOPE, "memory_id": "argplowick" })),
            ("list_memories", json!({ "scope": SCOPE, "cursor": "argplowick" })),
            ("fetch", json!({ "id": "argplowick" })),
        ] {
            self.client.refused(tool, arguments).await;
        }
        for (method, params) in [
            ("tools/call", json!({ "name": "typosklen", "arguments": { "content": "quixandrel" } })),
            ("resources/read", json!({ "uri": "memory:///typosklen/quixandrel" })),
            ("prompts/get", json!({ "name": "typosklen", "arguments": {} })),
            ("typosklen/quixandrel", json!({ "quixandrel": "blistrogue" })),
        ] {
            let answer = self.client.rpc(method, params).await;
            assert!(answer["error"].is_object(), "{method}: {answer}");
        }
        for (method, params) in [
            ("notifications/cancelled", json!({ "requestId": 1, "reason": "typosklen" })),
            ("notifications/typosklen", json!({ "quixandrel": "blistrogue" })),
        ] {
            let body = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            assert_eq!(self.ask(Method::POST, "/mcp", Some(body)).await.0, 202, "{method}");
        }
        for path in ["/mcp", "/v1/memories", "/v1/recall"] {
            let request = self.http.post(self.url(path)).bearer_auth(ADMIN);
            let request = request.header("content-type", "application/json");
            let answer =
                request.body(r#"{"content": "bodyjunket", "query": bodyjunket"#).send().await.unwrap();
            assert_eq!(answer.status(), 400, "{path}");
        }
        let path = "/v1/memories?scope=user:scopevantor&argplowick=argplowick&tags=taglurien";
        assert_eq!(self.ask(Method::GET, path, None).await.0, 400);
        let wrong = Client::new(self.url("/mcp"), WRONG_TOKEN);
        assert_eq!(wrong.post("tools/list", json!({ "quixandrel": 1 })).await.status(), 401);
    }
}

fn memory(content: &str) -> Value {
    json!({
        "scope": SCOPE, "content": content, "tags": ["taglurien"], "source": "srcmordeth", "actor": "actbrellow",
        "metadata": { "metafrondel": "metafrondel" }, "idempotency_key": format!("idemkrasty {content}"),
        "on_conflict": "flag",
    })
}

/// Whether each tool was used, and each path of the description with each of its methods.
async fn assert_all_was_used(memser: &Watched, metrics: &str) {
    for tool in ToolName::ALL.into_iter().chain(ToolName::CONNECTOR) {
        let used = format!(
            r#"memser_call_duration_seconds_count{{call="{}",via="mcp",outcome="ok"}}"#,
            tool.as_str()
        );
        assert!(metrics.contains(&used), "{used}");
    }
    let document = memser.ok(Method::GET, "/openapi.json", None).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let used = format!(r#"duration_seconds_count{{method="{method}",route="{path}",status="20"#);
            assert!(metrics.contains(&used), "{used}");
        }
    }
}

async fn nothing_comes_out(format: &str) {
    let fault = Arc::new(AtomicUsize::new(0));
    let (model, collector) = (echo(Arc::clone(&fault)).await, Collector::start(KEY).await);
    let redis = std::env::var("MEMSER_TEST_REDIS_URL").expect("run by scripts/test-services.sh");
    let wire = Wire::to(redis.trim_start_matches("redis://").trim_end_matches("/0").to_owned()).await;
    let data = data_folder();
    let running = Running::start(
        data.path(),
        &[
            ("MEMSER_LOG", "trace"),
            ("MEMSER_LOG_FORMAT", format),
            ("MEMSER_TOKEN", ADMIN),
            ("MEMSER_CONNECTOR_TOOLS", "true"),
            ("REDIS_URL", &format!("redis://{}", wire.address)),
            ("EMBEDDER", "openai"),
            ("EMBEDDING_URL", &model.uri()),
            ("EMBEDDING_MODEL", "tiny"),
            ("EMBEDDING_DIMENSIONS", "4"),
            ("OPENAI_API_KEY", KEY),
            ("JUDGE", "llm"),
            ("LLM_URL", &model.uri()),
            ("LLM_MODEL", "tiny"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()),
            ("OTEL_EXPORTER_OTLP_HEADERS", &format!("x-key={KEY}")),
        ],
    );
    let (client, http) = (running.client(ADMIN), reqwest::Client::new());
    let mut memser = Watched { running, client, http };
    memser.tools().await;
    memser.routes().await;
    memser.mistakes().await;
    // Over HTTP/2 as well, whose library has much to say.
    memser.http = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    memser.ok(Method::POST, "/v1/recall", Some(json!({ "scope": SCOPE, "query": "blistrogue" }))).await;
    for wrong in [1, 2, 3] {
        fault.store(wrong, Ordering::SeqCst);
        memser.store(&format!("The quixandrel comes back at {wrong} o'clock")).await;
        memser.client.recall(SCOPE, &format!("blistrogue {wrong}")).await;
    }
    wire.whole.send_replace(false);
    let working = json!({ "scope": SCOPE, "content": "vornmaith again", "ttl_seconds": 60 });
    assert_eq!(memser.client.refused("store_memory", working).await["code"], "unavailable");
    memser.client.recall(SCOPE, "blistrogue").await;
    memser.ok(Method::POST, "/v1/forget", Some(json!({ "scope": SCOPE, "tier": "episodic" }))).await;
    memser.client.refused("forget_memory", json!({ "scope": SCOPE, "tags": ["taglurien"] })).await;
    let metrics = memser.http.get(memser.url("/metrics")).bearer_auth(ADMIN).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    assert_all_was_used(&memser, &metrics).await;

    memser.running.signal(Signal::SIGTERM);
    let (status, printed, log) = memser.running.end().await;
    assert_eq!(status, Some(0), "{log}");
    let traces = collector.bodies().await.concat();
    let traces = String::from_utf8_lossy(&traces).into_owned();
    let postgres = fs::read_to_string(data.path().join("postgres.log")).unwrap();
    // What says nothing would keep every secret.
    for (text, word) in [
        (&log, "/v1/conflicts/resolve"),
        (&log, "unavailable"),
        (&log, "sqlx::postgres::notice"),
        (&traces, "store_memory"),
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    for (name, text) in [
        ("log", log),
        ("output", printed),
        ("postgres.log", postgres),
        ("metrics", metrics),
        ("traces", traces),
    ] {
        for private in PRIVATE {
            let line = text.lines().find(|line| line.to_lowercase().contains(&private.to_lowercase()));
            assert_eq!(line, None, "{private} is in the {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_comes_out_of_a_memser_that_logs_text() {
    nothing_comes_out("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_comes_out_of_a_memser_that_logs_json() {
    nothing_comes_out("json").await;
}
