//! memser behind the proxies that people put before it, with the configurations of `deploy/`.

use futures::future::join_all;
use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::ADMIN;
use crate::support::load::{Load, store};
use crate::support::proxy::{Kind, Settings, Site, url};
use crate::support::stream::Stream;

/// Comments come from the third second on, one each 5 s: the fifth after 23 s.
const COMMENTS: usize = 5;
/// Calls that have to succeed in each state of the replicas.
const CALLS: usize = 40;
/// How often to look whether a replica has calls: each time a proxy had one to give, and tens of seconds in all.
const LOOKS: usize = 1_000;

async fn silence(kind: Kind) {
    let site = Site::start(kind, Settings { impatient: true, ..Settings::default() }).await;
    site.admin().store("user:1", "The first.").await;
    let wanted = json!({ "resourcesListChanged": true });
    let (mut changes, _) = Stream::over(&site.http, &url("/mcp"), ADMIN, wanted).await;
    let mut held = site.database.connect().await;
    sqlx::raw_sql("select pg_advisory_lock(scope_id) from scopes").execute(&mut held).await.unwrap();
    let call = |accepts| {
        let request = site.http.post(url("/mcp")).bearer_auth(ADMIN).header("accept", accepts);
        request.json(&store("user:1", accepts)).send()
    };
    let patient = async {
        let mut answer = call("application/json, text/event-stream").await.unwrap();
        assert_eq!(answer.status(), 200, "{kind:?}");
        let mut text = String::new();
        while text.matches(": working").count() < COMMENTS {
            let chunk = answer.chunk().await.unwrap();
            text += std::str::from_utf8(&chunk.expect("the stream goes on")).unwrap();
        }
        (answer, text)
    };
    let ((answer, comments), cut) = tokio::join!(patient, call("application/json"));
    // The proxy does give up where nothing comes.
    assert_eq!(cut.unwrap().status(), StatusCode::GATEWAY_TIMEOUT, "{kind:?}");
    assert!(!comments.contains("data:"), "{comments}");
    drop(held);
    let events = answer.text().await.unwrap();
    let message = events.lines().find_map(|line| line.strip_prefix("data: ")).expect("the result");
    let message: Value = serde_json::from_str(message).unwrap();
    assert_eq!(message["result"]["structuredContent"]["outcome"], "stored", "{kind:?}: {message}");
    assert_eq!(changes.told().await, "list", "a stream that was as long without an event");
}

#[tokio::test]
async fn a_call_of_more_than_20_silent_seconds_outlives_a_proxy_that_waits_for_10() {
    tokio::join!(silence(Kind::Nginx), silence(Kind::Caddy));
}

#[tokio::test]
async fn the_longest_memory_passes_with_every_character_escaped_and_a_larger_body_does_not() {
    for kind in Kind::ALL {
        let site = Site::start(kind, Settings::default()).await;
        let send = |content: &str| {
            let escaped: String =
                content.bytes().map(|byte| ["\\u00", &hex::encode([byte])].concat()).collect();
            let body = store("user:1", "CONTENT").to_string().replace("CONTENT", &escaped);
            let request = site.http.post(url("/mcp")).bearer_auth(ADMIN);
            request.header("content-type", "application/json").body(body).send()
        };
        let content = "memory ".repeat(9_362) + "so";
        assert_eq!(content.len(), 64 * 1_024);
        let answer: Value = send(&content).await.unwrap().json().await.unwrap();
        assert_eq!(answer["result"]["structuredContent"]["outcome"], "stored", "{kind:?}: {answer}");
        let listed = site.admin().ok("list_memories", json!({ "scope": "user:1" })).await;
        assert_eq!(listed["memories"][0]["content"], content.as_str(), "{kind:?}");
        for times in [2, 4] {
            let refused = send(&content.repeat(times)).await.unwrap();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE, "{kind:?}: {times}");
        }
    }
}

#[tokio::test]
async fn clients_are_told_of_the_public_address_whatever_forwarding_headers_they_send() {
    for kind in Kind::ALL {
        let site = Site::start(kind, Settings { rate_limit: Some(2), ..Settings::default() }).await;
        let forged = |request: reqwest::RequestBuilder, number: usize| {
            let address = format!("192.0.2.{number}");
            let request =
                request.header("x-forwarded-host", "evil.example").header("x-forwarded-proto", "http");
            let request = request.header("x-forwarded-for", &address).header("x-real-ip", &address);
            request.header("forwarded", format!("for={address};host=evil.example;proto=http"))
        };
        let metadata = site.http.get(url("/.well-known/oauth-protected-resource/mcp"));
        let metadata: Value = forged(metadata, 1).send().await.unwrap().json().await.unwrap();
        assert_eq!(metadata["resource"], url("/mcp"), "{kind:?}");
        let refused = forged(site.http.post(url("/mcp")), 1).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{kind:?}");
        let challenge = refused.headers()["www-authenticate"].to_str().unwrap();
        let way = format!("resource_metadata=\"{}", url("/.well-known/"));
        assert!(challenge.contains(&way), "{kind:?}: {challenge}");
        // A token is limited, not an address: other addresses give it no more.
        let calls = (0..40).map(|number| {
            let call = site.http.post(url("/mcp")).bearer_auth(ADMIN);
            forged(call.json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })), number).send()
        });
        let answers = join_all(calls).await;
        let limited = answers.iter().map(|answer| answer.as_ref().unwrap());
        let limited = limited.filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
        assert!(limited.clone().all(|answer| answer.headers().contains_key("retry-after")), "{kind:?}");
        assert!(limited.count() > 0, "{kind:?}");
        for path in ["/readyz", "/metrics", "//metrics", "/%6detrics", "/x/../metrics", "/metrics/"] {
            let inside = forged(site.http.get(url(path)).bearer_auth(ADMIN), 1).send().await.unwrap();
            assert_eq!(inside.status(), StatusCode::NOT_FOUND, "{kind:?}: {path}");
        }
    }
}

#[tokio::test]
async fn nginx_hands_on_the_name_that_the_client_used() {
    let site = Site::start(Kind::Nginx, Settings::default()).await;
    for (host, status) in [("memory.example.com", 200), ("evil.example", 403)] {
        let call = site.http.post(url("/mcp")).bearer_auth(ADMIN).header("host", host);
        let answer = call.json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).send().await.unwrap();
        assert_eq!(answer.status(), status, "{host}");
    }
}

/// Waits until a replica has answered a call that came through the proxy.
async fn answers(site: &mut Site, replica: usize, load: &Load) {
    for _ in 0..LOOKS {
        if site.replicas()[replica].answered().await > 0 {
            return;
        }
        load.more(1).await;
    }
    panic!("{:?} leaves replica {replica} alone", site.kind);
}

/// Ends each replica and starts it again, while callers store without a pause. None of their calls fails.
async fn replace(site: &mut Site, signal: Signal) {
    let load = Load::on(&site.http, &url("/mcp"), ADMIN);
    for replica in 0..2 {
        answers(site, replica, &load).await;
    }
    for replica in 0..2 {
        let running = site.replicas()[replica].take();
        running.signal(signal);
        let (code, _, log) = running.end().await;
        assert_eq!(code, (signal == Signal::SIGTERM).then_some(0), "{log}");
        load.more(CALLS).await;
        site.replicas()[replica].start().await;
        answers(site, replica, &load).await;
        load.more(CALLS).await;
    }
    assert_eq!(load.failures(), [], "{:?}", site.kind);
    let (stored, repeated) = load.end().await;
    println!("{:?}: {} calls, {repeated} of them sent twice", site.kind, stored.len());
    let counted = "select count(*) from memories where valid_to is null";
    let counted: i64 =
        sqlx::query_scalar(counted).fetch_one(&mut site.database.connect().await).await.unwrap();
    assert_eq!(usize::try_from(counted), Ok(stored.len()), "each call has made one memory");
}

#[tokio::test]
async fn replicas_are_restarted_one_after_the_other_and_every_call_succeeds() {
    for kind in Kind::ALL {
        let mut site = Site::start(kind, Settings::default()).await;
        replace(&mut site, Signal::SIGTERM).await;
    }
}

#[tokio::test]
async fn a_replica_that_is_killed_costs_a_client_at_most_a_second_try() {
    for kind in Kind::ALL {
        let mut site = Site::start(kind, Settings::default()).await;
        replace(&mut site, Signal::SIGKILL).await;
    }
}
