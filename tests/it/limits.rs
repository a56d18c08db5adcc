//! What one token, one scope and one connection may take up.

use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use futures::{StreamExt, stream};
use memser::http::{ConnectionLimits, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::support::{TestApp, embedder};

#[tokio::test]
async fn a_full_scope_refuses_what_is_new_and_takes_what_it_knows() {
    let app = TestApp::builder()
        .set("MEMSER_MAX_MEMORIES_PER_SCOPE", "2")
        .set("MEMSER_MAX_BYTES_PER_SCOPE", "40")
        .start()
        .await;
    let client = app.admin();
    let store = |scope: &str, content: &str| json!({ "scope": scope, "content": content });
    client.ok("store_memory", store("user:1", "Anna likes green tea")).await;
    let last = client.store("user:1", "The bridge opens").await;
    let error = client.refused("store_memory", store("user:1", "Ben")).await;
    assert_eq!(error["code"], "limit_exceeded");
    assert_eq!(error["message"], "this scope holds 2 memories; the limit is 2");
    let known = client.ok("store_memory", store("user:1", "Anna likes green tea")).await;
    assert_eq!(known["outcome"], "duplicate");
    client.ok("store_memory", store("user:2", "x")).await;
    let error = client.refused("store_memory", store("user:2", &"long ".repeat(8))).await;
    assert_eq!(error["message"], "this scope holds 1 bytes of content; the limit is 40");
    client.ok("forget_memory", json!({ "scope": "user:1", "memory_id": last })).await;
    client.ok("store_memory", store("user:1", "Ben plays the cello")).await;
    app.stop().await;
}

#[tokio::test]
async fn many_stores_at_once_do_not_pass_the_limit() {
    let app = TestApp::builder().set("MEMSER_MAX_MEMORIES_PER_SCOPE", "5").start().await;
    let second = TestApp::builder().set("MEMSER_MAX_MEMORIES_PER_SCOPE", "5").beside(&app).start().await;
    let animals = ["cat", "dog", "emu", "fox", "gnu", "hen", "jay", "koi", "owl", "pig"];
    let stores = animals.iter().enumerate().map(|(number, animal)| {
        let client = if number % 2 == 0 { app.admin() } else { second.admin() };
        async move {
            client
                .call("store_memory", json!({ "scope": "zoo", "content": format!("{animal} {animal}") }))
                .await
        }
    });
    let outcomes = futures::future::join_all(stores).await;
    assert_eq!(outcomes.iter().filter(|outcome| !outcome.is_error).count(), 5);
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn a_token_makes_so_many_scopes_and_uses_as_many_as_there_are() {
    let app = TestApp::builder()
        .set("MEMSER_MAX_SCOPES_PER_TOKEN", "2")
        .token("backend", &["user:*=write"])
        .start()
        .await;
    let (admin, backend) = (app.admin(), app.client("backend"));
    admin.store("user:of-another", "made by another token").await;
    for scope in ["user:1", "user:2", "user:1", "user:of-another"] {
        backend.store(scope, &format!("a text of {scope}")).await;
    }
    for ttl in [json!(null), json!(60)] {
        let arguments = json!({ "scope": "user:3", "content": "one too many", "ttl_seconds": ttl });
        let error = backend.refused("store_memory", arguments).await;
        assert_eq!((&error["code"], &error["field"]), (&json!("limit_exceeded"), &json!("scope")));
        let told = "there is no scope \"user:3\", and this token has made 2 scopes; the limit is 2";
        assert_eq!(error["message"], told);
        assert!(error["hint"].as_str().unwrap().contains("MEMSER_MAX_SCOPES_PER_TOKEN"), "{error}");
    }
    // What is forgotten makes no room: the scope is still there.
    backend.ok("forget_memory", json!({ "scope": "user:1", "all": true })).await;
    backend.refused("store_memory", json!({ "scope": "user:3", "content": "one too many" })).await;
    admin.store("user:3", "made by another token").await;
    backend.store("user:3", "now it is there").await;
    app.stop().await;
}

#[tokio::test]
async fn a_working_memory_that_cannot_be_kept_makes_no_scope() {
    // Bound and dropped: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let app = TestApp::builder()
        .set("REDIS_URL", format!("redis://{closed}"))
        .set("MEMSER_MAX_SCOPES_PER_TOKEN", "1")
        .token("backend", &["user:*=write"])
        .start()
        .await;
    let backend = app.client("backend");
    for key in [json!(null), json!("once")] {
        let arguments =
            json!({ "scope": "user:1", "content": "for a while", "ttl_seconds": 60, "idempotency_key": key });
        assert_eq!(backend.refused("store_memory", arguments).await["code"], "unavailable");
    }
    backend.store("user:2", "the only scope that the token may make").await;
    let scopes: Vec<String> = sqlx::query_scalar("select name from scopes")
        .fetch_all(&mut app.database.connect().await)
        .await
        .unwrap();
    assert_eq!(scopes, ["user:2"]);
    app.stop().await;
}

#[tokio::test]
async fn many_new_scopes_at_once_do_not_pass_the_limit() {
    let limited = |builder: crate::support::TestAppBuilder| builder.set("MEMSER_MAX_SCOPES_PER_TOKEN", "5");
    let app = limited(TestApp::builder()).start().await;
    let second = limited(TestApp::builder().beside(&app)).start().await;
    let stores = (0..12).map(|number| {
        let client = if number % 2 == 0 { app.admin() } else { second.admin() };
        // Two of each name: a scope that two make at once counts once.
        let scope = format!("user:{}", number / 2 % 6);
        async move {
            client.call("store_memory", json!({ "scope": scope, "content": format!("text {number}") })).await
        }
    });
    let outcomes = futures::future::join_all(stores).await;
    let refused: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_error).collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().all(|outcome| outcome.structure["error"]["code"] == "limit_exceeded"));
    let scopes: i64 = sqlx::query_scalar("select count(*) from scopes where created_by = 'MEMSER_TOKEN'")
        .fetch_one(&mut app.database.connect().await)
        .await
        .unwrap();
    assert_eq!(scopes, 5);
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn a_token_has_so_many_requests_answered_at_one_time() {
    let (endpoint, mut heard) = embedder::silent().await;
    let app = embedder::asking(&endpoint.uri(), 8)
        .set("MEMSER_MAX_CONCURRENT", "1")
        .set("MEMSER_SHUTDOWN_SECONDS", "1")
        .token("other", &["user:1=read"])
        .start()
        .await;
    let client = app.admin();
    let busy = tokio::spawn(async move {
        client.call("store_memory", json!({ "scope": "user:1", "content": "c" })).await
    });
    heard.recv().await.unwrap();
    let refused = app.admin().post("tools/list", json!({})).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(app.client("other").post("tools/list", json!({})).await.status(), 200);
    app.stop().await;
    busy.await.unwrap();
}

/// The time after which the server below loses its patience.
const WAIT: Duration = Duration::from_millis(300);

/// A server whose patience is short, and what stops it.
async fn impatient(connections: usize) -> (String, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stream = async || {
        let events = stream::iter(0..5).then(|number| async move {
            tokio::time::sleep(WAIT).await;
            Ok::<_, std::io::Error>(format!("data: {number}\n\n"))
        });
        ([("content-type", "text/event-stream")], Body::from_stream(events))
    };
    let router = axum::Router::new()
        .route("/", get(async || "ok"))
        .route("/large", get(async || "x".repeat(32 << 20)))
        .route("/events", get(stream));
    let limits = ConnectionLimits { connections, head_wait: WAIT, idle_wait: WAIT * 2, ping_every: WAIT };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve(listener, router, limits, async {
        let _ = stopped.await;
    });
    (address, stop, tokio::spawn(serving))
}

#[tokio::test]
async fn a_connection_that_does_not_say_what_it_wants_is_cut() {
    let (address, stop, served) = impatient(100).await;
    for beginning in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "GET / HTTP/1.1\r\nX-Slow: a",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nHT",
    ] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Ends only when the server closes.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.contains("200 OK"), beginning.ends_with("HT"), "{beginning:?}: {answer}");
    }
    stop.send(()).unwrap();
    served.await.unwrap();
}

/// A client of HTTP/2 that does all that is needed to be thought alive, until the server closes: what it was sent.
async fn idle_over_http_2(address: &str, window: [u8; 4]) -> Vec<u8> {
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const ACK: u8 = 1;
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[&[0, 4], &window[..]].concat())).await.unwrap();
    // GET, http, /, and the authority `a`; the request ends with its head.
    stream.write_all(&frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a'])).await.unwrap();
    let mut data = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        if stream.read_exact(&mut payload).await.is_err() {
            break;
        }
        match (head[3], head[4] & ACK) {
            (0, _) => data.extend(payload),
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap(),
            (PING, 0) => stream.write_all(&frame(PING, ACK, 0, &payload)).await.unwrap(),
            _ => {}
        }
    }
    data
}

#[tokio::test]
async fn an_idle_connection_of_http_2_is_cut_also_where_it_takes_no_answer() {
    let (address, stop, served) = impatient(100).await;
    assert_eq!(idle_over_http_2(&address, [0, 0, 255, 255]).await, b"ok");
    assert_eq!(idle_over_http_2(&address, [0; 4]).await, b"");
    stop.send(()).unwrap();
    served.await.unwrap();
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_cut_and_one_that_follows_events_is_not() {
    let (address, stop, served) = impatient(100).await;
    let events = reqwest::get(format!("http://{address}/events")).await.unwrap();
    assert_eq!(events.text().await.unwrap().matches("data: ").count(), 5);
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    stop.send(()).unwrap();
    // The server waits for its connections, and this one is never read.
    served.await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn slow_connections_take_up_no_more_than_the_places_there_are() {
    let (address, stop, served) = impatient(2).await;
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        slow.push(stream);
    }
    // Waits behind them, and is answered when they were cut.
    let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "ok");
    stop.send(()).unwrap();
    served.await.unwrap();
}
