//! Protocol revisions, connections and replicas, over sockets as clients use them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{ADMIN, TestApp};

const MODERN: &str = "2026-07-28";

/// A request with these headers, and what comes back.
async fn send(app: &TestApp, headers: &[(&str, &str)], message: &Value) -> (u16, Value) {
    let mut request = reqwest::Client::new().post(app.url("/mcp")).bearer_auth(ADMIN).json(message);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or(Value::Null))
}

fn message(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn initialize(version: &str) -> Value {
    let client = json!({ "name": "test", "version": "1" });
    message("initialize", &json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client }))
}

/// Parameters as revision `version` without a handshake wants them.
fn modern(version: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

#[tokio::test]
async fn every_revision_is_negotiated_and_an_unknown_one_gets_the_newest_with_a_handshake() {
    let app = TestApp::start().await;
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        (MODERN, "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let (status, answer) = send(&app, &[], &initialize(asked)).await;
        assert_eq!((status, &answer["result"]["protocolVersion"]), (200, &json!(given)), "{asked}");
    }
    let header = [("mcp-protocol-version", "2025-06-18")];
    let (status, answer) = send(&app, &header, &initialize("2025-11-25")).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32600)), "{answer}");
    let header = [("mcp-protocol-version", "1999-01-01")];
    let (status, answer) = send(&app, &header, &message("ping", &json!({}))).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32600)), "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains("MCP-Protocol-Version") && words.contains("1999-01-01"), "{words}");
    app.stop().await;
}

#[tokio::test]
async fn a_session_id_of_another_time_or_replica_changes_nothing() {
    let first = TestApp::start().await;
    let second = TestApp::builder().beside(&first).start().await;
    let stale = [("mcp-session-id", "made-by-an-earlier-server")];
    let (status, _) = send(&first, &stale, &initialize("2025-11-25")).await;
    assert_eq!(status, 200);
    let listing = message("tools/list", &json!({}));
    let current = message("tools/list", &modern(MODERN, json!({})));
    let headers = [stale[0], ("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")];
    for app in [&first, &second] {
        let (status, answer) = send(app, &stale, &listing).await;
        assert_eq!((status, answer["result"]["tools"].as_array().map(Vec::len)), (200, Some(6)));
        let (status, answer) = send(app, &headers, &current).await;
        assert_eq!((status, answer["result"]["tools"].as_array().map(Vec::len)), (200, Some(6)));
        let (status, _) =
            send(app, &stale, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!(status, 202);
    }
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn headers_that_disagree_with_the_message_are_refused() {
    let app = TestApp::start().await;
    let listing = message("tools/list", &modern(MODERN, json!({})));
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/list");
    let call = json!({ "name": "list_memories", "arguments": { "scope": "user:1" } });
    let call = message("tools/call", &modern(MODERN, call));
    let future = message("tools/list", &modern("2099-01-01", json!({})));
    for (headers, message, status, code) in [
        (&[version, method][..], &listing, 200, Value::Null),
        (&[("mcp-protocol-version", "2025-11-25"), method], &listing, 400, json!(-32020)),
        (&[method], &listing, 400, json!(-32020)),
        (&[version], &listing, 400, json!(-32020)),
        (&[version, ("mcp-method", "tools/call")], &listing, 400, json!(-32020)),
        (&[version, method], &message("tools/list", &json!({})), 400, json!(-32602)),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "recall_memory")], &call, 400, json!(-32020)),
        (&[version, ("mcp-method", "tools/call"), ("mcp-name", "list_memories")], &call, 200, Value::Null),
        (&[("mcp-protocol-version", "2099-01-01"), method], &future, 400, json!(-32022)),
    ] {
        let (found, answer) = send(&app, headers, message).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &code), "{headers:?}: {answer}");
        if code == -32022 {
            let supported = answer["error"]["data"]["supported"].as_array().unwrap();
            assert!(supported.contains(&json!(MODERN)), "{answer}");
        }
    }
    for method in ["ping", "initialize", "resources/subscribe", "nope"] {
        let headers = [version, ("mcp-method", method)];
        let (status, answer) = send(&app, &headers, &message(method, &modern(MODERN, json!({})))).await;
        assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)), "{method}: {answer}");
    }
    let (status, answer) = send(&app, &[], &message("nope", &json!({}))).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32601)), "{answer}");
    app.stop().await;
}

#[tokio::test]
async fn http_2_is_spoken_and_its_authority_checked() {
    let app = TestApp::start().await;
    let client = |host: &str| {
        let builder = reqwest::Client::builder().http2_prior_knowledge().resolve(host, app.address);
        builder.build().unwrap()
    };
    for (host, expected) in [("localhost", 200), ("evil.example", 403)] {
        let url = format!("http://{host}:{}/mcp", app.address.port());
        let request = client(host).post(url).bearer_auth(ADMIN).json(&message("ping", &json!({})));
        let response = request.send().await.unwrap();
        assert_eq!(response.version(), reqwest::Version::HTTP_2);
        assert_eq!(response.status(), expected, "{host}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_refused_body_leaves_the_server_usable() {
    let app = TestApp::start().await;
    let client = reqwest::Client::new();
    let huge = vec![b'x'; 5 << 20];
    let whole = client.post(app.url("/mcp")).bearer_auth(ADMIN).header("content-type", "application/json");
    // The server may close before it has read everything; it must not be taken down by it.
    if let Ok(response) = whole.body(huge).send().await {
        assert_eq!(response.status(), 413);
    }
    let ping = client.post(app.url("/mcp")).bearer_auth(ADMIN).json(&message("ping", &json!({})));
    assert_eq!(ping.send().await.unwrap().status(), 200);
    app.stop().await;
}

/// Ten tenants, each with a token of its own, two hundred callers on two replicas: every answer is looked at.
#[tokio::test]
async fn many_callers_on_two_replicas_see_only_their_own() {
    const TENANTS: usize = 10;
    let tokens: Vec<_> = (0..TENANTS).map(|tenant| format!("tenant-token-number-{tenant}")).collect();
    let with_tokens = |mut builder: crate::support::TestAppBuilder| {
        for (tenant, token) in tokens.iter().enumerate() {
            builder = builder.token(token, &[&format!("user:{tenant}=write")]);
        }
        builder
    };
    let first = with_tokens(TestApp::builder()).start().await;
    let second = with_tokens(TestApp::builder().beside(&first)).start().await;
    let calls = (0..200).map(|number| {
        let (tenant, replica) = (number % TENANTS, [&first, &second][number / TENANTS % 2]);
        let client = replica.client(&tokens[tenant]);
        async move {
            let scope = format!("user:{tenant}");
            client.store(&scope, &format!("Secret {number} of tenant-{tenant} concerns gardening.")).await;
            let mut seen = client.recall(&scope, "What are the secrets about gardening?").await;
            let listed = client.ok("list_memories", json!({ "scope": scope, "limit": 100 })).await;
            seen.extend(crate::support::client::contents(&listed));
            assert!(!seen.is_empty());
            for content in seen {
                assert!(content.contains(&format!("tenant-{tenant} ")), "tenant {tenant} sees: {content}");
            }
        }
    });
    stream::iter(calls).buffer_unordered(20).collect::<()>().await;
    for (tenant, token) in tokens.iter().enumerate() {
        let other = (tenant + 1) % TENANTS;
        let refused =
            first.client(token).refused("list_memories", json!({ "scope": format!("user:{other}") })).await;
        assert_eq!(refused["code"], "scope_not_granted");
    }
    second.stop().await;
    first.stop().await;
}

/// Takes the lock of a scope, so that stores into it wait.
async fn hold_scope(app: &TestApp, scope: &str) -> PgConnection {
    app.admin().store(scope, "The first memory makes the scope.").await;
    let mut connection = app.database.connect().await;
    let lock = "select pg_advisory_lock(scope_id) from scopes where name = $1";
    sqlx::query(lock).bind(scope).execute(&mut connection).await.unwrap();
    connection
}

/// Waits until so many transactions wait for a lock in the app's database.
async fn until_waiting(app: &TestApp, expected: i64) {
    let mut observer = app.database.connect().await;
    let waiting = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut observer).await.unwrap() != expected {
        tokio::task::yield_now().await;
    }
}

async fn free(mut connection: PgConnection) {
    sqlx::query("select pg_advisory_unlock_all()").execute(&mut connection).await.unwrap();
}

fn store(scope: &str, content: &str) -> Value {
    let arguments = json!({ "scope": scope, "content": content });
    message("tools/call", &json!({ "name": "store_memory", "arguments": arguments }))
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_call_and_writes_nothing() {
    let app = TestApp::start().await;
    let held = hold_scope(&app, "user:1").await;
    let request = reqwest::Client::new().post(app.url("/mcp")).bearer_auth(ADMIN);
    let call = tokio::spawn(request.json(&store("user:1", "Never to be kept.")).send());
    until_waiting(&app, 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let mut observer = app.database.connect().await;
    // Noted when the call was dropped, which is before the lock is free.
    loop {
        app.engine.flush().await;
        let noted =
            "select count(*) from memory_audit_log where action = 'store_memory' and outcome = 'cancelled'";
        if sqlx::query_scalar::<_, i64>(noted).fetch_one(&mut observer).await.unwrap() == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    free(held).await;
    until_waiting(&app, 0).await;
    let listed = app.admin().ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(crate::support::client::contents(&listed), ["The first memory makes the scope."]);
    // And the same store later is none that was seen before.
    let stored =
        app.admin().ok("store_memory", json!({ "scope": "user:1", "content": "Never to be kept." })).await;
    assert_eq!(stored["outcome"], "stored");
    app.stop().await;
}

/// Without sessions an id belongs to one request: neither the same id elsewhere nor a cancellation touches it.
#[tokio::test]
async fn calls_with_one_id_are_apart_and_a_notification_cancels_none_of_them() {
    let app = TestApp::start().await;
    let held = hold_scope(&app, "user:1").await;
    let call = |content| {
        let request = reqwest::Client::new().post(app.url("/mcp")).bearer_auth(ADMIN);
        tokio::spawn(request.json(&store("user:1", content)).send())
    };
    let calls = [call("Anna plays the cello."), call("The office closes at noon on Fridays.")];
    // One store waits in Postgres, the other in memser.
    until_waiting(&app, 1).await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    assert_eq!(send(&app, &[], &cancel).await.0, 202);
    free(held).await;
    for call in calls {
        let answer: Value = call.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(answer["result"]["structuredContent"]["outcome"], "stored", "{answer}");
    }
    app.stop().await;
}

/// Passes bytes on, and cuts a connection on which nothing was sent for `idle`, as proxies do.
async fn proxy(target: SocketAddr, idle: Duration) -> SocketAddr {
    async fn pass(mut client: TcpStream, target: SocketAddr, idle: Duration) -> std::io::Result<()> {
        let mut server = TcpStream::connect(target).await?;
        let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
        loop {
            let quiet = tokio::time::sleep(idle);
            tokio::select! {
                read = client.read(&mut asked) => match read? {
                    0 => return Ok(()),
                    read => server.write_all(&asked[..read]).await?,
                },
                read = server.read(&mut answered) => match read? {
                    0 => return Ok(()),
                    read => client.write_all(&answered[..read]).await?,
                },
                () = quiet => return Ok(()),
            }
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass(client, target, idle));
        }
    });
    address
}

#[tokio::test]
async fn a_long_call_outlives_a_proxy_that_cuts_what_is_silent() {
    let app = TestApp::start().await;
    let proxied = proxy(app.address, Duration::from_secs(10)).await;
    let held = hold_scope(&app, "user:1").await;
    let request = |accept: &str, content: &str| {
        let request = reqwest::Client::new().post(format!("http://{proxied}/mcp")).bearer_auth(ADMIN);
        request.header("accept", accept).json(&store("user:1", content)).send()
    };
    // A client that reads nothing but JSON cannot be sent a sign of life, and is cut: the proxy does its work.
    let silent = tokio::spawn(request("application/json", "By a client without streams."));
    let streaming = request("application/json, text/event-stream", "By a client that reads streams.");
    let mut response = streaming.await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = String::new();
    // The third comment comes when a silent connection would have been cut.
    while body.matches(": working\n\n").count() < 3 {
        body += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    silent.await.unwrap().expect_err("the proxy let a silent connection live");
    free(held).await;
    body += &response.text().await.unwrap();
    let data = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let answer: Value = serde_json::from_str(data).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["outcome"], "stored", "{body}");
    app.stop().await;
}

/// A promised answer is one whose change is kept: after a shutdown in the middle of everything, exactly what was
/// acknowledged is there.
#[tokio::test]
async fn a_shutdown_under_load_keeps_what_it_acknowledged_and_nothing_else() {
    let app = TestApp::start().await;
    let database = app.database.clone();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let workers = (0..8).map(|worker| {
        let (client, told) = (app.admin(), told.clone());
        tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            for number in 0.. {
                let content = format!("Worker {worker} notes entry {number} about topic{worker}x{number}.");
                let Some(stored) = client.try_store("user:1", &content).await else { break };
                assert_eq!(stored["result"]["isError"], false, "{stored}");
                acknowledged.insert(content);
                let _ = told.send(());
            }
            acknowledged
        })
    });
    let workers: Vec<_> = workers.collect();
    for _ in 0..50 {
        heard.recv().await.unwrap();
    }
    app.stop().await;
    let mut acknowledged = BTreeSet::new();
    for worker in workers {
        acknowledged.extend(worker.await.unwrap());
    }
    let mut connection = database.connect().await;
    let kept: Vec<String> =
        sqlx::query_scalar("select content from memories").fetch_all(&mut connection).await.unwrap();
    assert!(acknowledged.len() >= 50);
    assert_eq!(kept.into_iter().collect::<BTreeSet<_>>(), acknowledged);
}
