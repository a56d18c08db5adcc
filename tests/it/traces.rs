//! Traces: a client's trace goes on through memser to whom memser asks, and is sent to a collector.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::Signal;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::collector::{Collector, Span};
use crate::support::process::{Running, memser, output};
use crate::support::{ADMIN, TestDatabase, embedder};

const SERVES: i32 = 2;
const ASKS: i32 = 3;
const PARENT: &str = "00f067aa0ba902b7";
/// Everything in words that the spans of these calls say.
const TOLD: [&str; 9] = [
    "committed",
    "db.system.name",
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "http.request.method",
    "http.route",
    "outcome",
    "request_id",
    "via",
];

fn traceparent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{PARENT}-{flags}")
}

fn store(content: &str, meta: &Value) -> Value {
    let arguments = json!({ "scope": "user:1", "content": content });
    let params = json!({ "name": "store_memory", "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

async fn ok(request: RequestBuilder) {
    let answer = request.bearer_auth(ADMIN).send().await.unwrap();
    let (status, body) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert!(status.is_success() && body["result"]["isError"] != true, "{status}: {body}");
}

fn told(spans: &[Span]) -> BTreeSet<&str> {
    spans.iter().flat_map(|span| span.attributes.keys()).map(String::as_str).collect()
}

/// The only span of that name in a trace.
fn only<'a>(spans: &'a [Span], trace: &str, name: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.trace == trace && span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {trace}: {spans:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_trace_goes_on_to_the_embedder_and_to_the_collector() {
    let [header, outer, meta, unsampled] = ["a1", "b2", "c3", "d4"].map(|pair| pair.repeat(16));
    let collector = Collector::start("a key").await;
    let endpoint = embedder::endpoint(|_| vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).await;
    let (database, collect, ask) = (TestDatabase::create().await, collector.url(), endpoint.uri());
    let running = Running::run(memser(
        &[],
        &[
            ("DATABASE_URL", database.url.as_str()),
            ("MEMSER_TOKEN", ADMIN),
            ("ENABLE_SCHEDULER", "false"),
            ("EMBEDDER", "openai"),
            ("EMBEDDING_URL", &ask),
            ("EMBEDDING_MODEL", "tiny"),
            ("EMBEDDING_DIMENSIONS", "8"),
            // What is logged has no say in what is sent.
            ("MEMSER_LOG", "error"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collect),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20key"),
            ("OTEL_SERVICE_NAME", "memory"),
        ],
    ));
    let (mcp, http) = (running.url.clone(), reqwest::Client::new());
    let rest = mcp.replace("/mcp", "/v1/recall");
    let post = |url: &str, trace: &str, flags: &str, body: &Value| {
        http.post(url).header("traceparent", traceparent(trace, flags)).json(body)
    };
    ok(post(&mcp, &header, "01", &store("Tea at four", &json!({})))).await;
    let own = json!({ "traceparent": traceparent(&meta, "01") });
    ok(post(&mcp, &outer, "01", &store("Coffee at nine", &own))).await;
    ok(post(&mcp, &unsampled, "00", &store("Water at six", &json!({})))).await;
    ok(post(&rest, &header, "01", &json!({ "scope": "user:1", "query": "when is tea" }))).await;
    ok(http.get(mcp.replace("/mcp", "/v1/scopes"))).await;
    let made_up = reqwest::Method::from_bytes(b"BREW").unwrap();
    http.request(made_up, mcp.replace("/mcp", "/tea")).send().await.unwrap();
    running.signal(Signal::SIGTERM);
    let (status, _, logged) = running.end().await;
    assert_eq!((status, logged.as_str()), (Some(0), ""));

    let spans = collector.spans().await;
    assert!(spans.iter().all(|span| span.service == "memory" && !span.is_error), "{spans:#?}");
    let (request, call) = (only(&spans, &header, "POST /mcp"), only(&spans, &header, "store_memory"));
    assert_eq!((request.parent.as_str(), request.kind), (PARENT, SERVES));
    for (name, value) in [("http.request.method", "POST"), ("http.route", "/mcp")] {
        assert_eq!(request.attributes[name], value);
    }
    // Nothing is sent that was not meant to be, and what is counted or compared is a number.
    assert_eq!(told(&spans), BTreeSet::from(TOLD));
    assert_eq!(request.numbers, BTreeMap::from([("http.response.status_code".to_owned(), 200)]));
    assert_eq!(
        (&call.parent, &*call.attributes["via"], &*call.attributes["outcome"]),
        (&request.id, "mcp", "ok")
    );
    let asked: Vec<&Span> =
        spans.iter().filter(|span| span.trace == header && span.name == "embeddings tiny").collect();
    let recall = only(&spans, &header, "recall_memory");
    assert_eq!(
        (&recall.parent, &*recall.attributes["via"]),
        (&only(&spans, &header, "POST /v1/recall").id, "rest")
    );
    let mut askers: Vec<&str> = asked.iter().map(|span| span.parent.as_str()).collect();
    askers.sort_unstable();
    let mut callers = [call.id.as_str(), recall.id.as_str()];
    callers.sort_unstable();
    assert_eq!(askers, callers);
    assert!(asked.iter().all(|span| span.kind == ASKS), "{asked:#?}");
    let committed = |span: &&Span| {
        span.name == "transaction" && span.parent == call.id && span.attributes["committed"] == "true"
    };
    assert!(spans.iter().any(|span| committed(&span)), "{spans:#?}");

    // The message's own trace has the call; the request's has the request, to which the call is linked.
    let call = only(&spans, &meta, "store_memory");
    assert_eq!(
        (call.parent.as_str(), &call.links),
        (PARENT, &vec![only(&spans, &outer, "POST /mcp").id.clone()])
    );
    // A client that does not want its trace written does not get it written; one without a trace gets one.
    assert!(spans.iter().all(|span| span.trace != unsampled), "{spans:#?}");
    let alone = spans.iter().find(|span| span.name == "GET /v1/scopes").unwrap();
    assert_eq!(alone.parent, "");
    assert!(
        spans
            .iter()
            .any(|span| span.name == "other none" && span.attributes["http.request.method"] == "other")
    );

    let mut told = Vec::new();
    for request in endpoint.received_requests().await.unwrap() {
        told.push(request.headers["traceparent"].to_str().unwrap().to_owned());
    }
    for span in asked {
        assert!(told.contains(&format!("00-{header}-{}-01", span.id)), "{told:?}");
    }
    assert!(
        told.iter().any(|told| told.starts_with(&format!("00-{unsampled}-")) && told.ends_with("-00")),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_errors_in_a_trace_and_refusals_are_not_and_sweeps_are_traces() {
    let collector = Collector::start("k").await;
    let database = TestDatabase::create().await;
    let collect = collector.url();
    // Bound and dropped: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let redis = format!("redis://{closed}");
    let settings = [
        ("DATABASE_URL", database.url.as_str()),
        ("REDIS_URL", &redis),
        ("MEMSER_TOKEN", ADMIN),
        ("ENABLE_SCHEDULER", "false"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &collect),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k"),
    ];
    let running = Running::run(memser(&[], &settings));
    let client = running.client(ADMIN);
    client.refused("store_memory", json!({ "scope": "user:1", "content": "now", "ttl_seconds": 60 })).await;
    client.refused("recall_memory", json!({ "scope": "user:1", "query": "" })).await;
    running.signal(Signal::SIGTERM);
    assert_eq!(running.end().await.0, Some(0));
    assert_eq!(output(&["jobs", "run", "prune"], &settings).status.code(), Some(0));
    let spans = collector.spans().await;
    let outcome = |name: &str| {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(span.service, "memser");
        (span.attributes["outcome"].as_str(), span.is_error)
    };
    assert_eq!(outcome("store_memory"), ("unavailable", true));
    assert_eq!(outcome("recall_memory"), ("invalid_argument", false));
    // What nobody asked for is a trace as well, with what it does in it.
    let sweep = spans.iter().find(|span| span.name == "sweep prune").unwrap();
    assert_eq!((sweep.parent.as_str(), sweep.attributes["job"].as_str()), ("", "prune"));
    assert!(spans.iter().any(|span| span.name == "transaction" && span.parent == sweep.id), "{spans:#?}");
    assert!(spans.iter().all(|span| span.name != "transaction" || !span.parent.is_empty()), "{spans:#?}");
}
