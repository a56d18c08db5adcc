//! What consolidation of one scope costs as the scope grows: the time and the memory of a memser that consolidates it.
//!
//! ```sh
//! scripts/test-services.sh cargo bench --bench consolidation -- [ROWS...]
//! ```
//!
//! For each number of rows (5,000, 10,000 and 20,000) a database of its own holds one scope of episodic memories, ten of
//! which speak of the same thing in other words. A process of its own, which does nothing else, runs the sweep, so that the
//! most memory that it ever had is that of the sweep.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for a person who measures"
)]
#![expect(unreachable_pub, reason = "shared with the tests")]

#[path = "../tests/it/support/database.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod database;
#[path = "../tests/it/support/rows.rs"]
mod rows;

use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use memser::app;
use memser::clock::Clock;
use memser::config::{Config, Source};
use memser::jobs::{Ran, Sweep};
use memser::provider::embed::Embedder;
use sqlx::PgConnection;

const DIMENSIONS: usize = 384;
/// Memories of one thing.
const ALIKE: usize = 10;
/// The argument by which this program calls itself.
const CHILD: &str = "consolidate";

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let [CHILD, url] = &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        runtime.block_on(consolidate(url));
        return;
    }
    let numbers: Vec<usize> =
        arguments.iter().map(|argument| argument.parse().expect("a number of rows")).collect();
    let numbers = if numbers.is_empty() { vec![5_000, 10_000, 20_000] } else { numbers };
    println!(
        "| Rows | Facts | Left alone | Seconds | Peak memory of the process | Before |\n|---|---|---|---|---|---|"
    );
    for number in numbers {
        runtime.block_on(measure(number));
    }
}

async fn measure(number: usize) {
    let database = database::TestDatabase::create().await;
    let url = database.url.clone();
    // Opens the space that the vectors are of.
    app::build(config(&url), Clock::System).await.unwrap().run_until(async {}).await.unwrap();
    let mut superuser = database.connect().await;
    fill(&mut superuser, number).await;
    sqlx::raw_sql("vacuum analyze").execute(&mut superuser).await.unwrap();
    let program = std::env::current_exe().unwrap();
    let child =
        tokio::task::spawn_blocking(move || Command::new(program).args([CHILD, &url]).output().unwrap());
    let output = child.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let (facts, alone): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where tier = 'semantic'), count(*) filter (where tier = 'episodic')
           from memories where valid_to is null",
    )
    .fetch_one(&mut superuser)
    .await
    .unwrap();
    println!("| {number} | {facts} | {alone} | {} |", said.trim());
}

/// Runs the sweep and prints what it took.
async fn consolidate(url: &str) {
    let app = app::build(config(url), Clock::System).await.unwrap();
    let jobs = app.jobs().clone();
    let before = memory("VmRSS");
    let began = Instant::now();
    assert_eq!(jobs.run(Sweep::Consolidate).await, Ran::Done);
    let seconds = began.elapsed().as_secs_f64();
    println!("{seconds:.1} | {:.0} MB | {before:.0} MB", memory("VmHWM"));
    app.run_until(async {}).await.unwrap();
}

/// A figure of this process in megabytes, as Linux has it.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1_024.0
}

fn config(url: &str) -> Config {
    let variables = [
        ("MEMSER_BIND", "127.0.0.1:0"),
        ("MEMSER_TOKEN", "bench-token-0123456789"),
        ("DATABASE_URL", url),
        ("ENABLE_SCHEDULER", "false"),
        ("EMBEDDER", "hash"),
        ("EMBEDDING_DIMENSIONS", "384"),
        ("MEMSER_LOG", "off"),
    ];
    let variables = variables.map(|(name, value)| (OsString::from(name), value.into()));
    Config::parse(&Source::read(None, variables).unwrap()).unwrap()
}

async fn fill(connection: &mut PgConnection, number: usize) {
    const WHO: [&str; 7] = ["Anna", "Ravi", "Mehmet", "Chloe", "Jun", "Olga", "Sven"];
    const HOW: [&str; ALIKE] = [
        "",
        "again",
        "at night",
        "by hand",
        "in a hurry",
        "without notice",
        "with care",
        "as planned",
        "for a test",
        "once more",
    ];
    let content = |at: usize| {
        let thing = at / ALIKE;
        format!("{} restarted server s{thing} of rack r{thing} {}", WHO[thing % 7], HOW[at % ALIKE])
    };
    let contents: Vec<String> = (0..number).map(content).collect();
    let vectors = Embedder::hash(DIMENSIONS).embed_each(&contents).await;
    let now = Clock::System.now();
    let memories = contents.into_iter().zip(vectors).zip(1_i64..).map(|((content, vector), seq)| rows::Row {
        id: Clock::System.new_id(),
        content,
        tags: Vec::new(),
        source: Some("bench".to_owned()),
        seq,
        created_at: now,
        occurred_at: None,
        valid_to: None,
        vector: Some(vector.unwrap()),
    });
    rows::write(connection, &[("bench", memories.collect())]).await;
}
