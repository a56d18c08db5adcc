//! Sweeps of real processes: three replicas, a killed owner, a shutdown, and `memser jobs`.

use std::process::Child;
use std::time::Duration;

use chrono::{DateTime, Utc};
use memser::jobs::Sweep;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::process::{Running, complaint, data_folder, memser, output};
use crate::support::{ADMIN, TestApp, TestDatabase};

/// A tick of the tests' consolidation, in seconds.
const TICK: i64 = 6;
/// The settings of a replica that consolidates every tick.
const REPLICA: [(&str, &str); 6] = [
    ("MEMSER_TOKEN", ADMIN),
    ("CONSOLIDATION_INTERVAL_MINUTES", "0.1"),
    ("CONSOLIDATION_MIN_EPISODIC", "2"),
    ("CONSOLIDATION_SIMILARITY", "0.7"),
    ("DUPLICATE_THRESHOLD", "1"),
    ("CONFLICT_THRESHOLD", "1"),
];
/// Whose connection has the lock of the consolidation, by its name; the tests' replicas have names of their own.
const OWNER: &str = "(select application_name from pg_locks join pg_stat_activity using (pid)
                       where locktype = 'advisory' and classid::bigint = 4294967295 and objid::bigint = 4294967295
                         and datname = current_database())";

/// A database with something to consolidate, in which every new fact waits until `release`.
async fn held_up() -> (TestDatabase, PgConnection) {
    let app = TestApp::builder().consolidating().start().await;
    for number in 0..3 {
        let content = format!("The backup of the wiki runs every night on host alpha, as run {number} shows");
        app.admin().store("user:1", &content).await;
    }
    let database = app.database.clone();
    app.stop().await;
    let mut connection = database.connect().await;
    sqlx::raw_sql(
        "create function wait() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock(77); return new; end $$;
         create trigger wait before insert on memories for each row when (new.tier = 'semantic') execute function wait();
         select pg_advisory_lock(77)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    (database, connection)
}

const IS_HELD_UP: &str = "exists (select from pg_locks l join pg_database d on d.oid = l.database
                            where locktype = 'advisory' and objid = 77 and not granted and datname = current_database())";

async fn release(connection: &mut PgConnection) {
    sqlx::raw_sql("select pg_advisory_unlock(77)").execute(connection).await.unwrap();
}

async fn ask<T>(connection: &mut PgConnection, expression: &str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query_scalar(AssertSqlSafe(format!("select {expression}"))).fetch_one(connection).await.unwrap()
}

/// Looks again and again, for as long as a process may take to start and two ticks to go by.
async fn wait_until(connection: &mut PgConnection, condition: &str) {
    for _ in 0..3_000 {
        if ask::<bool>(connection, condition).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {condition}");
}

fn replica(database: &TestDatabase, name: &str) -> Running {
    let url = format!("{}?application_name={name}", database.url);
    let mut command = memser(&[], &REPLICA);
    command.env("DATABASE_URL", url);
    Running::run(command)
}

fn tick(at: DateTime<Utc>) -> i64 {
    at.timestamp() / TICK
}

/// Start, end and outcome of every consolidation.
async fn runs(connection: &mut PgConnection) -> Vec<(DateTime<Utc>, Option<DateTime<Utc>>, String)> {
    sqlx::query_as(
        "select started_at, finished_at, outcome from job_runs where job = 'consolidate' order by run_id",
    )
    .fetch_all(connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn of_three_replicas_one_runs_each_tick_and_another_takes_over_from_one_that_is_killed() {
    let (database, mut test) = held_up().await;
    let mut replicas = Vec::new();
    for name in ["one", "two", "three"] {
        let database = database.clone();
        let running = tokio::task::spawn_blocking(move || replica(&database, name)).await.unwrap();
        replicas.push((name, running));
    }
    wait_until(&mut test, IS_HELD_UP).await;
    let owner: String = ask(&mut test, OWNER).await;
    let at = replicas.iter().position(|(name, _)| *name == owner).unwrap();
    let (_, killed) = replicas.remove(at);
    killed.signal(Signal::SIGKILL);
    let killed_at: DateTime<Utc> = ask(&mut test, "now()").await;
    killed.end().await;
    wait_until(&mut test, &format!("coalesce({OWNER}, '{owner}') <> '{owner}'")).await;
    release(&mut test).await;
    wait_until(&mut test, "(select count(*) >= 4 from job_runs where job = 'consolidate')").await;
    let runs = runs(&mut test).await;
    assert_eq!(runs[0].2, "lost", "{runs:?}");
    assert!(runs[1..runs.len() - 1].iter().all(|run| run.2 == "done"), "{runs:?}");
    // The next tick after the kill has a run, or the one of the kill itself where that had none yet.
    assert!(tick(runs[1].0) <= tick(killed_at) + 1, "killed at {killed_at}: {runs:?}");
    for pair in runs.windows(2) {
        assert!(tick(pair[0].0) < tick(pair[1].0), "two in one tick: {runs:?}");
        assert!(pair[0].1.unwrap() <= pair[1].0, "two at one time: {runs:?}");
    }
    for pair in runs[1..].windows(2) {
        assert_eq!(tick(pair[0].0) + 1, tick(pair[1].0), "a tick without a run: {runs:?}");
    }
    let facts: i64 = ask(&mut test, "(select count(*) from memories where tier = 'semantic')").await;
    assert_eq!(facts, 1);
    for (_, running) in replicas {
        running.signal(Signal::SIGTERM);
        let (status, _, log) = running.end().await;
        assert_eq!(status, Some(0), "{log}");
        assert!(log.contains("this sweep makes facts of alike memories"), "a start says what runs: {log}");
    }
}

#[tokio::test]
async fn a_shutdown_during_a_sweep_is_in_order() {
    let (database, mut test) = held_up().await;
    let running = {
        let database = database.clone();
        tokio::task::spawn_blocking(move || replica(&database, "one")).await.unwrap()
    };
    wait_until(&mut test, IS_HELD_UP).await;
    running.signal(Signal::SIGTERM);
    let (status, _, log) = running.end().await;
    assert_eq!(status, Some(0), "{log}");
    let outcomes: Vec<String> = runs(&mut test).await.into_iter().map(|run| run.2).collect();
    assert_eq!(outcomes, ["stopped"], "{log}");
    assert!(ask::<bool>(&mut test, &format!("{OWNER} is null")).await, "the lock of the sweep is still held");
    release(&mut test).await;
    wait_until(&mut test, &format!("not {IS_HELD_UP}")).await;
    let active: i64 = ask(&mut test, "(select count(*) from memories where valid_to is null)").await;
    assert_eq!(active, 3);
}

fn words(output: &std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn a_job_can_be_run_by_hand_and_its_exit_code_tells_how_it_went() {
    let (database, mut test) = held_up().await;
    let variables =
        [&REPLICA[..], &[("DATABASE_URL", &database.url), ("ENABLE_SCHEDULER", "false")]].concat();
    assert!(words(&output(&["jobs", "run", "decay"], &variables)).starts_with("decay: done"));
    // Not due again, but asked for.
    assert!(words(&output(&["jobs", "run", "decay"], &variables)).contains(r#"{"changed":0}"#));

    let unknown = output(&["jobs", "run", "compact"], &variables);
    assert_eq!(unknown.status.code(), Some(2));
    let complaint_of_unknown = String::from_utf8(unknown.stderr).unwrap();
    assert!(complaint_of_unknown.contains("consolidate, decay, embed, prune"), "{complaint_of_unknown}");
    assert!(complaint(&["jobs", "run", "decay", "--retry-parked"], &variables).contains("only consolidate"));

    // One that is told to stop says so, and does not pass for done.
    let child: Child = {
        let mut command = memser(&["jobs", "run", "consolidate"], &variables);
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    wait_until(&mut test, IS_HELD_UP).await;
    assert!(words(&output(&["jobs", "run", "consolidate"], &variables)).contains("skipped"));
    assert!(words(&output(&["jobs", "list"], &variables)).contains("running now"));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(1), "{stopped:?}");
    assert!(String::from_utf8(stopped.stderr).unwrap().contains("stopped before its end"));
    release(&mut test).await;
    wait_until(&mut test, &format!("not {IS_HELD_UP} and {OWNER} is null")).await;

    // One that fails tells why; after three times its scope is parked, and can be given another chance.
    sqlx::raw_sql(
        "create or replace function wait() returns trigger language plpgsql as $$ begin raise exception 'poisoned'; end $$",
    )
    .execute(&mut test)
    .await
    .unwrap();
    for _ in 0..3 {
        let words = complaint(&["jobs", "run", "consolidate"], &variables);
        assert!(words.contains("consolidate: failed") && words.contains("user:1"), "{words}");
    }
    assert!(words(&output(&["jobs", "run", "consolidate"], &variables)).contains("done"));
    let list = words(&output(&["jobs", "list"], &variables));
    assert!(list.contains("parked: \"user:1\" after 3 failures"), "{list}");
    for sweep in Sweep::ALL {
        assert!(list.contains(sweep.name()), "{list}");
    }
    sqlx::raw_sql("drop trigger wait on memories").execute(&mut test).await.unwrap();
    let words = words(&output(&["jobs", "run", "consolidate", "--retry-parked"], &variables));
    assert!(words.contains("1 scopes that had failed") && words.contains(r#"{"changed":1}"#), "{words}");
}

#[tokio::test]
async fn a_sweep_that_fails_says_what_is_behind_it() {
    let app = TestApp::start().await;
    app.admin().store("user:1", "Anna moved to Lisbon in March 2025.").await;
    let url = app.database.url.clone();
    app.stop().await;
    // Bound and dropped: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let variables = [
        ("DATABASE_URL", &*url),
        ("EMBEDDER", "openai"),
        ("EMBEDDING_URL", &format!("http://{closed}/v1")),
        ("EMBEDDING_MODEL", "tiny"),
        ("EMBEDDING_DIMENSIONS", "8"),
    ];
    let words = complaint(&["jobs", "run", "embed"], &variables);
    assert!(words.contains("embedder is unavailable: the embedding endpoint cannot be reached"), "{words}");
}

#[tokio::test]
async fn a_job_uses_the_private_postgres_of_a_memser_that_runs_and_else_starts_it() {
    let data = data_folder();
    let running = Running::start(data.path(), &[]);
    let variables = [("MEMSER_DATA_DIR", data.path().to_str().unwrap())];
    assert!(words(&output(&["jobs", "run", "prune"], &variables)).contains("done"));
    running.signal(Signal::SIGTERM);
    let (status, _, log) = running.end().await;
    assert_eq!(status, Some(0), "{log}");
    assert!(words(&output(&["jobs", "run", "decay"], &variables)).contains("done"));
    assert!(!data.path().join("pg/postmaster.pid").exists(), "Postgres still runs");
}
