//! How much slower recall is while sweeps run: its 95th percentile beside that of the same memser at rest, in one run.
//!
//! ```sh
//! scripts/test-services.sh cargo bench --bench sweeps
//! ```
//!
//! One memser on a database of its own. A client recalls from a scope of 1,000 memories, one call after the other, while
//! nothing else happens and while a sweep runs, by turns: decay over 40,000 old memories, then consolidation of 1,500 in
//! other scopes. Latencies depend on the machine; their ratio is what counts.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for a person who measures")]

use std::ffi::OsString;
use std::time::{Duration, Instant};

use memser::app::{self, App};
use memser::clock::{Clock, FixedClock};
use memser::config::{Config, Source};
use memser::jobs::{Jobs, Ran, Sweep};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tokio::sync::oneshot;

const TOKEN: &str = "bench-token-0123456789";
const RECALLED: usize = 1_000;
const OLD: usize = 40_000;
const SCOPES: usize = 3;
const PER_SCOPE: usize = 500;
const ROUNDS: usize = 2;
/// Recalls at rest in each round.
const AT_REST: usize = 300;

#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                           "params": { "name": tool, "arguments": arguments } });
        let sent = self.http.post(&self.url).bearer_auth(TOKEN).json(&call).send().await.unwrap();
        let answer: Value = sent.json().await.unwrap();
        assert_eq!(answer["result"]["isError"], json!(false), "{answer}");
        answer
    }

    async fn store(&self, scope: &str, contents: impl Iterator<Item = String>) {
        for content in contents {
            self.call("store_memory", json!({ "scope": scope, "content": content })).await;
        }
    }

    /// How long one recall takes.
    async fn recall(&self, at: usize) -> Duration {
        let question = format!("Which tool does team {} use for task {}?", at % 40, at % 50);
        let asked = Instant::now();
        self.call("recall_memory", json!({ "scope": "recalled", "query": question })).await;
        asked.elapsed()
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let (url, mut database) = database().await;
    let clock = FixedClock::at("2026-03-01T12:00:00Z".parse().unwrap());
    let variables = [
        ("MEMSER_BIND", "127.0.0.1:0"),
        ("MEMSER_TOKEN", TOKEN),
        ("DATABASE_URL", &url),
        ("ENABLE_SCHEDULER", "false"),
        ("EMBEDDER", "hash"),
        ("EMBEDDING_DIMENSIONS", "384"),
        ("CONFLICT_POLICY", "keep_both"),
        ("DUPLICATE_THRESHOLD", "1"),
        ("CONSOLIDATION_SIMILARITY", "0.6"),
        ("MEMSER_LOG", "off"),
    ];
    let source =
        Source::read(None, variables.map(|(name, value)| (OsString::from(name), value.into()))).unwrap();
    let config = Config::parse(&source).unwrap();
    let app: App = app::build(config, Clock::Fixed(clock.clone())).await.unwrap();
    let jobs = app.jobs().clone();
    let client =
        Client { http: reqwest::Client::new(), url: format!("http://{}/mcp", app.address().unwrap()) };
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(app.run_until(async {
        let _ = stopped.await;
    }));

    client
        .store(
            "recalled",
            (0..RECALLED).map(|n| format!("Team {} uses tool {n} for task {}", n % 40, n % 50)),
        )
        .await;
    client.store("old", std::iter::once("A note".to_owned())).await;
    grow_old(&mut database).await;
    for at in 0..50 {
        client.recall(at).await;
    }
    println!("{:<14} {:>8} {:>9} {:>9} {:>7}", "recalls", "number", "p50 ms", "p95 ms", "ratio");
    for round in 0..ROUNDS {
        for scope in 0..SCOPES {
            let of = format!("busy-{round}-{scope}");
            let contents = (0..PER_SCOPE).map(|n| {
                format!("Server {} of hall {round}{scope} was restarted by night, note {n}", n / 10)
            });
            client.store(&of, contents).await;
        }
        // Everything is untouched for long enough to decay, the first time as well as later.
        clock.advance(Duration::from_hours(24 * 60));
        let mut at_rest = Vec::new();
        for at in 0..AT_REST {
            at_rest.push(client.recall(at).await);
        }
        let rest = percentile(&mut at_rest, 95);
        show("at rest", &mut at_rest, rest);
        for sweep in [Sweep::Decay, Sweep::Consolidate] {
            let mut during = during(&client, &jobs, sweep).await;
            show(sweep.name(), &mut during, rest);
        }
    }
    drop(stop);
    served.await.unwrap().unwrap();
}

/// Latencies of recalls while a sweep runs.
async fn during(client: &Client, jobs: &Jobs, sweep: Sweep) -> Vec<Duration> {
    let jobs = jobs.clone();
    let running = tokio::spawn(async move { jobs.run(sweep).await });
    let mut latencies = Vec::new();
    while !running.is_finished() {
        latencies.push(client.recall(latencies.len()).await);
    }
    assert_eq!(running.await.unwrap(), Ran::Done);
    latencies
}

fn percentile(latencies: &mut [Duration], percent: usize) -> f64 {
    latencies.sort_unstable();
    latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)].as_secs_f64() * 1_000.0
}

fn show(what: &str, latencies: &mut [Duration], rest: f64) {
    let (p50, p95) = (percentile(latencies, 50), percentile(latencies, 95));
    println!("{what:<14} {:>8} {p50:>9.2} {p95:>9.2} {:>7.2}", latencies.len(), p95 / rest);
}

/// Copies of one memory: decay looks at nothing of them but their age and confidence.
async fn grow_old(database: &mut PgConnection) {
    let statement = format!(
        "insert into memories (scope_id, id, tier, content, content_hash, confidence, created_at, valid_from, seq,
                               token_count)
         select scope_id, gen_random_uuid(), 'episodic', 'Note ' || n, ('Note ' || n)::bytea, 0.8, created_at,
                valid_from, n, 2
           from memories m, generate_series(1, {OLD}) n
          where m.scope_id = (select scope_id from scopes where name = 'old');
         vacuum analyze"
    );
    for statement in statement.split(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *database).await.unwrap();
    }
}

/// A database of a role that row-level security binds, and a superuser's connection to it.
async fn database() -> (String, PgConnection) {
    let server = std::env::var("MEMSER_TEST_DATABASE_URL")
        .unwrap_or_else(|_| panic!("run: scripts/test-services.sh cargo bench --bench sweeps"));
    let server: PgConnectOptions = server.parse().unwrap();
    let mut connection = server.connect().await.unwrap();
    for statement in ["create role bench login password 'bench'", "create database bench owner bench"] {
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    let (host, port) = (server.get_host().to_owned(), server.get_port());
    let mut connection = server.database("bench").connect().await.unwrap();
    sqlx::raw_sql("create extension vector").execute(&mut connection).await.unwrap();
    (format!("postgres://bench:bench@{host}:{port}/bench"), connection)
}
