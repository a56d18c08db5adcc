//! What sweeps change, when they run, and what stands in their way.

use std::time::Duration;

use chrono::{DateTime, Utc};
use memser::db::lock::SweepLock;
use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use wiremock::matchers::method;
use wiremock::{Mock, Request, ResponseTemplate};

use crate::support::{ADMIN, TestApp, TestAppBuilder, bulk, embedder, start_of_time};

const DAY: Duration = Duration::from_hours(24);

fn alike(number: usize) -> String {
    format!("The backup of the wiki runs every night on host alpha, as run {number} shows")
}

/// A scope with enough to consolidate.
async fn fill(app: &TestApp, scope: &str) {
    for number in 0..3 {
        app.admin().store(scope, &alike(number)).await;
    }
}

/// Every run of a job, first to last.
async fn runs(app: &TestApp, job: &str) -> Vec<(String, Value)> {
    let mut connection = app.database.connect().await;
    sqlx::query_as("select outcome, detail from job_runs where job = $1 order by run_id")
        .bind(job)
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

async fn facts(app: &TestApp, scope: &str) -> usize {
    let listed = app.admin().ok("list_memories", json!({ "scope": scope, "tier": "semantic" })).await;
    listed["memories"].as_array().unwrap().len()
}

/// Makes every fact of a scope fail within Postgres, as `does` says.
async fn poison(app: &TestApp, scope: &str, does: &str) {
    let mut connection = app.database.connect().await;
    let trigger = format!(
        "create function poison() returns trigger language plpgsql as $$ begin {does}; return new; end $$;
         create trigger poison before insert on memories for each row when (new.tier = 'semantic' and new.scope_id = {})
            execute function poison()",
        sqlx::query_scalar::<_, i64>("select scope_id from scopes where name = $1")
            .bind(scope)
            .fetch_one(&mut connection)
            .await
            .unwrap()
    );
    sqlx::raw_sql(AssertSqlSafe(trigger)).execute(&mut connection).await.unwrap();
}

async fn cure(app: &TestApp) {
    let mut connection = app.database.connect().await;
    sqlx::raw_sql("drop trigger poison on memories").execute(&mut connection).await.unwrap();
}

/// Waits until something holds in the database.
async fn wait_until(connection: &mut PgConnection, condition: &str) {
    let ask = format!("select {condition}");
    while !sqlx::query_scalar::<_, bool>(AssertSqlSafe(ask.clone()))
        .fetch_one(&mut *connection)
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
}

/// Ends the statements that a poison lets sleep.
async fn wake(connection: &mut PgConnection) {
    sqlx::raw_sql(
        "select pg_terminate_backend(pid) from pg_stat_activity
          where wait_event = 'PgSleep' and datname = current_database()",
    )
    .execute(connection)
    .await
    .unwrap();
}

fn consolidating() -> TestAppBuilder {
    TestApp::builder().consolidating()
}

// --- Decay ---

fn decaying() -> TestAppBuilder {
    TestApp::builder().set("DECAY_AFTER_DAYS", "30").set("DECAY_HALF_LIFE_DAYS", "90")
}

async fn listed(app: &TestApp, scope: &str) -> Value {
    app.admin().ok("list_memories", json!({ "scope": scope })).await["memories"].clone()
}

async fn confidence(app: &TestApp, scope: &str) -> f64 {
    listed(app, scope).await[0]["confidence"].as_f64().unwrap()
}

#[tokio::test]
async fn untouched_memories_lose_confidence_and_nothing_else() {
    let app = decaying().set("DECAY_FLOOR", "0.2").start().await;
    app.admin().store("user:1", "Anna plays the violin").await;
    let before = listed(&app, "user:1").await[0].clone();
    app.clock.advance(DAY * 30);
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    assert_eq!(listed(&app, "user:1").await[0], before);
    app.clock.advance(DAY * 90);
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    let mut after = listed(&app, "user:1").await[0].clone();
    let (was, is) = (before["confidence"].as_f64().unwrap(), after["confidence"].as_f64().unwrap());
    assert!((is - was / 2.0).abs() < 0.001, "{was} {is}");
    after["confidence"] = before["confidence"].clone();
    assert_eq!(after, before);
    // Twice in a moment changes nothing.
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    assert_eq!(runs(&app, "decay").await.last().unwrap().1, json!({ "changed": 0 }));
    // Nothing is deleted, and none falls below the floor.
    app.clock.advance(DAY * 5_000);
    app.jobs.run(Sweep::Decay).await;
    assert!((confidence(&app, "user:1").await - 0.2).abs() < 1e-6);
    app.jobs.run(Sweep::Decay).await;
    assert_eq!(runs(&app, "decay").await.last().unwrap().1, json!({ "changed": 0 }));
    app.stop().await;
}

#[tokio::test]
async fn how_much_is_lost_does_not_depend_on_how_often_the_sweep_ran() {
    let (daily, once) = (decaying().start().await, decaying().start().await);
    for app in [&daily, &once] {
        app.admin().store("user:1", "Anna plays the violin").await;
    }
    for _ in 0..100 {
        daily.clock.advance(DAY);
        daily.jobs.run(Sweep::Decay).await;
    }
    once.clock.advance(DAY * 100);
    once.jobs.run(Sweep::Decay).await;
    let (daily_left, once_left) = (confidence(&daily, "user:1").await, confidence(&once, "user:1").await);
    assert!((daily_left - once_left).abs() < 1e-4, "{daily_left} {once_left}");
    for app in [daily, once] {
        app.stop().await;
    }
}

#[tokio::test]
async fn what_is_recalled_stated_again_or_protected_keeps_its_confidence() {
    let app = decaying().set("DECAY_PROTECTED_TAGS", "pinned, law").start().await;
    let client = app.admin();
    for scope in ["recalled", "restated", "protected", "untouched"] {
        let tags = if scope == "protected" { json!(["a", "law"]) } else { json!(["a"]) };
        let arguments =
            json!({ "scope": scope, "content": "Anna plays the violin", "tags": tags, "source": "chat" });
        client.ok("store_memory", arguments).await;
    }
    app.clock.advance(DAY * 100);
    client.recall("recalled", "violin").await;
    client
        .ok(
            "store_memory",
            json!({ "scope": "restated", "content": "Anna plays the violin", "source": "chat" }),
        )
        .await;
    app.engine.flush().await;
    app.jobs.run(Sweep::Decay).await;
    let untouched = confidence(&app, "untouched").await;
    for scope in ["recalled", "restated", "protected"] {
        assert!(confidence(&app, scope).await > untouched + 0.1, "{scope}");
    }
    assert_eq!(runs(&app, "decay").await[0].1, json!({ "changed": 1 }));
    // The time of grace starts anew, and ends.
    let before = confidence(&app, "recalled").await;
    app.clock.advance(DAY * 120);
    app.jobs.run(Sweep::Decay).await;
    assert!((confidence(&app, "recalled").await - before / 2.0).abs() < 0.001);
    assert!((confidence(&app, "restated").await - before / 2.0).abs() < 0.001);
    assert!(confidence(&app, "protected").await > untouched + 0.1);
    app.stop().await;
}

#[tokio::test]
async fn decay_goes_over_all_scopes_in_chunks_and_leaves_what_is_locked() {
    let app = decaying().set("EMBEDDING_DIMENSIONS", "64").start().await;
    for scope in ["user:1", "user:2", "user:3"] {
        app.admin().store(scope, "Anna plays the violin").await;
        let contents: Vec<String> = (0..1_200).map(|n| format!("{scope} note number {n}")).collect();
        bulk::store(&app, scope, &contents, 64).await;
    }
    app.clock.advance(DAY * 120);
    let mut other = app.database.connect().await;
    sqlx::raw_sql("begin; select from memories where content = 'user:2 note number 7' for update")
        .execute(&mut other)
        .await
        .unwrap();
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    let changed: Vec<Value> = runs(&app, "decay").await.into_iter().map(|(_, detail)| detail).collect();
    assert_eq!(changed, [json!({ "changed": 3_602 }), json!({ "changed": 1 })]);
    app.stop().await;
}

#[tokio::test]
async fn decay_reads_no_memory_that_is_too_fresh() {
    let app = decaying().start().await;
    app.admin().store("user:1", "Anna plays the violin").await;
    app.clock.advance(DAY * 31);
    let mut connection = app.database.connect().await;
    // Rows that only look like memories: 20,000 of today in the scope that has one old memory, and in as many others.
    sqlx::query(
        "insert into memories (scope_id, id, tier, content, content_hash, confidence, created_at, valid_from, seq,
                               token_count)
         select s.scope_id, gen_random_uuid(), 'episodic', n::text, n::text::bytea, 0.8, $1, $1, n, 1
           from scopes s, generate_series(1, 20000) n",
    )
    .bind("2026-04-01T12:00:00Z".parse::<DateTime<Utc>>().unwrap())
    .execute(&mut connection)
    .await
    .unwrap();
    for statement in ["vacuum analyze memories", "select pg_stat_reset()"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    assert_eq!(runs(&app, "decay").await[0].1, json!({ "changed": 1 }));
    app.stop().await;
    // The statistics of a session are there once it has ended.
    let read: i64 = sqlx::query_scalar(
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'memories'",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert!(read < 100, "{read} memories were read for one that is old");
}

// --- Ticks and locks ---

#[tokio::test]
async fn one_replica_sweeps_and_the_other_skips() {
    let app = consolidating().start().await;
    fill(&app, "user:1").await;
    let options = app.database.url.parse().unwrap();
    let lock = SweepLock::try_take(&options, Sweep::Consolidate.lock_key()).await.unwrap().unwrap();
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Skipped);
    assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Skipped);
    // Another sweep has another lock.
    assert_eq!(app.jobs.run(Sweep::Decay).await, Ran::Done);
    lock.free().await;
    // The server frees a lock when it sees the connection end.
    while app.jobs.run(Sweep::Consolidate).await == Ran::Skipped {
        tokio::task::yield_now().await;
    }
    assert_eq!(runs(&app, "consolidate").await, [("done".to_owned(), json!({ "changed": 1 }))]);
    app.stop().await;
}

#[tokio::test]
async fn each_tick_has_one_run_whoever_rings_and_a_missed_one_is_made_up_for() {
    let app = consolidating().start().await;
    let second = consolidating().beside(&app).start().await;
    for _ in 0..3 {
        for replica in [&app, &second] {
            for sweep in Sweep::ALL {
                replica.jobs.ring(sweep).await;
            }
        }
        // It starts at twelve; a tick of an hour ends at one.
        app.clock.advance(Duration::from_mins(20));
    }
    assert_eq!(runs(&app, "consolidate").await.len(), 1);
    assert_eq!(second.jobs.ring(Sweep::Consolidate).await, Ran::Done);
    assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Skipped);
    assert_eq!(runs(&app, "consolidate").await.len(), 2);
    assert_eq!(runs(&app, "decay").await.len(), 1, "a tick of a day");
    // Nobody rang for three days.
    app.clock.advance(DAY * 3);
    assert_eq!(app.jobs.ring(Sweep::Decay).await, Ran::Done);
    assert_eq!(app.jobs.ring(Sweep::Decay).await, Ran::Skipped);
    // What runs every few seconds and finds nothing leaves one row.
    assert_eq!(runs(&app, "embed").await, [("done".to_owned(), json!({ "changed": 0 }))]);
    assert_eq!(runs(&app, "prune").await.len(), 1);
    for app in [second, app] {
        app.stop().await;
    }
}

#[tokio::test]
async fn an_interval_of_nought_leaves_a_sweep_to_those_who_ask_for_it() {
    let app = TestApp::builder()
        .set("CONSOLIDATION_INTERVAL_MINUTES", "0")
        .set("DECAY_INTERVAL_MINUTES", "0")
        .start()
        .await;
    for sweep in [Sweep::Consolidate, Sweep::Decay] {
        assert_eq!(app.jobs.ring(sweep).await, Ran::Skipped);
        assert_eq!(app.jobs.run(sweep).await, Ran::Done);
    }
    app.stop().await;
}

#[tokio::test]
async fn a_run_whose_process_died_is_seen_to_be_lost() {
    let app = TestApp::start().await;
    let mut connection = app.database.connect().await;
    sqlx::raw_sql(
        "insert into job_runs (job, started_at, outcome) values ('decay', '2026-02-28T12:00:00Z', 'running')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(app.jobs.ring(Sweep::Decay).await, Ran::Done);
    let outcomes: Vec<String> = runs(&app, "decay").await.into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, ["lost", "done"]);
    app.stop().await;
}

#[tokio::test]
async fn a_sweep_that_loses_its_lock_stops_at_the_next_chunk() {
    let app = consolidating().start().await;
    for scope in ["user:1", "user:2"] {
        fill(&app, scope).await;
    }
    // More to consolidate, so that it comes first.
    app.admin().store("user:1", &alike(9)).await;
    poison(&app, "user:1", "perform pg_advisory_xact_lock(77)").await;
    let mut test = app.database.connect().await;
    sqlx::raw_sql("select pg_advisory_lock(77)").execute(&mut test).await.unwrap();
    let jobs = app.jobs.clone();
    let sweep = tokio::spawn(async move { jobs.run(Sweep::Consolidate).await });
    wait_until(
        &mut test,
        "exists (select from pg_locks where locktype = 'advisory' and objid = 77 and not granted)",
    )
    .await;
    let holder =
        "(select pid from pg_locks join pg_database d on d.oid = database where locktype = 'advisory'
                      and classid::bigint = 4294967295 and datname = current_database())";
    let cut = format!("select pg_terminate_backend({holder})");
    assert!(sqlx::query_scalar::<_, bool>(AssertSqlSafe(cut)).fetch_one(&mut test).await.unwrap());
    wait_until(&mut test, &format!("{holder} is null")).await;
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(&mut test).await.unwrap();
    assert_eq!(sweep.await.unwrap(), Ran::Stopped);
    assert_eq!(runs(&app, "consolidate").await, [("stopped".to_owned(), json!({ "changed": 1 }))]);
    assert_eq!((facts(&app, "user:1").await, facts(&app, "user:2").await), (1, 0));
    app.stop().await;
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_a_scope_ends_the_sweep_and_leaves_nothing_half_done() {
    let app = consolidating().start().await;
    fill(&app, "user:1").await;
    poison(&app, "user:1", "perform pg_sleep(60)").await;
    let mut watcher = app.database.connect().await;
    let jobs = app.jobs.clone();
    let sweep = tokio::spawn(async move { jobs.run(Sweep::Consolidate).await });
    let sleeping =
        "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    while sqlx::query_scalar::<_, i64>(sleeping).fetch_one(&mut watcher).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let stopped = std::time::Instant::now();
    app.jobs.shutdown.cancel();
    assert_eq!(sweep.await.unwrap(), Ran::Stopped);
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
    let outcome: String =
        sqlx::query_scalar("select outcome from job_runs").fetch_one(&mut watcher).await.unwrap();
    assert_eq!(outcome, "stopped");
    wake(&mut watcher).await;
    let active: Vec<String> = sqlx::query_scalar("select distinct tier from memories where valid_to is null")
        .fetch_all(&mut watcher)
        .await
        .unwrap();
    assert_eq!(active, ["episodic"]);
    app.stop().await;
}

// --- Failures ---

#[tokio::test]
async fn a_scope_that_always_fails_is_parked_and_the_others_proceed() {
    let app = consolidating()
        .token("one", &["user:1=admin"])
        .token("two", &["user:2=admin", "user:1=write"])
        .start()
        .await;
    for scope in ["user:1", "user:2"] {
        fill(&app, scope).await;
    }
    poison(&app, "user:1", "raise exception 'poisoned'").await;
    let hour = Duration::from_hours(1);
    for tries in 1..=3 {
        assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Failed, "{tries}");
        let (outcome, detail) = runs(&app, "consolidate").await.pop().unwrap();
        assert_eq!((outcome.as_str(), &detail["failed_scopes"]), ("failed", &json!(1)), "{detail}");
        let failed = &detail["failed"][0];
        assert_eq!((&failed["scope"], &failed["tries"]), (&json!("user:1"), &json!(tries)));
        assert!(failed["reason"].as_str().unwrap().starts_with("internal"), "{failed}");
        assert_eq!(failed["parked_until"].is_string(), tries == 3, "{failed}");
        app.clock.advance(hour);
    }
    assert_eq!(facts(&app, "user:2").await, 1);
    // It rests, and says so, for all replicas.
    let second = consolidating().beside(&app).start().await;
    assert_eq!(second.jobs.ring(Sweep::Consolidate).await, Ran::Done);
    let metrics = second.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("memser_consolidation_parked_scopes 1\n"), "{metrics}");
    let jobs: Value = second.get("/v1/jobs").await.json().await.unwrap();
    assert_eq!((&jobs["parked"][0]["scope"], &jobs["parked"][0]["tries"]), (&json!("user:1"), &json!(3)));
    // Only to those who administer it.
    let seen = async |token: &str| {
        let request = reqwest::Client::new().get(app.url("/v1/jobs")).bearer_auth(token);
        request.send().await.unwrap().json::<Value>().await.unwrap()
    };
    assert_eq!(seen("one").await["parked"].as_array().unwrap().len(), 1);
    let others = seen("two").await;
    assert_eq!(others["parked"], json!([]));
    assert!(!others.to_string().contains("user:1"), "{others}");
    assert!(
        others["jobs"][0]["runs"].as_array().unwrap().iter().any(|run| run["detail"]["failed_scopes"] == 1)
    );
    // Four hours later it gets another chance, and rests twice as long.
    app.clock.advance(hour * 4);
    assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Failed);
    app.clock.advance(hour * 7);
    assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Done);
    // Once it works, nothing is left of it.
    cure(&app).await;
    app.clock.advance(hour * 2);
    assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Done);
    assert_eq!(facts(&app, "user:1").await, 1);
    assert_eq!(seen(ADMIN).await["parked"], json!([]));
    let mut connection = app.database.connect().await;
    let left: i64 = sqlx::query_scalar("select count(*) from consolidation_failures")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, 0);
    for app in [second, app] {
        app.stop().await;
    }
}

#[tokio::test]
async fn a_scope_that_hangs_is_cut_off_and_the_others_proceed() {
    let app = consolidating().set("CONSOLIDATION_TIMEOUT_SECONDS", "1").start().await;
    for scope in ["user:1", "user:2"] {
        fill(&app, scope).await;
    }
    // More to consolidate, so that it comes first.
    app.admin().store("user:1", &alike(9)).await;
    poison(&app, "user:1", "perform pg_sleep(60)").await;
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Failed);
    let detail = runs(&app, "consolidate").await.pop().unwrap().1;
    assert!(detail["failed"][0]["reason"].as_str().unwrap().starts_with("timeout"), "{detail}");
    assert_eq!((facts(&app, "user:1").await, facts(&app, "user:2").await), (0, 1));
    // The lock is free again.
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Failed);
    wake(&mut app.database.connect().await).await;
    app.stop().await;
}

/// Alike texts get alike vectors from an endpoint that works, while it does.
#[tokio::test]
async fn an_embedder_that_fails_or_answers_nonsense_holds_up_no_fact_and_one_that_hangs_is_cut_off() {
    let alike = |_: &str| vec![1.0, 0.0];
    let endpoint = embedder::endpoint(alike).await;
    let app = embedder::asking(&endpoint.uri(), 2)
        .consolidating()
        .set("CONSOLIDATION_TIMEOUT_SECONDS", "5")
        .start()
        .await;
    // The first comes first; after the others' failures the endpoint would be left alone.
    for scope in ["hangs", "fails", "nonsense"] {
        for number in 0..3 {
            app.admin().store(scope, &format!("Run {number} of the program that {scope} was late")).await;
        }
    }
    endpoint.reset().await;
    // A fact's text tells of its scope.
    let respond = |request: &Request| {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        if text.contains("hangs") {
            ResponseTemplate::new(200).set_delay(Duration::from_secs(30))
        } else if text.contains("nonsense") {
            ResponseTemplate::new(200)
                .set_body_string("{\"data\": [{\"index\": 0, \"embedding\": \"none\"}]}")
        } else {
            ResponseTemplate::new(400)
        }
    };
    Mock::given(method("POST")).respond_with(respond).mount(&endpoint).await;
    let ran = app.jobs.run(Sweep::Consolidate).await;
    let made = [facts(&app, "fails").await, facts(&app, "nonsense").await, facts(&app, "hangs").await];
    let (_, detail) = runs(&app, "consolidate").await.pop().unwrap();
    assert_eq!((ran, made.iter().sum::<usize>()), (Ran::Failed, 2), "{made:?} {detail}");
    assert_eq!(detail["failed_scopes"], 1, "{detail}");
    assert!(detail["failed"][0]["reason"].as_str().unwrap().starts_with("timeout"), "{detail}");
    // What waits for its vector gets it, and the scope its fact, once the endpoint works.
    embedder::answer_with(&endpoint, alike).await;
    app.clock.advance(Duration::from_hours(1));
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Done);
    assert_eq!(facts(&app, "hangs").await, 1);
    app.stop().await;
}

#[tokio::test]
async fn a_scope_that_is_slow_but_makes_facts_is_not_parked() {
    let app = consolidating().start().await;
    fill(&app, "user:1").await;
    poison(&app, "user:1", "if new.content like '%wiki%' then raise exception 'poisoned'; end if").await;
    let mut connection = app.database.connect().await;
    for number in 0..5 {
        assert_eq!(app.jobs.ring(Sweep::Consolidate).await, Ran::Failed);
        app.clock.advance(Duration::from_mins(59));
        // Another cluster of the same run would have become this fact.
        sqlx::query(
            "insert into memories (scope_id, id, tier, content, content_hash, confidence, created_at, valid_from, seq,
                                   token_count)
             select scope_id, gen_random_uuid(), 'semantic', $1, $1::bytea, 0.8, $2, $2, 1, 1 from scopes",
        )
        .bind(format!("Fact {number}"))
        .bind(start_of_time() + Duration::from_mins(60 * number + 59))
        .execute(&mut connection)
        .await
        .unwrap();
        app.clock.advance(Duration::from_mins(1));
    }
    let jobs: Value = app.get("/v1/jobs").await.json().await.unwrap();
    assert_eq!(jobs["parked"], json!([]), "{jobs}");
    app.stop().await;
}

/// Twenty chunks, so that most groups are cut by the end of one. `benches/consolidation.rs` does the same with thousands.
#[tokio::test]
async fn a_backlog_of_many_chunks_drains() {
    let app = consolidating().set("EMBEDDING_DIMENSIONS", "128").start().await;
    app.admin().store("user:1", "Anna plays the violin").await;
    let contents: Vec<String> = (0..1_280)
        .map(|n| format!("Server number {} of rack {} was restarted, note {n}", n / 20, n / 20))
        .collect();
    bulk::store(&app, "user:1", &contents, 128).await;
    let left = async || {
        let mut connection = app.database.connect().await;
        sqlx::query_scalar::<_, i64>(
            "select count(*) from memories where tier = 'episodic' and valid_to is null",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
    };

    assert_eq!(left().await, 1_281);
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Done);
    let (_, detail) = runs(&app, "consolidate").await.pop().unwrap();
    assert!(detail["changed"].as_u64().unwrap() > 50, "{detail}");
    assert!(left().await < 20, "{} are left", left().await);
    app.stop().await;
}

#[tokio::test]
async fn what_has_expired_is_pruned() {
    let app = TestApp::start().await;
    for ttl in [60, 600] {
        let arguments =
            json!({ "scope": "user:1", "content": format!("For {ttl} seconds"), "ttl_seconds": ttl });
        app.admin().ok("store_memory", arguments).await;
    }
    app.clock.advance(Duration::from_mins(2));
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let mut connection = app.database.connect().await;
    let left: Vec<String> = sqlx::query_scalar("select entry ->> 'content' from working_memories")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, ["For 600 seconds"]);
    app.stop().await;
}
