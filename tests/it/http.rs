//! The transport's own answers, over a socket.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use memser::auth::{Auth, TokenLimits};
use memser::clock::Clock;
use memser::http::{Ends, HttpSettings, router};
use memser::mcp::Handler;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{TestApp, embedder};

const READER: &str = "Bearer reader-token";
const WRITER: &str = "Bearer writer-token";

/// The service on a port of its own, and what sends requests to it as they are.
struct Service {
    address: SocketAddr,
    http: HttpClient<HttpConnector, Body>,
    /// Runs as long as the service is there.
    _app: Option<TestApp>,
}

/// The service of a memser of its own.
async fn service(change: impl FnOnce(&mut HttpSettings)) -> Service {
    let app = TestApp::start().await;
    let service = service_of(&app, change).await;
    Service { _app: Some(app), ..service }
}

/// A service on the engine of a running memser.
async fn service_of(app: &TestApp, change: impl FnOnce(&mut HttpSettings)) -> Service {
    let mut auth = Auth::default();
    auth.add_token("reader", &SecretString::from("reader-token"), vec!["user:1=read".parse().unwrap()]);
    auth.add_token("writer", &SecretString::from("writer-token"), vec!["user:1=write".parse().unwrap()]);
    let mut settings = HttpSettings {
        public_url: "https://mem.example.com".parse().unwrap(),
        allowed_hosts: vec!["memser:8080".to_owned()],
        allowed_origins: vec!["https://app.example".to_owned()],
        max_body_bytes: 10_000,
        call_timeout: Duration::from_secs(30),
        issuer: None,
        token_limits: TokenLimits::default(),
        silent_after: Duration::from_secs(3),
        comment_every: Duration::from_millis(400),
    };
    change(&mut settings);
    let clock = Clock::Fixed(app.clock.clone());
    let (engine, ends) = (app.engine.clone(), Ends::default());
    let handler = Handler::new(
        engine.clone(),
        false,
        settings.call_timeout,
        ends.calls.clone(),
        ends.subscriptions.clone(),
    );
    let router = router(handler, engine, Arc::new(auth), clock, &settings, ends);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    let http = HttpClient::builder(TokioExecutor::new()).build_http();
    Service { address, http, _app: None }
}

/// An embedding endpoint that takes its time, and a memser that uses it.
async fn behind_a_slow_embedder(delay: Duration) -> (MockServer, TestApp) {
    let endpoint = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(delay);
    Mock::given(any()).respond_with(slow).mount(&endpoint).await;
    let app = TestApp::builder()
        .set("EMBEDDER", "openai")
        .set("EMBEDDING_URL", endpoint.uri())
        .set("EMBEDDING_DIMENSIONS", "8")
        .start()
        .await;
    app.admin().post("tools/call", store_with_ttl()).await;
    (endpoint, app)
}

/// A store that needs no embedder, so that the scope exists.
fn store_with_ttl() -> Value {
    json!({"name": "store_memory", "arguments": {"content": "c", "scope": "user:1", "ttl_seconds": 60}})
}

fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "mem.example.com")
}

fn post(body: impl Into<Body>) -> Request<Body> {
    let request = request("POST", "/mcp").header("authorization", WRITER);
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

fn call(tool: &str, arguments: &Value) -> Request<Body> {
    let params = json!({"name": tool, "arguments": arguments});
    post(json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string())
}

async fn send(service: &Service, mut request: Request<Body>) -> (StatusCode, HeaderMap, Value) {
    // The address alone: `Host` stays what the request says.
    let url = format!("http://{}{}", service.address, request.uri());
    *request.uri_mut() = url.parse().unwrap();
    let response = service.http.request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (parts.status, parts.headers, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[tokio::test]
async fn every_method_needs_a_token_and_is_told_where_to_get_one() {
    let service = service(|_| {}).await;
    for method in ["POST", "GET", "DELETE", "PUT"] {
        for (authorization, invalid) in
            [(None, false), (Some("Basic YTpi"), false), (Some("Bearer nope"), true)]
        {
            let mut request = request(method, "/mcp?access_token=writer-token");
            if let Some(value) = authorization {
                request = request.header("authorization", value);
            }
            let (status, headers, _) = send(&service, request.body(Body::empty()).unwrap()).await;
            assert_eq!(status, 401, "{method} {authorization:?}");
            let challenge = headers[header::WWW_AUTHENTICATE].to_str().unwrap();
            let metadata = "https://mem.example.com/.well-known/oauth-protected-resource/mcp";
            assert!(challenge.contains(&format!("resource_metadata=\"{metadata}\"")), "{challenge}");
            assert_eq!(challenge.contains("error=\"invalid_token\""), invalid);
        }
    }
    let twice = request("POST", "/mcp").header("authorization", WRITER).header("authorization", READER);
    assert_eq!(send(&service, twice.body(Body::empty()).unwrap()).await.0, 401);
    for method in ["GET", "DELETE"] {
        let request = request(method, "/mcp").header("authorization", "bearer writer-token");
        let (status, headers, _) = send(&service, request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (status.as_u16(), &headers[header::ALLOW]),
            (405, &axum::http::HeaderValue::from_static("POST"))
        );
    }
}

#[tokio::test]
async fn both_spellings_answer_and_every_other_path_is_absent() {
    let service = service(|_| {}).await;
    for path in ["/mcp", "/mcp/"] {
        let mut request = post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
        *request.uri_mut() = path.parse().unwrap();
        let (status, headers, body) = send(&service, request).await;
        assert_eq!(status, 200, "{body}");
        assert!(headers.contains_key("x-request-id"));
        assert_eq!(body["result"]["tools"].as_array().unwrap().len(), 5);
        assert_eq!(body["result"]["cacheScope"], "private");
    }
    for path in ["/", "/mcp/x", "/.well-known/oauth-authorization-server", "/health"] {
        let (status, _, body) = send(&service, request("GET", path).body(Body::empty()).unwrap()).await;
        assert_eq!((status.as_u16(), &body["error"]["code"]), (404, &json!("not_found")), "{path}");
    }
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let (status, _, body) = send(&service, request("GET", path).body(Body::empty()).unwrap()).await;
        assert_eq!((status.as_u16(), &body["resource"]), (200, &json!("https://mem.example.com/mcp")));
    }
}

#[tokio::test]
async fn metrics_are_for_tokens_that_may_do_everything() {
    let app = TestApp::builder().token("half-admin-token", &["user:*=admin"]).start().await;
    assert_eq!(app.get("/metrics").await.status(), 200);
    let get = reqwest::Client::new().get(app.url("/metrics"));
    assert_eq!(get.send().await.unwrap().status(), 401);
    let get = reqwest::Client::new().get(app.url("/metrics")).bearer_auth("half-admin-token");
    assert_eq!(get.send().await.unwrap().status(), 403);
    let get = reqwest::Client::new().get(app.url("/metrics?access_token=half-admin-token"));
    assert_eq!(get.send().await.unwrap().status(), 401);
    app.stop().await;
}

#[tokio::test]
async fn health_needs_neither_host_nor_token() {
    let service = service(|_| {}).await;
    for (path, expected) in [("/livez", "ok"), ("/readyz", "ok")] {
        let request = Request::get(path).header("host", "10.0.0.7:8080").body(Body::empty()).unwrap();
        let (status, _, body) = send(&service, request).await;
        assert_eq!((status.as_u16(), &body["status"]), (200, &json!(expected)));
    }
}

#[tokio::test]
async fn other_hosts_and_origins_are_refused_and_preflights_are_answered() {
    let service = service(|_| {}).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (host, expected) in [
        ("mem.example.com", 200),
        ("mem.example.com:443", 200),
        ("memser:8080", 200),
        ("memser:9", 403),
        ("localhost:1", 200),
        ("[::1]:8080", 200),
        ("evil.example", 403),
        ("evil.example@mem.example.com", 403),
        ("mem.example.com.evil.example", 403),
    ] {
        let mut request = post(ping);
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(send(&service, request).await.0, expected, "{host}");
    }
    for (origin, expected) in [
        ("https://app.example", 200),
        ("https://app.example:443", 200),
        ("https://mem.example.com", 200),
        ("http://app.example", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ] {
        let mut request = post(ping);
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let (status, headers, _) = send(&service, request).await;
        assert_eq!(status, expected, "{origin}");
        assert_eq!(headers.contains_key("access-control-allow-origin"), expected == 200);
    }
    let preflight = request("OPTIONS", "/mcp")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization, mcp-param-x");
    let (status, headers, _) = send(&service, preflight.body(Body::empty()).unwrap()).await;
    assert!(status.is_success());
    assert_eq!(headers["access-control-allow-headers"], "authorization, mcp-param-x");
    let refused =
        request("POST", "/mcp").header("origin", "https://app.example").body(Body::empty()).unwrap();
    let (status, headers, _) = send(&service, refused).await;
    assert_eq!(status, 401);
    assert!(headers["access-control-expose-headers"].to_str().unwrap().contains("www-authenticate"));
}

#[tokio::test]
async fn what_is_no_message_is_refused_in_the_protocols_words() {
    let service = service(|_| {}).await;
    for (body, code) in [
        ("", -32700),
        ("{nope", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        ("5", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall_memory","arguments":[]}}"#,
            -32602,
        ),
    ] {
        let (status, _, answer) = send(&service, post(body)).await;
        assert_eq!((status.as_u16(), &answer["error"]["code"]), (400, &json!(code)), "{body}");
    }
    let (status, _, _) = send(&service, post("x".repeat(10_001))).await;
    assert_eq!(status, 413);
    let chunks = futures::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>("x".repeat(1_000))));
    assert_eq!(send(&service, post(Body::from_stream(chunks))).await.0, 413);
    let mut request = post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    request.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    let (status, _, answer) = send(&service, request).await;
    assert_eq!((status.as_u16(), &answer["error"]["code"]), (415, &json!(-32600)));
    let (status, _, body) =
        send(&service, post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)).await;
    assert_eq!((status.as_u16(), body), (202, json!("")));
}

#[tokio::test]
async fn any_accept_header_is_taken_and_honoured() {
    let service = service(|_| {}).await;
    for (accept, events) in [
        (None, false),
        (Some("*/*"), false),
        (Some("application/json"), false),
        (Some("text/event-stream"), true),
    ] {
        let mut request = post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        if let Some(accept) = accept {
            request.headers_mut().insert("accept", accept.parse().unwrap());
        }
        let (status, headers, body) = send(&service, request).await;
        assert_eq!(status, 200, "{accept:?}");
        assert_eq!(headers[header::CONTENT_TYPE] == "text/event-stream", events, "{accept:?}");
        assert_eq!(body.is_string(), events, "{accept:?}");
    }
}

#[tokio::test]
async fn a_token_that_may_write_nowhere_is_refused_before_the_tool() {
    let service = service(|_| {}).await;
    let mut request = call("store_memory", &json!({"content": "c", "scope": "user:1"}));
    request.headers_mut().insert("authorization", READER.parse().unwrap());
    let (status, headers, body) = send(&service, request).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (403, &json!("action_not_granted")));
    let challenge = headers[header::WWW_AUTHENTICATE].to_str().unwrap();
    assert!(challenge.contains("insufficient_scope") && challenge.contains("memory:write"), "{challenge}");
    let mut request = call("recall_memory", &json!({"query": "q"}));
    request.headers_mut().insert("authorization", READER.parse().unwrap());
    let (status, _, body) = send(&service, request).await;
    assert_eq!((status.as_u16(), &body["result"]["isError"]), (200, &json!(false)));
    assert_eq!(body["result"]["content"][0]["text"], "No memories found.");
}

#[tokio::test]
async fn bad_arguments_are_answers_that_name_the_field() {
    let service = service(|_| {}).await;
    for (tool, arguments, code, field) in [
        ("recall_memory", json!({"query": "q", "k": 0}), "invalid_argument", json!("k")),
        ("recall_memory", json!({"query": "q", "kk": 1}), "invalid_argument", json!("kk")),
        ("recall_memory", json!({}), "invalid_argument", json!("query")),
        (
            "forget_memory",
            json!({"memory_id": "00000000-0000-7000-8000-000000000000"}),
            "not_found",
            Value::Null,
        ),
    ] {
        let (status, _, body) = send(&service, call(tool, &arguments)).await;
        let result = &body["result"];
        assert_eq!((status.as_u16(), &result["isError"]), (200, &json!(true)), "{body}");
        assert_eq!(result["structuredContent"]["error"]["code"], code, "{arguments}");
        assert_eq!(result["structuredContent"]["error"]["field"], field, "{arguments}");
    }
    let (_, _, body) = send(&service, call("nope", &json!({}))).await;
    assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32602)));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_stopped_and_answered() {
    let (_endpoint, app) = behind_a_slow_embedder(Duration::from_secs(30)).await;
    let service = service_of(&app, |settings| settings.call_timeout = Duration::from_millis(100)).await;
    let (_, _, body) = send(&service, call("store_memory", &json!({"content": "x"}))).await;
    assert_eq!(body["result"]["structuredContent"]["error"]["code"], "timeout", "{body}");
}

#[tokio::test]
async fn a_call_that_outlives_the_shutdown_is_answered_before_the_end() {
    let (endpoint, mut heard) = embedder::silent().await;
    let app = embedder::asking(&endpoint.uri(), 8).set("MEMSER_SHUTDOWN_SECONDS", "1").start().await;
    let client = app.admin();
    let call = tokio::spawn(async move {
        client.refused("store_memory", json!({ "scope": "user:1", "content": "on its way" })).await
    });
    heard.recv().await.unwrap();
    app.stop().await;
    assert_eq!(call.await.unwrap()["code"], "unavailable");
}

#[tokio::test]
async fn a_fault_shows_none_of_its_cause() {
    let app = TestApp::start().await;
    app.admin().store("user:1", "something").await;
    let mut database = app.database.connect().await;
    sqlx::raw_sql("alter table memory_term rename to hidden_table").execute(&mut database).await.unwrap();
    let service = service_of(&app, |_| {}).await;
    let (_, _, body) = send(&service, call("store_memory", &json!({"content": "x y z"}))).await;
    assert_eq!(body["result"]["structuredContent"]["error"]["code"], "internal", "{body}");
    assert!(!body.to_string().contains("memory_term"), "{body}");
}

#[tokio::test]
async fn the_limit_counts_for_each_subject() {
    let service = service(|settings| settings.token_limits.per_second = NonZeroU32::new(1)).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(send(&service, post(ping)).await.0, 200);
    let (status, headers, body) = send(&service, post(ping)).await;
    assert_eq!((status.as_u16(), &body["error"]["code"]), (429, &json!("rate_limited")));
    assert_eq!(headers[header::RETRY_AFTER], "1");
    let mut other = post(ping);
    other.headers_mut().insert("authorization", READER.parse().unwrap());
    assert_eq!(send(&service, other).await.0, 200);
}

#[tokio::test]
async fn a_silent_call_becomes_a_stream_with_signs_of_life() {
    let (_endpoint, app) = behind_a_slow_embedder(Duration::from_secs(1)).await;
    let service = service_of(&app, |settings| settings.silent_after = Duration::from_millis(200)).await;
    let arguments = json!({"query": "anything"});
    let mut request = call("recall_memory", &arguments);
    request.headers_mut().insert("accept", "application/json, text/event-stream".parse().unwrap());
    let (status, headers, body) = send(&service, request).await;
    assert_eq!(
        (status.as_u16(), &headers["x-accel-buffering"]),
        (200, &axum::http::HeaderValue::from_static("no"))
    );
    let text = body.as_str().unwrap();
    assert!(text.starts_with(": working\n\n: working\n\n"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(data).unwrap()["id"], 7);
    let (_, headers, body) = send(&service, call("recall_memory", &arguments)).await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(body["result"]["structuredContent"]["degraded"], json!(["embedder"]));
}

#[tokio::test]
async fn the_current_protocol_needs_no_handshake() {
    let service = service(|_| {}).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (method, params) in [("server/discover", json!({})), ("tools/list", json!({}))] {
        let mut params = params;
        params["_meta"] = meta.clone();
        let mut request =
            post(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string());
        request.headers_mut().insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        request.headers_mut().insert("mcp-method", method.parse().unwrap());
        let (status, _, body) = send(&service, request).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["result"]["cacheScope"], "private", "{body}");
    }
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let request =
        post(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string());
    let (_, _, body) = send(&service, request).await;
    assert_eq!(body["result"]["protocolVersion"], "2025-06-18");
    let instructions = body["result"]["instructions"].as_str().unwrap();
    assert!(instructions.contains("user:1=write") && instructions.len() <= 2_048, "{instructions}");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_also_to_a_client_that_reads_only_when_it_has_sent() {
    let service = service(|_| {}).await;
    for length in [10_001, 3_000_000] {
        let mut stream = TcpStream::connect(service.address).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: mem.example.com\r\nAuthorization: {WRITER}\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; length]).await.unwrap();
        // On the same connection the next request is answered as well.
        let next = format!(
            "GET /mcp HTTP/1.1\r\nHost: mem.example.com\r\nAuthorization: {WRITER}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(next.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("HTTP/1.1 405"), "{answer}");
    }
}
