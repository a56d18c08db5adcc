//! `memser export` and `memser import` with memser's own files: what goes out comes in again, once, whole or with the
//! reason.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use memser::app::{Import, Worker};
use memser::auth::Grant;
use memser::clock::Clock;
use memser::config::{Config, Source};
use memser::engine::import::Mode;
use memser::jobs::{Ran, Sweep};
use memser::model::Scope;
use memser::port::line::Line;
use memser::port::{Format, Report};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{ADMIN, Client, TestApp, TestAppBuilder};

/// The parts of `memser export` and `memser import`, on the database and the clock of a memser that serves.
pub async fn worker(app: &TestApp, more: &[(&str, &str)]) -> Worker {
    let mut variables: Vec<(String, String)> =
        app.database.settings().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    variables
        .extend([("EMBEDDER".to_owned(), "hash".to_owned()), ("MEMSER_TOKEN".to_owned(), ADMIN.to_owned())]);
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
    let config = Config::parse(&Source::read(None, variables).unwrap()).unwrap();
    Box::pin(Worker::start(&config, Clock::Fixed(app.clock.clone()))).await.unwrap()
}

/// What an export of these patterns writes.
pub async fn export(worker: &Worker, patterns: &[&str]) -> String {
    let mut file = Vec::new();
    let patterns: Vec<Grant> =
        patterns.iter().map(|pattern| format!("{pattern}=read").parse().unwrap()).collect();
    worker
        .export(&patterns, &mut |line: &Line| {
            serde_json::to_writer(&mut file, line)?;
            file.write_all(b"\n")
        })
        .await
        .unwrap();
    String::from_utf8(file).unwrap()
}

/// Stores what a file says.
pub async fn import(
    worker: &Worker,
    format: Format,
    scope: Option<&str>,
    mode: Mode,
    file: impl AsRef<[u8]>,
) -> Report {
    let mut written = tempfile::tempfile().unwrap();
    written.write_all(file.as_ref()).unwrap();
    std::io::Seek::rewind(&mut written).unwrap();
    let scope = scope.map(|name| Scope::parse(name).unwrap());
    let import = Import { file: written, format, scope, mode };
    Box::pin(worker.import(import, &CancellationToken::new(), |_, _| {})).await.unwrap()
}

async fn import_own(worker: &Worker, file: &str) -> Report {
    import(worker, Format::Memser, None, Mode::Write, file).await
}

/// A report of so many that were read, stored, and there already.
fn report(read: u64, stored: u64, there: u64, related: u64) -> Report {
    Report { read, stored, there, related, ..Report::default() }
}

/// A file of memser with these lines between the first and the last.
fn file(lines: &[Value]) -> String {
    let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    let header =
        json!({ "type": "header", "format": "memser", "version": 1, "exported_at": "2026-02-01T00:00:00Z" });
    let end = json!({
        "type": "end", "scopes": count("scope"), "memories": count("memory"), "superseded": count("superseded"),
        "origins": count("origin"), "conflicts": count("conflict"), "working": count("working"),
    });
    let all = [&[header], lines, &[end]].concat();
    all.iter().map(|line| line.to_string() + "\n").collect()
}

/// A memory's line, with what is changed in it.
fn memory(number: u128, content: &str, more: Value) -> Value {
    let mut line = json!({
        "type": "memory", "scope": "user:1", "id": uuid::Uuid::from_u128(number), "tier": "episodic",
        "content": content, "confidence": 0.8, "support": 1, "created_at": "2026-01-01T00:00:00Z",
        "valid_from": "2026-01-01T00:00:00Z", "sources": { "": 1 },
    });
    let Value::Object(more) = more else { panic!("fields are an object: {more}") };
    line.as_object_mut().unwrap().extend(more);
    line
}

fn consolidating() -> TestAppBuilder {
    TestApp::builder().set("CONSOLIDATION_SIMILARITY", "0.7").set("CONSOLIDATION_MIN_EPISODIC", "2")
}

/// Something of everything that memser keeps.
async fn lived(app: &TestApp) {
    let client = app.admin();
    for (n, said) in
        ["Anna: I moved to Lisbon", "Ben: how is the sea there?", "Anna: cold, and loud"].iter().enumerate()
    {
        let when = format!("2026-01-0{}T10:00:00.123456Z", n + 1);
        let more = json!({ "scope": "team:a", "content": said, "source": "chat-7", "occurred_at": when, "tags": ["chat", "a,b"],
                           "metadata": { "n": n, "deep": { "x": [1, 2.5, null, "ü"] } }, "actor": "bot" });
        client.ok("store_memory", more).await;
    }
    for (port, policy) in [(8080, "newest_wins"), (8081, "newest_wins"), (8082, "flag"), (8083, "flag")] {
        let said = format!("The staging server listens on port {port}");
        let more = json!({ "scope": "team:a", "content": said, "on_conflict": policy, "source": "ops" });
        client.ok("store_memory", more).await;
    }
    for (n, said) in [
        "The backup of the wiki runs every night on host alpha",
        "The backup of the wiki still runs every night on host alpha safely",
    ]
    .iter()
    .enumerate()
    {
        let more = json!({ "scope": "team:a", "content": said, "source": format!("log-{n}"), "on_conflict": "keep_both" });
        client.ok("store_memory", more).await;
    }
    client
        .ok(
            "store_memory",
            json!({ "scope": "team:a", "content": "Anna: I moved to Lisbon", "source": "diary" }),
        )
        .await;
    client.ok("consolidate_memories", json!({ "scope": "team:a" })).await;
    let open = client.ok("list_memories", json!({ "scope": "team:a", "status": "conflicted" })).await;
    let first = open["memories"][0]["id"].clone();
    client
        .ok("resolve_conflict", json!({ "scope": "team:a", "memory_id": first, "action": "keep_both" }))
        .await;
    for question in ["Where does Anna live?", "staging server port", "staging server port"] {
        client.recall("team:a", question).await;
    }
    client.store("user:2", "Something of another person").await;
    app.engine.flush().await;
    app.clock.advance(Duration::from_hours(24 * 45));
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    for _ in 0..2 {
        let more =
            json!({ "scope": "team:a", "content": "The kettle is on", "ttl_seconds": 600, "tags": ["now"] });
        client.ok("store_memory", more).await;
    }
}

/// What recalls of all kinds answer, with every score.
async fn recalls(app: &TestApp, client: &Client) -> Vec<Value> {
    let mut answers = Vec::new();
    for more in [
        json!({ "query": "Where does Anna live?" }),
        json!({ "query": "staging server port" }),
        json!({ "query": "staging server port", "include_superseded": true }),
        json!({ "query": "wiki backup", "k": 3 }),
        json!({ "query": "cold sea", "tags": ["chat"] }),
        json!({ "query": "port", "as_of": "2026-03-01T12:00:00Z" }),
        json!({ "query": "kettle" }),
    ] {
        let mut question = json!({ "scope": "team:a" });
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answers.push(client.ok("recall_memory", question).await);
        // What was recalled counts in the next recall: not at some time, but now.
        app.engine.flush().await;
    }
    answers
}

#[tokio::test]
async fn what_goes_out_and_comes_into_an_empty_memser_is_recalled_as_before() {
    let old = consolidating().start().await;
    lived(&old).await;
    let out = worker(&old, &[]).await;
    let written = export(&out, &["*"]).await;
    for kind in ["scope", "memory", "superseded", "origin", "conflict", "working"] {
        assert!(written.contains(&format!("{{\"type\":\"{kind}\"")), "nothing of {kind}: {written}");
    }
    for part in [
        "\"tier\":\"semantic\"",
        "\"resolution\":\"keep_both\"",
        "\"status\":\"open\"",
        "\"decayed_at\"",
        "\"access_count\":3",
        "\"support\":2",
        "\"superseded_reason\":\"consolidated\"",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }

    let new = TestApp::builder().clock(old.clock.clone()).start().await;
    let into = worker(&new, &[]).await;
    let report = import_own(&into, &written).await;
    assert_eq!((report.refused, report.left_out, report.duplicates), (0, 0, 0), "{report}");
    assert_eq!(report.read, report.stored + report.related);
    assert_eq!(export(&into, &["*"]).await, written);
    assert!(matches!(into.run(Sweep::Embed, std::future::pending()).await, Ran::Done));

    let (before, after) = (recalls(&old, &old.admin()).await, recalls(&new, &new.admin()).await);
    assert!(before.iter().all(|answer| !answer["memories"].as_array().unwrap().is_empty()), "{before:?}");
    assert_eq!(after, before);
    // The counters are what the memories say, so that quotas and consolidation go on as before.
    let counters = "select name, memories, tokens, bytes, unconsolidated, created_at, created_by from scopes order by name";
    let counters = format!("select row_to_json(s)::text from ({counters}) s");
    let mut counted = Vec::new();
    for app in [&old, &new] {
        let counters = sqlx::AssertSqlSafe(counters.clone());
        let rows: Vec<String> =
            sqlx::query_scalar(counters).fetch_all(&mut app.database.connect().await).await.unwrap();
        counted.push(rows);
    }
    assert_eq!(counted[0], counted[1]);
    for worker in [out, into] {
        worker.stop().await.unwrap();
    }
    old.stop().await;
    new.stop().await;
}

#[tokio::test]
async fn a_second_run_makes_nothing_twice_and_changes_nothing() {
    let old = consolidating().start().await;
    lived(&old).await;
    let worker = worker(&old, &[]).await;
    let written = export(&worker, &["*"]).await;
    let report = import_own(&worker, &written).await;
    assert_eq!((report.stored, report.duplicates, report.left_out, report.refused), (0, 0, 0, 0), "{report}");
    assert_eq!(export(&worker, &["*"]).await, written);
    worker.stop().await.unwrap();
    old.stop().await;
}

#[tokio::test]
async fn an_export_of_patterns_holds_what_they_cover_and_nothing_else() {
    let app = TestApp::start().await;
    for scope in ["team:a", "team:ab", "team:b", "user:1", "user:11"] {
        app.admin().store(scope, &format!("Kept by {scope}")).await;
    }
    let worker = worker(&app, &[]).await;
    for (patterns, expected) in [
        (&["team:a"][..], &["team:a"][..]),
        (&["team:a*", "user:1"], &["team:a", "team:ab", "user:1"]),
        (&["*"], &["team:a", "team:ab", "team:b", "user:1", "user:11"]),
        (&["nobody"], &[]),
    ] {
        let file = export(&worker, patterns).await;
        let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let scopes: Vec<&str> = lines
            .iter()
            .filter(|line| line["type"] == "memory")
            .map(|line| line["scope"].as_str().unwrap())
            .collect();
        assert_eq!(scopes, expected, "{patterns:?}");
        assert_eq!(lines.last().unwrap()["memories"], expected.len());
    }
    app.engine.flush().await;
    let noted: i64 = sqlx::query_scalar(
        "select count(*) from memory_audit_log where action = 'export' and scope = 'team:ab'",
    )
    .fetch_one(&mut app.database.connect().await)
    .await
    .unwrap();
    worker.stop().await.unwrap();
    assert_eq!(noted, 0, "noted before it is written");
    let noted: i64 = sqlx::query_scalar(
        "select count(*) from memory_audit_log where action = 'export' and scope = 'team:ab'",
    )
    .fetch_one(&mut app.database.connect().await)
    .await
    .unwrap();
    assert_eq!(noted, 2);
    app.stop().await;
}

#[tokio::test]
async fn what_a_server_has_already_stays_as_it_is() {
    let app = TestApp::start().await;
    let client = app.admin();
    let tea = client
        .ok("store_memory", json!({ "scope": "user:1", "content": "Anna likes tea", "source": "chat" }))
        .await;
    let worker = worker(&app, &[]).await;
    let own = export(&worker, &["user:1"]).await;
    let lines = [
        memory(1, "ANNA likes tea.", json!({ "source": "chat", "seq": 1 })),
        memory(2, "Anna plays the cello", json!({ "source": "chat", "seq": 1, "sources": { "chat": 1 } })),
        memory(3, "Anna sings", json!({ "source": "chat", "seq": 2, "sources": { "chat": 1 } })),
        memory(
            4,
            "Anna liked coffee",
            json!({ "valid_to": "2026-01-05T00:00:00Z", "superseded_reason": "conflict" }),
        ),
        memory(2, "The same id again", json!({})),
        json!({ "type": "superseded", "scope": "user:1", "id": uuid::Uuid::from_u128(4), "by": uuid::Uuid::from_u128(1) }),
        json!({ "type": "origin", "scope": "user:1", "id": uuid::Uuid::from_u128(3), "origin": uuid::Uuid::from_u128(99) }),
        json!({ "type": "conflict", "scope": "user:1", "id": uuid::Uuid::from_u128(5), "new": uuid::Uuid::from_u128(3),
                "old": uuid::Uuid::from_u128(1), "status": "open", "created_at": "2026-01-01T00:00:00Z" }),
    ];
    let report = import_own(&worker, &file(&lines)).await;
    let expected = Report { read: 8, stored: 3, there: 1, duplicates: 1, left_out: 3, ..Report::default() };
    assert_eq!(report, expected);
    let after = export(&worker, &["user:1"]).await;
    // The line of the memory that was there is the same, and those that came stand behind it in its source, in order.
    let of = |file: &str, id: &str| file.lines().find(|line| line.contains(id)).unwrap().to_owned();
    let tea = tea["id"].as_str().unwrap();
    assert_eq!(of(&after, tea), of(&own, tea));
    let seq = |number: u128| {
        let line = of(&after, &uuid::Uuid::from_u128(number).to_string());
        serde_json::from_str::<Value>(&line).unwrap()["seq"].clone()
    };
    assert_eq!((seq(2), seq(3)), (json!(2), json!(3)));
    assert_eq!(client.recall("user:1", "cello").await[0], "Anna plays the cello");
    worker.stop().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn what_is_no_memory_is_refused_with_its_line_and_the_rest_goes_in() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[("MEMSER_MAX_CONTENT_BYTES", "1000")]).await;
    let good = |number| memory(number, &format!("Good memory {number}"), json!({}));
    let marks = ["confidential", "Zephyrine"];
    let bad = |more: Value| memory(77, &marks.join(" "), more).to_string();
    let damaged: Vec<String> = vec![
        "{\"type\":\"memory\",\"scope\":\"user:1\"".to_owned(),
        "confidential Zephyrine".to_owned(),
        "[1, 2]".to_owned(),
        json!({ "type": "memory", "scope": "user:1", "content": "confidential" }).to_string(),
        json!({ "type": "confidential", "scope": "user:1" }).to_string(),
        bad(json!({ "confidence": "Zephyrine" })),
        bad(json!({ "confidence": 1.5 })),
        bad(json!({ "support": 0 })),
        bad(json!({ "support": 99_999_999_999_i64 })),
        bad(json!({ "tier": "working" })),
        bad(json!({ "tier": "Zephyrine" })),
        bad(json!({ "scope": "team:*" })),
        bad(json!({ "scope": "" })),
        bad(json!({ "content": "a\0b" })),
        bad(json!({ "content": "x".repeat(1001) })),
        bad(json!({ "content": " " })),
        bad(json!({ "tags": [""] })),
        bad(json!({ "metadata": { "deep": "x".repeat(20_000) } })),
        bad(json!({ "source": "a\nb" })),
        bad(json!({ "sources": { "a\0b": 1 } })),
        bad(json!({ "sources": { "chat": 0 } })),
        bad(json!({ "seq": -1 })),
        bad(json!({ "valid_to": "2026-01-05T00:00:00Z" })),
        bad(json!({ "valid_to": "2026-01-05T00:00:00Z", "superseded_reason": "Zephyrine" })),
        bad(json!({ "created_at": "Zephyrine" })),
        bad(json!({ "created_at": "+99999-01-01T00:00:00Z" })),
        bad(json!({ "access_count": 3 })),
        bad(json!({ "Zephyrine": 1 })),
    ];
    let whole = file(&[good(1)]);
    let mut lines: Vec<&str> = whole.lines().collect();
    let end = lines.pop().unwrap();
    lines.extend(damaged.iter().map(String::as_str));
    let last = good(2).to_string();
    lines.extend([last.as_str(), "", end]);
    let mut bytes = lines.join("\n").into_bytes();
    let report = import(&worker, Format::Memser, None, Mode::Write, &bytes).await;
    assert_eq!((report.stored, report.refused), (2, damaged.len() as u64), "{report}");
    let refused: Vec<u64> = (3..).take(20).collect();
    assert_eq!(report.reasons.iter().map(|(line, _)| *line).collect::<Vec<_>>(), refused, "{report}");
    for mark in marks {
        assert!(!report.to_string().contains(mark), "{report}");
    }
    // Bytes that are no text.
    bytes.splice(0..0, b"\xef\xbb\xbf".iter().copied());
    bytes.extend(b"\n\xff\xfe\n");
    let again = import(&worker, Format::Memser, None, Mode::Write, &bytes).await;
    assert_eq!((again.stored, again.there, again.refused), (0, 2, report.refused + 1), "{again}");
    worker.stop().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn a_file_that_is_not_whole_does_not_look_whole() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    let whole = file(&[memory(1, "First", json!({})), memory(2, "Second", json!({}))]);
    let lines: Vec<&str> = whole.lines().collect();
    for (text, stored, words) in [
        (lines[..3].join("\n"), 2, "ends before its last line"),
        ([lines[0], lines[1], lines[3]].join("\n"), 0, "counts other lines"),
        (lines[1..].join("\n"), 0, "does not begin with the header"),
        (whole.clone() + lines[1], 0, "behind the last line"),
        (whole.replace("\"version\":1", "\"version\":2"), 0, "version 2"),
        (String::new(), 0, "ends before its last line"),
    ] {
        let report = import_own(&worker, &text).await;
        assert_eq!((report.stored, report.refused), (stored, 1), "{words}: {report}");
        assert!(report.reasons[0].1.contains(words), "{words}: {report}");
    }
    worker.stop().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn a_scope_comes_back_under_another_name_and_two_are_never_mixed() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    let text = file(&[
        memory(1, "First", json!({ "scope": "old:1" })),
        memory(2, "Foreign", json!({ "scope": "old:2" })),
        memory(3, "Second", json!({ "scope": "old:1" })),
    ]);
    let report = import(&worker, Format::Memser, Some("new:1"), Mode::Write, &text).await;
    assert_eq!((report.stored, report.refused), (2, 1), "{report}");
    assert_eq!(report.reasons[0].0, 3);
    let file = export(&worker, &["*"]).await;
    assert!(
        file.contains("\"scope\":\"new:1\"") && !file.contains("old:") && !file.contains("Foreign"),
        "{file}"
    );
    worker.stop().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    let two = [memory(1, "First", json!({})), memory(2, "First!", json!({}))];
    let working = json!({ "type": "working", "scope": "user:9", "id": uuid::Uuid::from_u128(9), "content": "For a while",
                          "support": 1, "created_at": "2026-01-01T00:00:00Z", "expires_at": "2027-01-01T00:00:00Z" });
    let text = file(&[two[0].clone(), two[1].clone(), working]);
    let report = import(&worker, Format::Memser, None, Mode::DryRun, &text).await;
    assert_eq!((report.read, report.stored, report.duplicates), (3, 2, 1), "{report}");
    let scopes: i64 = sqlx::query_scalar("select count(*) from scopes")
        .fetch_one(&mut app.database.connect().await)
        .await
        .unwrap();
    assert_eq!(scopes, 0);
    let report = import(&worker, Format::Memser, None, Mode::Write, &text).await;
    assert_eq!((report.read, report.stored, report.duplicates), (3, 2, 1), "{report}");
    worker.stop().await.unwrap();
    app.stop().await;
}

#[tokio::test]
async fn credentials_and_quotas_hold_for_files_too() {
    let app = TestApp::start().await;
    let secret = concat!("The key is ghp_", "x7Kq2mVb9TzR4wYs8NcJ1dLf6HgPa3Ue5oXi");
    let text = file(&[
        memory(1, secret, json!({})),
        memory(2, "Harmless", json!({})),
        memory(3, "One too many", json!({})),
    ]);
    for (policy, redacted) in [("refuse", 0), ("redact", 1)] {
        let limits = [("SECRET_POLICY", policy), ("MEMSER_MAX_MEMORIES_PER_SCOPE", "2")];
        let worker = worker(&app, &limits).await;
        let scope = format!("user:{policy}");
        let report = import(&worker, Format::Memser, Some(&scope), Mode::Write, &text).await;
        assert_eq!((report.stored, report.redacted, report.refused), (2, redacted, 1), "{policy}: {report}");
        assert!(!export(&worker, &["*"]).await.contains("ghp_"));
        worker.stop().await.unwrap();
    }
    app.stop().await;
}

#[tokio::test]
async fn working_memories_come_back_with_the_rest_of_their_time_in_redis_too() {
    for redis in [false, true] {
        let builder = if redis { TestApp::builder().redis() } else { TestApp::builder() };
        let app = builder.start().await;
        let url = std::env::var("MEMSER_TEST_REDIS_URL").unwrap();
        let more = if redis { vec![("REDIS_URL", url.as_str())] } else { vec![] };
        let worker = worker(&app, &more).await;
        let line = |number: u128, content: &str, until: &str| {
            json!({ "type": "working", "scope": "user:1", "id": uuid::Uuid::from_u128(number), "content": content,
                    "support": 3, "created_at": "2026-01-01T00:00:00Z", "expires_at": until })
        };
        let lines = [
            line(1, "The kettle is on", "2026-03-01T12:10:00.500Z"),
            line(2, "Long over", "2026-03-01T12:00:00Z"),
            line(3, "the kettle is ON", "2026-03-01T12:20:00Z"),
        ];
        for stored in [1, 0] {
            let report = import_own(&worker, &file(&lines)).await;
            let expected = Report {
                read: 3,
                stored,
                there: 1 - stored,
                duplicates: 1,
                left_out: 1,
                ..Report::default()
            };
            assert_eq!(report, expected, "redis: {redis}");
        }
        let written = export(&worker, &["*"]).await;
        let kept: Value =
            serde_json::from_str(written.lines().find(|line| line.contains("kettle")).unwrap()).unwrap();
        assert_eq!(kept, lines[0], "redis: {redis}");
        worker.stop().await.unwrap();
        app.stop().await;
    }
}

#[tokio::test]
async fn any_file_goes_in_and_comes_out_as_the_same_text() {
    let content = "[a-zA-Z0-9 .,!?'\"äöü日本語🙂\\\\-]{0,40}";
    let label = prop::option::of("[a-z]{1,6}");
    let one = (
        content,
        label.clone(),
        label,
        any::<[bool; 4]>(),
        0.0f32..=1.0,
        1..9i32,
        0..5_000_000_000_000_000i64,
    );
    let all = prop::collection::vec(one, 1..30);
    let mut runner = TestRunner::deterministic();
    for round in 0..6 {
        let app = TestApp::start().await;
        let worker = worker(&app, &[]).await;
        let mut lines = Vec::new();
        for (n, (text, source, tag, flags, confidence, support, micros)) in
            all.new_tree(&mut runner).unwrap().current().into_iter().enumerate()
        {
            let at = chrono::DateTime::from_timestamp_micros(micros).unwrap();
            let number = n as u128 + 1;
            let more = json!({
                "scope": format!("user:{}", n % 3), "source": source, "confidence": confidence, "support": support,
                "seq": n + 1, "tags": tag.iter().collect::<Vec<_>>(), "created_at": at, "valid_from": at,
                "metadata": if flags[0] { json!({ "text": text, "n": confidence }) } else { json!({}) },
                "valid_to": flags[1].then_some(at), "superseded_reason": flags[1].then_some("conflict"),
                "occurred_at": flags[2].then_some(at), "access_count": i32::from(flags[3]), "kept_apart": flags[2],
                "last_accessed_at": flags[3].then_some(at), "sources": { source.clone().unwrap_or_default(): support },
                "looked_at": flags[0],
            });
            // Each text is another one, or it would be a duplicate.
            lines.push(memory(number, &format!("{text} {number}"), more));
            if flags[1] && n >= 3 {
                let by = uuid::Uuid::from_u128(number - 3);
                let id = uuid::Uuid::from_u128(number);
                lines.push(
                    json!({ "type": "superseded", "scope": format!("user:{}", n % 3), "id": id, "by": by }),
                );
            }
        }
        let report = import_own(&worker, &file(&lines)).await;
        assert_eq!(report.stored + report.related, lines.len() as u64, "round {round}: {report}");
        let first = export(&worker, &["*"]).await;
        let other = TestApp::builder().clock(app.clock.clone()).start().await;
        let second_worker = self::worker(&other, &[]).await;
        assert_eq!(import_own(&second_worker, &first).await.refused, 0);
        assert_eq!(export(&second_worker, &["*"]).await, first, "round {round}");
        for worker in [worker, second_worker] {
            worker.stop().await.unwrap();
        }
        app.stop().await;
        other.stop().await;
    }
}

#[tokio::test]
async fn twenty_thousand_lines_go_in_window_by_window() {
    let app = TestApp::start().await;
    let worker = worker(&app, &[]).await;
    let lines: Vec<Value> = (1..=20_000u128)
        .map(|number| memory(number, &format!("Note {number} of the long book"), json!({})))
        .collect();
    let text = file(&lines);
    let mut written = tempfile::tempfile().unwrap();
    written.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut written).unwrap();
    let written: File = written;
    let import = Import { file: written, format: Format::Memser, scope: None, mode: Mode::Write };
    let mut windows = Vec::new();
    let report = worker
        .import(import, &CancellationToken::new(), |report, _| windows.push(report.read))
        .await
        .unwrap();
    assert_eq!(report, self::report(20_000, 20_000, 0, 0));
    assert!(windows.windows(2).all(|pair| pair[1] - pair[0] <= 1_000), "{windows:?}");
    assert_eq!(app.admin().recall("user:1", "Note 19999").await[0], "Note 19999 of the long book");
    // Stopped, it ends with a window, and the next run does the rest.
    let stop = CancellationToken::new();
    let mut written = tempfile::tempfile().unwrap();
    written.write_all(text.replace("user:1", "user:2").as_bytes()).unwrap();
    std::io::Seek::rewind(&mut written).unwrap();
    let import = Import { file: written, format: Format::Memser, scope: None, mode: Mode::Write };
    let report = worker.import(import, &stop, |_, _| stop.cancel()).await.unwrap();
    assert_eq!(report, self::report(1_000, 1_000, 0, 0));
    let report = import_own(&worker, &text.replace("user:1", "user:2")).await;
    assert_eq!(report, self::report(20_000, 19_000, 1_000, 0));
    worker.stop().await.unwrap();
    app.stop().await;
}
