//! What no client in good faith sends, byte for byte over sockets.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{ADMIN, TestApp};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// Sends these bytes, all of them, and then reads until the server closes.
async fn exchange(app: &TestApp, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// A ping on a connection of its own, with these header lines beside those that it needs.
fn ping(target: &str, lines: &[&str]) -> String {
    let length = format!("Content-Length: {}", PING.len());
    let own = [format!("Authorization: Bearer {ADMIN}"), "Connection: close".to_owned(), length];
    let lines: Vec<&str> = own.iter().map(String::as_str).chain(lines.iter().copied()).collect();
    format!("POST {target} HTTP/1.1\r\n{}\r\n\r\n{PING}", lines.join("\r\n"))
}

#[tokio::test]
async fn a_request_of_two_meanings_is_refused() {
    let app = TestApp::start().await;
    let host = "Host: localhost";
    for (target, lines, expected) in [
        ("/mcp", &[host][..], 200),
        ("http://localhost/mcp", &[host], 200),
        ("/mcp", &[host, "Host: evil.example"], 400),
        ("/mcp", &["Host: evil.example", host], 400),
        ("/mcp", &[host, host], 400),
        ("http://evil.example/mcp", &[host], 400),
        ("http://localhost:1/mcp", &[host], 400),
        ("http://localhost/mcp", &["Host: evil.example"], 400),
        ("/mcp", &[host, "Content-Type: application/json", "Content-Type: text/plain"], 400),
        ("/mcp", &[host, "MCP-Protocol-Version: 2025-11-25", "MCP-Protocol-Version: 2025-06-18"], 400),
        ("/mcp", &[host, "Mcp-Method: ping", "Mcp-Method: tools/list"], 400),
        ("/mcp", &[host, "Origin: http://localhost:1", "Origin: https://evil.example"], 400),
        ("/mcp", &[], 403),
        ("/mcp", &[host, "Origin: http://user@localhost:1"], 403),
        ("/mcp", &[host, "Origin: http://localhost:1"], 200),
        ("/mcp", &[host, "Content-Encoding: gzip"], 415),
        ("/mcp", &[host, "Content-Encoding: identity", "Content-Encoding: gzip"], 415),
        ("/mcp", &[host, "Content-Encoding: identity"], 200),
        ("/mcp", &[host, "Content-Length: 4"], 400),
        ("/mcp", &[host, "Transfer-Encoding: identity"], 400),
    ] {
        let answer = exchange(&app, ping(target, lines).as_bytes()).await;
        assert_eq!(status(&answer), expected, "{target} {lines:?}: {answer}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_before_its_end() {
    const MOST: usize = 128 << 10;
    let app = TestApp::start().await;
    let most = ping("/mcp", &["Host: localhost", &format!("X-Long: {}", "a".repeat(MOST - 1_000))]);
    assert!(most.len() < MOST);
    assert_eq!(status(&exchange(&app, most.as_bytes()).await), 200);

    // Without an end, for which memser would otherwise wait, and without a token.
    for beginning in ["POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ", "POST /"] {
        let endless = format!("{beginning}{}", "a".repeat(MOST - beginning.len()));
        let answer = exchange(&app, endless.as_bytes()).await;
        assert!([414, 431].contains(&status(&answer)), "{beginning:?}: {answer}");
    }
    app.stop().await;
}

/// A length that hides a second request, a coding that hides the first one's end: what follows is never answered.
#[tokio::test]
async fn no_request_is_smuggled_behind_another() {
    let app = TestApp::start().await;
    let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n");
    let chunked = format!("{:x}\r\n{PING}\r\n0\r\n\r\n", PING.len());
    let hidden = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nConnection: close",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nConnection: close",
        "Transfer-Encoding: identity, chunked\r\nConnection: close",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Content-Length: 4\r\nContent-Length: 5",
    ] {
        let answer = exchange(&app, format!("{head}{framing}\r\n\r\n{chunked}{hidden}").as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing}: {answer}");
        let is_plain = framing.contains("Content-Length") && framing.contains("chunked");
        assert_eq!(status(&answer), if is_plain { 200 } else { 400 }, "{framing}: {answer}");
    }
    app.stop().await;
}

/// Whatever refuses it: a client that reads only when it has sent everything finds out why.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let app = TestApp::builder().token("reader-of-user-1", &["user:1=read"]).start().await;
    let body = vec![b' '; 8_000_000];
    let admin = format!("Authorization: Bearer {ADMIN}");
    for (target, host, lines, expected) in [
        ("/mcp", "localhost", "X: no-token", 401),
        ("/mcp", "localhost", "Authorization: Bearer nope", 401),
        ("/mcp", "evil.example", &admin, 403),
        ("/mcp", "localhost", &format!("{admin}\r\nOrigin: https://evil.example"), 403),
        ("/mcp", "localhost", &format!("{admin}\r\nContent-Type: text/plain"), 415),
        ("/mcp", "localhost", &admin, 413),
        ("/mcp", "localhost", &format!("{admin}\r\nMcp-Method: a\r\nMcp-Method: b"), 400),
        ("/metrics", "localhost", "Authorization: Bearer reader-of-user-1", 405),
        ("/livez", "localhost", "X: y", 405),
        ("/nowhere", "localhost", "X: y", 404),
    ] {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n{lines}\r\n\r\n",
            body.len()
        );
        let answer = exchange(&app, &[head.as_bytes(), &body].concat()).await;
        assert_eq!(status(&answer), expected, "{target} {lines}: {answer}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_send_is_refused_at_once() {
    let app = TestApp::start().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        PING.len()
    );
    // Nothing is sent after the head, and nothing asked for.
    let answer = exchange(&app, head.as_bytes()).await;
    assert_eq!(status(&answer), 401, "{answer}");
    app.stop().await;
}

#[tokio::test]
async fn every_refusal_of_a_method_or_a_path_is_json() {
    let app = TestApp::start().await;
    let client = reqwest::Client::new();
    for (method, path, expected) in [
        ("POST", "/.well-known/oauth-protected-resource", 405),
        ("POST", "/.well-known/oauth-protected-resource/mcp", 405),
        ("POST", "/livez", 405),
        ("DELETE", "/readyz", 405),
        ("PUT", "/metrics", 405),
        ("DELETE", "/mcp", 405),
        ("GET", "/.well-known/openid-configuration", 404),
        ("GET", "/.well-known/oauth-authorization-server/mcp", 404),
        ("GET", "/.well-known/oauth-protected-resource/", 404),
        ("POST", "/register", 404),
        ("GET", "/%6dcp", 404),
        ("GET", "//mcp", 404),
    ] {
        let request = client.request(method.parse().unwrap(), app.url(path)).bearer_auth(ADMIN);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), expected, "{method} {path}");
        assert_eq!(response.headers().contains_key("allow"), expected == 405, "{method} {path}");
        let body: Value = response.json().await.unwrap();
        assert!(body["error"]["message"].is_string(), "{method} {path}: {body}");
    }
    app.stop().await;
}

/// A cursor is no secret: whoever makes one himself gets a page of what he may read, or is told that it is none.
#[tokio::test]
async fn a_cursor_that_somebody_made_is_refused_or_shows_nothing_foreign() {
    const TOKEN: &str = "administers-user-1";
    let app = TestApp::builder().token(TOKEN, &["user:1=admin"]).start().await;
    app.admin().store("user:1", "something of mine").await;
    app.admin().store("user:2", "something of theirs").await;
    let id = uuid::Uuid::nil();
    let times = ["2026-03-01T12:00:00Z", "-200000-01-01T00:00:00Z", "+262142-12-31T23:59:59Z"];
    let mut made = vec![
        json!(null),
        json!(5),
        json!([]),
        json!({}),
        json!(""),
        json!("\0"),
        json!("user:"),
        json!("user:2"),
        json!("*"),
        json!(id),
        json!(["user:2", null]),
        json!(["user:2\0", null]),
        json!(["*", null]),
        json!(["user:1", "!"]),
    ];
    for time in times {
        for order in ["newest", "oldest"] {
            let listed = json!({ "at": time, "id": id, "order": order });
            let inner = BASE64_URL_SAFE_NO_PAD.encode(listed.to_string());
            made.extend([listed, json!(["user:1", inner]), json!(["user:2", inner])]);
        }
        made.extend([json!([time, i64::MIN]), json!([time, i64::MAX])]);
    }
    let mut cursors: Vec<String> =
        made.iter().map(|made| BASE64_URL_SAFE_NO_PAD.encode(made.to_string())).collect();
    cursors.extend(["!", "AA", "%00", "\u{fffd}"].map(str::to_owned));
    let mut refused = 0;
    for cursor in &cursors {
        let encoded: String = url::form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
        for path in ["memories", "scopes", "conflicts", "audit"] {
            let url = app.url(&format!("/v1/{path}?cursor={encoded}"));
            let response = reqwest::Client::new().get(url).bearer_auth(TOKEN).send().await.unwrap();
            let (status, body) = (response.status().as_u16(), response.text().await.unwrap());
            assert!([200, 400].contains(&status), "{path} {cursor}: {status} {body}");
            assert!(!body.contains("theirs") && !body.contains("user:2"), "{path} {cursor}: {body}");
            refused += u32::from(status == 400);
        }
        let answer = app.client(TOKEN).rpc("resources/list", json!({ "cursor": cursor })).await;
        let code = &answer["error"]["code"];
        assert!(code.is_null() || *code == -32602, "{cursor}: {answer}");
        assert!(!answer.to_string().contains("theirs"), "{cursor}: {answer}");
    }
    assert!(refused > 100, "{refused}");
    app.stop().await;
}

/// Neither a notification nor an answer calls a tool.
#[tokio::test]
async fn only_a_request_calls_a_tool() {
    let app = TestApp::start().await;
    let call = json!({ "name": "store_memory", "arguments": { "scope": "user:1", "content": "never" } });
    for message in [
        json!({ "jsonrpc": "2.0", "method": "tools/call", "params": call }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {}, "params": call }),
    ] {
        let request = reqwest::Client::new().post(app.url("/mcp")).bearer_auth(ADMIN);
        let status = request.json(&message).send().await.unwrap().status().as_u16();
        assert!([202, 400].contains(&status), "{status}");
    }
    let mut database = app.database.connect().await;
    let scopes: i64 =
        sqlx::query_scalar("select count(*) from scopes").fetch_one(&mut database).await.unwrap();
    assert_eq!(scopes, 0);
    app.stop().await;
}
