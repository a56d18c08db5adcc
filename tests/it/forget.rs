//! `forget_memory`: complete, counted exactly, and never half-way without a word.

use std::time::{Duration, Instant};

use memser::api::ForgetArgs;
use memser::auth::{Caller, Grant};
use memser::jobs::{Ran, Sweep};
use memser::model::Action;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};

use crate::support::client::contents;
use crate::support::{TestApp, bulk, embedder};

async fn forget(app: &TestApp, mut arguments: Value) -> Value {
    arguments["scope"] = "user:1".into();
    app.admin().ok("forget_memory", arguments).await
}

#[tokio::test]
async fn forgetting_counts_over_all_tiers_and_a_dry_run_changes_nothing() {
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        let store = async |content: &str, tags: &[&str], ttl: Option<u64>| {
            let mut arguments = json!({ "scope": "user:1", "content": content, "tags": tags });
            if let Some(ttl) = ttl {
                arguments["ttl_seconds"] = ttl.into();
            }
            client.ok("store_memory", arguments).await
        };
        store("The heron stands in the reeds", &["a", "b"], None).await;
        store("Bread rises overnight", &["a"], None).await;
        store("Call the plumber", &["a", "b"], Some(60)).await;
        store("Buy stamps", &[], Some(60)).await;
        let counts =
            |working: u64, episodic: u64| json!({ "working": working, "episodic": episodic, "semantic": 0 });
        let dry = forget(&app, json!({ "all": true, "dry_run": true })).await;
        assert_eq!((&dry["forgotten"], &dry["dry_run"]), (&counts(2, 2), &json!(true)));
        // Of several tags all are meant.
        assert_eq!(forget(&app, json!({ "tags": ["a", "b"] })).await["forgotten"], counts(1, 1));
        assert_eq!(forget(&app, json!({ "tier": "working" })).await["forgotten"], counts(1, 0));
        assert_eq!(forget(&app, json!({ "all": true })).await["forgotten"], counts(0, 1));
        assert_eq!(forget(&app, json!({ "all": true })).await["forgotten"], counts(0, 0));
        app.stop().await;
    }
}

#[tokio::test]
async fn a_snapshot_keeps_the_text_unless_it_is_erased() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (content, erase) in [("Kept for a while", false), ("Never to be seen again", true)] {
        let id = client.store("user:1", content).await;
        forget(&app, json!({ "memory_id": id, "erase": erase })).await;
    }
    let mut connection = app.database.connect().await;
    let rows = sqlx::query("select content, octet_length(content_hash), row_to_json(s)::text from memory_snapshot s order by memory_id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let kept: Vec<Option<String>> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [Some("Kept for a while".to_owned()), None]);
    assert!(rows.iter().all(|row| row.get::<i32, _>(1) == 32));
    assert!(!rows[1].get::<String, _>(2).contains("Never"));
    assert_eq!(client.recall("user:1", "kept again").await, Vec::<String>::new());
    app.stop().await;
}

#[tokio::test]
async fn a_foreign_id_and_an_absent_one_are_answered_alike() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Mine").await;
    let foreign = client.store("user:2", "Not mine").await;
    for tool in ["forget_memory", "list_memories"] {
        let mut answers = Vec::new();
        for id in [foreign.as_str(), "00000000-0000-7000-8000-000000000000"] {
            let outcome = client.call(tool, json!({ "scope": "user:1", "memory_id": id })).await;
            assert!(outcome.is_error, "{tool} {id}");
            answers.push((outcome.text, outcome.structure.to_string()));
        }
        assert_eq!(answers[0], answers[1], "{tool}");
    }
    assert_eq!(client.recall("user:2", "mine").await, ["Not mine"]);
    app.stop().await;
}

/// A scope of 2,500 memories, and another one.
async fn thousands() -> TestApp {
    let app = TestApp::start().await;
    app.admin().store("user:1", "One by hand").await;
    app.admin().store("user:2", "Another scope").await;
    let contents: Vec<String> = (1..2_500).map(|row| format!("row {row}")).collect();
    bulk::store(&app, "user:1", &contents, 1_024).await;
    app
}

async fn left(connection: &mut PgConnection) -> i64 {
    let count = "select count(*) from memories join scopes using (scope_id) where name = 'user:1'";
    sqlx::query_scalar(count).fetch_one(connection).await.unwrap()
}

/// What the audit log says was forgotten.
async fn audited(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select coalesce(sum((detail -> 'forgotten' ->> 'episodic')::bigint), 0)::bigint from memory_audit_log
          where action = 'forget_memory' and outcome = 'ok'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

fn everything() -> ForgetArgs {
    ForgetArgs { scope: Some("user:1".to_owned()), all: true, ..ForgetArgs::default() }
}

fn caller() -> Caller {
    let grants = vec![Grant::everything(Action::Admin)];
    Caller { subject: "test".to_owned(), grants, request_id: "request".to_owned() }
}

#[tokio::test]
async fn thousands_are_forgotten_exactly() {
    let app = thousands().await;
    let mut connection = app.database.connect().await;
    let answer = forget(&app, json!({ "tier": "episodic" })).await;
    assert_eq!((&answer["forgotten"]["episodic"], &answer["complete"]), (&json!(2_500), &json!(true)));
    assert_eq!(answer["ids"].as_array().unwrap().len(), 100);
    let left: Vec<String> =
        sqlx::query_scalar("select content from memories").fetch_all(&mut connection).await.unwrap();
    assert_eq!(left, ["Another scope"]);
    let counted: Vec<(String, i64, i64, i64)> =
        sqlx::query_as("select name, memories, tokens, unconsolidated from scopes order by name")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!((counted[0].1, counted[0].2, counted[0].3, counted[1].1), (0, 0, 0, 1), "{counted:?}");
    app.stop().await;
}

#[tokio::test]
async fn a_forget_out_of_time_says_how_far_it_came_and_goes_on() {
    let app = thousands().await;
    let mut connection = app.database.connect().await;
    let mut forgotten = Vec::new();
    loop {
        // No time at all: each call does one chunk.
        let answer = app.engine.forget(&caller(), everything(), Instant::now()).await.unwrap();
        forgotten.push(answer.forgotten.episodic);
        let before: u64 = forgotten.iter().sum();
        assert_eq!(left(&mut connection).await, 2_500 - i64::try_from(before).unwrap());
        if answer.complete {
            break;
        }
    }
    assert_eq!(forgotten, [1_000, 1_000, 500]);
    assert_eq!(audited(&mut connection).await, 2_500);
    app.stop().await;
}

#[tokio::test]
async fn a_forget_that_is_cut_off_left_whole_chunks_and_the_audit_log_knows_them() {
    let app = thousands().await;
    let (mut connection, mut holder) = (app.database.connect().await, app.database.connect().await);
    // Somebody holds a memory of the last chunk, so that the forget gets stuck there.
    sqlx::raw_sql("begin; select from memories order by id desc limit 1 for share")
        .execute(&mut holder)
        .await
        .unwrap();
    let engine = app.engine.clone();
    let soon = Instant::now() + Duration::from_hours(1);
    let stuck = tokio::spawn(async move { engine.forget(&caller(), everything(), soon).await });
    while left(&mut connection).await > 500 {
        tokio::task::yield_now().await;
    }
    // Nobody who reads waits for it.
    assert!(app.admin().recall("user:1", "row 2499").await.contains(&"row 2499".to_owned()));
    stuck.abort();
    assert!(stuck.await.unwrap_err().is_cancelled());
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    assert_eq!((left(&mut connection).await, audited(&mut connection).await), (500, 2_000));
    let rest = forget(&app, json!({ "all": true })).await;
    assert_eq!((&rest["forgotten"]["episodic"], &rest["complete"]), (&json!(500), &json!(true)));
    assert_eq!((left(&mut connection).await, audited(&mut connection).await), (0, 2_500));
    app.stop().await;
}

#[tokio::test]
async fn what_is_stored_again_starts_a_new_life() {
    let app = TestApp::start().await;
    let client = app.admin();
    let store =
        async || client.ok("store_memory", json!({ "scope": "user:1", "content": "Anna plays chess" })).await;
    store().await;
    let first = store().await;
    assert_eq!(first["support"], 2);
    forget(&app, json!({ "memory_id": first["id"] })).await;
    let second = store().await;
    assert_eq!((&second["outcome"], &second["support"]), (&json!("stored"), &json!(1)));
    assert_ne!(first["id"], second["id"]);
    assert_eq!(
        client.refused("forget_memory", json!({ "scope": "user:1", "memory_id": first["id"] })).await["code"],
        "not_found"
    );
    app.stop().await;
}

/// Everything that the database keeps of a text or an id outside the live memories.
async fn traces(connection: &mut PgConnection, of: &str) -> Vec<String> {
    sqlx::query_scalar(
        "select kept from (select row_to_json(s)::text as kept from memory_snapshot s
                           union all select answer::text from idempotency_keys
                           union all select detail::text from memory_audit_log) as all_kept
          where kept like '%' || $1 || '%'",
    )
    .bind(of)
    .fetch_all(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn erasing_reaches_earlier_lives_kept_answers_and_audit_details() {
    let app = TestApp::start().await;
    let client = app.admin();
    let secret = "The safe opens with 4711";
    let mut ids = Vec::new();
    for life in 0..2 {
        for scope in ["user:1", "user:2"] {
            let arguments =
                json!({ "scope": scope, "content": secret, "idempotency_key": format!("k{life}") });
            let id = client.ok("store_memory", arguments).await["id"].clone();
            if scope == "user:1" {
                ids.push(id.clone());
            }
            if life == 0 {
                client.ok("forget_memory", json!({ "scope": scope, "memory_id": id })).await;
            }
        }
    }
    let mut connection = app.database.connect().await;
    assert_eq!(traces(&mut connection, "4711").await.len(), 2, "a snapshot in each scope");
    let answer = forget(&app, json!({ "memory_id": ids[1], "erase": true })).await;
    assert_eq!(answer["forgotten"]["episodic"], 1);
    let kept = traces(&mut connection, "4711").await;
    assert_eq!(kept.len(), 1, "the other scope's: {kept:?}");
    let details: Vec<Value> = sqlx::query_scalar(
        "select detail from memory_audit_log where memory_id = $1::uuid and action = 'store_memory'",
    )
    .bind(ids[1].as_str())
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(details, [json!({})]);
    let answers: i64 = sqlx::query_scalar("select count(*) from idempotency_keys where answer ->> 'id' = $1")
        .bind(ids[1].as_str())
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(answers, 0);
    app.stop().await;
}

#[tokio::test]
async fn what_was_forgotten_before_can_still_be_erased() {
    let app = TestApp::start().await;
    let client = app.admin();
    let store = async |scope: &str, content: &str, tags: &[&str]| {
        let arguments = json!({ "scope": scope, "content": content, "tags": tags });
        client.ok("store_memory", arguments).await["id"].clone()
    };
    let first = store("user:1", "Heron one", &["a"]).await;
    store("user:1", "Bread two", &["a"]).await;
    store("user:1", "Violin three", &[]).await;
    store("user:2", "Foreign four", &["a"]).await;
    for scope in ["user:1", "user:2"] {
        client.ok("forget_memory", json!({ "scope": scope, "all": true })).await;
    }
    let mut connection = app.database.connect().await;
    let dry = forget(&app, json!({ "memory_id": first, "erase": true, "dry_run": true })).await;
    assert_eq!((&dry["erased"], traces(&mut connection, "Heron").await.len()), (&json!(1), 1));
    let answer = forget(&app, json!({ "memory_id": first, "erase": true })).await;
    assert_eq!((&answer["erased"], &answer["forgotten"]["episodic"]), (&json!(1), &json!(0)));
    assert_eq!(traces(&mut connection, "Heron").await, Vec::<String>::new());
    assert_eq!(forget(&app, json!({ "tags": ["a"], "erase": true })).await["erased"], 1);
    assert_eq!(forget(&app, json!({ "all": true, "erase": true })).await["erased"], 1);
    assert_eq!(traces(&mut connection, "Foreign").await.len(), 1);
    let again = client
        .refused("forget_memory", json!({ "scope": "user:1", "memory_id": first, "erase": true }))
        .await;
    assert_eq!(again["code"], "not_found");
    app.stop().await;
}

#[tokio::test]
async fn snapshots_are_dropped_after_their_time() {
    let app = TestApp::builder().set("SNAPSHOT_RETENTION_DAYS", "10").start().await;
    let mut connection = app.database.connect().await;
    for content in ["Forgotten early", "Forgotten late"] {
        app.admin().store("user:1", content).await;
        forget(&app, json!({ "all": true })).await;
        app.clock.advance(Duration::from_hours(24 * 6));
    }
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let kept: Vec<String> =
        sqlx::query_scalar("select content from memory_snapshot").fetch_all(&mut connection).await.unwrap();
    assert_eq!(kept, ["Forgotten late"]);
    app.stop().await;
}

#[tokio::test]
async fn a_selected_fact_goes_with_its_first_original_and_the_others_come_back() {
    let app = TestApp::builder().consolidating().start().await;
    let client = app.admin();
    let alike = [
        ("The backup of the wiki runs every night on host alpha", "gone"),
        ("The backup of the wiki runs every night on host alpha safely", "stays"),
    ];
    for (content, tag) in alike {
        let arguments =
            json!({ "scope": "user:1", "content": content, "tags": [tag], "on_conflict": "keep_both" });
        client.ok("store_memory", arguments).await;
    }
    let made = client.ok("consolidate_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(made["superseded"].as_array().unwrap().len(), 2, "{made}");
    // The fact carries the tags of both.
    let answer = forget(&app, json!({ "tags": ["gone"] })).await;
    assert_eq!(answer["forgotten"], json!({ "working": 0, "episodic": 1, "semantic": 1 }));
    assert_eq!(answer["retracted"], json!([]));
    assert_eq!(contents(&client.ok("list_memories", json!({ "scope": "user:1" })).await), [alike[1].0]);
    let mut connection = app.database.connect().await;
    let of_facts: Vec<Option<String>> =
        sqlx::query_scalar("select content from memory_snapshot where tier = 'semantic'")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(of_facts, [None], "it would tell of an original that is erased later");
    app.stop().await;
}

#[tokio::test]
async fn an_original_with_the_very_text_of_its_fact_comes_back() {
    // All vectors are equal, so that the first text is as central as any and becomes the summary.
    let endpoint = embedder::endpoint(|_| vec![1.0, 0.0]).await;
    let app = embedder::asking(&endpoint.uri(), 2).start().await;
    let client = app.admin();
    let mut ids = Vec::new();
    for content in
        ["Anna likes tea", "Anna likes tea in the morning, in the afternoon and late in the evening"]
    {
        let arguments = json!({ "scope": "user:1", "content": content, "on_conflict": "keep_both" });
        ids.push(client.ok("store_memory", arguments).await["id"].clone());
    }
    let made = client.ok("consolidate_memories", json!({ "scope": "user:1" })).await;
    let fact = client.ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
    let mut connection = app.database.connect().await;
    // Whatever the summary is, make it the second original's text.
    sqlx::query(
        "update memories f set content_hash = o.content_hash, content = o.content from memories o
          where f.tier = 'semantic' and o.id = $1::uuid",
    )
    .bind(ids[1].as_str())
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(made["created"][0], fact["memories"][0]["id"]);
    let answer = forget(&app, json!({ "memory_id": ids[0] })).await;
    assert_eq!(answer["retracted"], made["created"]);
    let listed = client.ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(listed["memories"][0]["id"], ids[1], "{listed}");
    app.stop().await;
}

#[tokio::test]
async fn no_sweep_brings_a_forgotten_memory_back() {
    let endpoint = embedder::endpoint(|_| vec![1.0, 0.0]).await;
    let app = embedder::asking(&endpoint.uri(), 2).set("CONSOLIDATION_MIN_EPISODIC", "2").start().await;
    let client = app.admin();
    let mut ids = Vec::new();
    for content in ["Anna likes tea", "Boats leave at noon", "Chess is played on Mondays"] {
        let arguments = json!({ "scope": "user:1", "content": content, "on_conflict": "keep_both" });
        ids.push(client.ok("store_memory", arguments).await["id"].clone());
    }
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Done);
    assert_eq!(
        contents(&client.ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await).len(),
        1
    );
    forget(&app, json!({ "memory_id": ids[0] })).await;
    for sweep in Sweep::ALL {
        assert_eq!(app.jobs.run(sweep).await, Ran::Done, "{sweep:?}");
    }
    let all = json!({ "scope": "user:1", "query": "tea boats chess", "include_superseded": true });
    let found = contents(&client.ok("recall_memory", all).await).join(" ");
    assert!(found.contains("Boats") && found.contains("Chess") && !found.contains("tea"), "{found}");
    let facts = client.ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
    assert_eq!(
        facts["memories"][0]["origin"],
        json!([ids[1], ids[2]]),
        "the fact is made anew of the others"
    );
    app.stop().await;
}

#[tokio::test]
async fn what_is_forgotten_is_found_by_no_road() {
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        let text = "The heron stands in the reeds";
        let durable = client.store("user:1", text).await;
        let working = json!({ "scope": "user:1", "content": "Feed the heron", "ttl_seconds": 60 });
        let working = client.ok("store_memory", working).await["id"].clone();
        client.store("user:1", "Bread rises overnight").await;
        for id in [json!(durable), working] {
            forget(&app, json!({ "memory_id": id })).await;
            let by_id = client.refused("list_memories", json!({ "scope": "user:1", "memory_id": id })).await;
            assert_eq!(by_id["code"], "not_found");
        }
        // By its very text, by a word, by meaning, as history, as neighbour of what was stored next.
        for query in [text, "heron", "a bird in the water", "bread"] {
            let call = json!({ "scope": "user:1", "query": query, "include_superseded": true });
            let found = contents(&client.ok("recall_memory", call).await);
            assert!(!found.iter().any(|found| found.contains("heron")), "{query}: {found:?}");
        }
        for status in ["active", "superseded", "conflicted", "pending"] {
            let listed = client.ok("list_memories", json!({ "scope": "user:1", "status": status })).await;
            assert!(!listed.to_string().contains("heron"), "{status}");
        }
        app.stop().await;
    }
}

/// A measurement, not a test: how long a forget of 100,000 memories takes, beside storing them, and what a recall of the
/// scope waits meanwhile. `docs/benchmarks.md` has its command and figures.
#[tokio::test]
#[ignore = "takes minutes; prints what docs/benchmarks.md has"]
async fn a_hundred_thousand() {
    const ROWS: usize = 100_000;
    let app = TestApp::builder().set("MEMSER_CALL_TIMEOUT_SECONDS", "3600").start().await;
    let client = app.admin();
    client.store("user:1", "One by hand").await;
    let words =
        ["heron", "bread", "kettle", "violin", "granite", "lemon", "harbour", "tunnel", "meadow", "opera"];
    let content = |row: usize| {
        let word = |at: usize| words[(row / 10_usize.pow(u32::try_from(at).unwrap())) % 10];
        format!(
            "Note {row}: the {} by the {} and the {} of the {} {}",
            word(0),
            word(1),
            word(2),
            word(3),
            word(4)
        )
    };
    let written = Instant::now();
    for chunk in (1..ROWS).collect::<Vec<_>>().chunks(10_000) {
        let contents: Vec<String> = chunk.iter().map(|row| content(*row)).collect();
        bulk::store(&app, "user:1", &contents, 1_024).await;
    }
    let written = written.elapsed();
    let recalls = async |until: &dyn Fn() -> bool| {
        let mut taken = Vec::new();
        while !until() || taken.len() < 10 {
            let asked = Instant::now();
            client.recall("user:1", "the heron by the kettle").await;
            taken.push(asked.elapsed());
        }
        taken.sort();
        (taken[taken.len() / 2], taken[taken.len() * 95 / 100], taken.len())
    };
    let idle = recalls(&|| true).await;
    let done = std::sync::atomic::AtomicBool::new(false);
    let forgetting = async {
        let started = Instant::now();
        let answer = app.admin().ok("forget_memory", json!({ "scope": "user:1", "all": true })).await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (answer, started.elapsed())
    };
    let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
    let (during, (answer, taken)) = tokio::join!(recalls(&is_done), forgetting);
    assert_eq!(answer["forgotten"]["episodic"], ROWS);
    println!("rows written in bulk in {written:?}, forgotten in {taken:?}");
    println!("recall (median, 95th percentile, count): idle {idle:?}, meanwhile {during:?}");
    app.stop().await;
}
