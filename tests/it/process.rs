//! The `memser` command as a person runs it: its own Postgres, its own token, signals and exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::process::{Running, complaint, data_folder, memser, output, postmaster};

#[tokio::test]
async fn memories_and_the_token_outlive_a_kill_and_neither_is_logged() {
    let data = data_folder();
    let debug = [("MEMSER_LOG", "debug")];
    let memser = Running::start(data.path(), &debug);
    let file = data.path().join("token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fs::read_to_string(&file).unwrap().trim().to_owned();
    let client = memser.client(&token);
    let texts = [
        "Anna moved to Lisbon in March 2025.",
        "The deployment pipeline runs on Buildkite.",
        "Ravi prefers tea over coffee.",
        "The launch of Zephyrine is planned for October.",
        "Invoices are archived for ten years.",
    ];
    for text in texts {
        client.store("user:1", text).await;
    }
    client.recall("user:1", "When is Zephyrine launched?").await;
    let postgres = postmaster(data.path());
    memser.signal(Signal::SIGKILL);
    let (code, printed, first_log) = memser.end().await;
    assert_eq!(code, None);
    assert!(printed.contains(&token), "the first start does not show the token");
    kill(postgres, None).expect("Postgres went with the killed memser, so that there is nothing to test");

    let memser = Running::start(data.path(), &debug);
    let client = memser.client(&token);
    let listed = client.ok("list_memories", json!({ "scope": "user:1" })).await;
    let mut kept = crate::support::client::contents(&listed);
    kept.sort_unstable();
    let mut expected = texts.to_vec();
    expected.sort_unstable();
    assert_eq!(kept, expected);
    let outcome = memser.client("wrong-token-0123456789").post("tools/list", json!({})).await;
    assert_eq!(outcome.status(), 401);
    let postgres = postmaster(data.path());
    memser.signal(Signal::SIGTERM);
    let (code, printed, second_log) = memser.end().await;
    assert_eq!(code, Some(0), "{second_log}");
    assert!(kill(postgres, None).is_err(), "Postgres still runs");
    assert!(!printed.contains(&token), "the second start shows the token again");

    // A log that says nothing would keep every secret.
    assert!(first_log.contains("/mcp"), "{first_log}");
    for log in [first_log, second_log] {
        for secret in texts.iter().copied().chain([token.as_str(), "Zephyrine", "Buildkite"]) {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is in the log");
        }
    }
}

#[tokio::test]
async fn an_interrupt_stops_it_in_order_and_healthcheck_tells_both_states() {
    let data = data_folder();
    let memser = Running::start(data.path(), &[]);
    let postgres = postmaster(data.path());
    let address = memser.url.strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap().to_owned();
    let there = [("MEMSER_BIND", address.as_str())];
    let healthy = output(&["healthcheck"], &there);
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    memser.signal(Signal::SIGINT);
    let (code, _, log) = memser.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(kill(postgres, None).is_err(), "Postgres still runs");
    let words = complaint(&["healthcheck"], &there);
    assert!(words.contains("memser does not answer"), "{words}");
}

#[tokio::test]
async fn a_signal_ends_a_start_that_waits_for_its_database() {
    // Takes the connection and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://memser:p@{}/memser", silent.local_addr().unwrap());
    let mut memser = memser(&[], &[("DATABASE_URL", &url), ("MEMSER_TOKEN", "0123456789abcdef-token")]);
    let mut child = memser.stdout(Stdio::null()).spawn().unwrap();
    let (connection, _) = silent.accept().unwrap();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(0));
    drop(connection);
}

#[test]
fn migrate_makes_the_schema_and_leaves_nothing_running() {
    let data = data_folder();
    let folder = data.path().to_str().unwrap();
    for _ in 0..2 {
        let migrated = output(&["migrate"], &[("MEMSER_DATA_DIR", folder)]);
        assert_eq!(migrated.status.code(), Some(0), "{migrated:?}");
        assert!(data.path().join("pg/PG_VERSION").exists());
        assert!(!data.path().join("pg/postmaster.pid").exists(), "Postgres still runs");
    }
}

#[tokio::test]
async fn somebody_elses_database_needs_a_configured_token() {
    let database = crate::support::TestDatabase::create().await;
    let words = complaint(&[], &[("DATABASE_URL", &database.url)]);
    assert!(words.contains("set MEMSER_TOKEN"), "{words}");
}

#[test]
fn wrong_settings_are_refused_by_name() {
    for (name, value) in [
        ("MEMSER_BIND", "here"),
        ("DUPLICATE_THRESHOLD", "2"),
        ("MEMSER_TOKEN", "short"),
        ("DATABASE_URL", "mysql:nowhere"),
    ] {
        let words = complaint(&[], &[(name, value)]);
        assert!(words.starts_with("memser: ") && words.contains(name), "{words}");
    }
}

#[test]
fn an_unreachable_database_is_named_without_its_password() {
    // Bound and dropped: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://memser:hunter2@{closed}/memser");
    let variables =
        [("DATABASE_URL", url.as_str()), ("MEMSER_TOKEN", "0123456789abcdef-token"), ("MEMSER_LOG", "debug")];
    let output = output(&[], &variables);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("DATABASE_URL"), "{words}");
    assert!(!words.contains("hunter2") && !words.contains("0123456789abcdef"), "{words}");
}

#[tokio::test]
async fn the_log_tells_which_trace_a_call_is_part_of() {
    let data = data_folder();
    let memser = Running::start(data.path(), &[]);
    let token = fs::read_to_string(data.path().join("token")).unwrap();
    let [header, meta, bad] = ["a1", "b2", "zz"].map(|pair| pair.repeat(16));
    let traceparent = |trace: &str| format!("00-{trace}-00f067aa0ba902b7-01");
    let send = |id: &'static str, header: Option<&str>, meta: &str| {
        let params = json!({ "_meta": { "traceparent": traceparent(meta) } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": params });
        let request = reqwest::Client::new().post(&memser.url).bearer_auth(token.trim()).json(&body);
        let request = request.header("x-request-id", id);
        header.into_iter().fold(request, |request, trace| request.header("traceparent", trace)).send()
    };
    let from_header = traceparent(&header);
    for (id, header, meta) in [
        ("of-the-message", Some(&*from_header), &*meta),
        ("of-the-header", Some(&*from_header), &*bad),
        ("of-none", Some("garbage"), &*bad),
    ] {
        let answer = send(id, header, meta).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["x-request-id"].to_str().unwrap()), (200, id));
    }
    memser.signal(Signal::SIGTERM);
    let (_, _, log) = memser.end().await;
    let line = |id: &str| {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(id)).collect();
        assert_eq!(lines.len(), 1, "{log}");
        lines[0]
    };
    assert!(line("of-the-message").contains(&meta) && !line("of-the-message").contains(&header), "{log}");
    assert!(line("of-the-header").contains(&header), "{log}");
    assert!(!line("of-none").contains("trace_id"), "{log}");
    assert!(!log.contains(&bad) && !log.contains("garbage"), "{log}");
}
