//! Recall's own statements in a table of 200,000 memories over many scopes: what the vector index gives up against the
//! exact answer, whether filters return all there is, what a scan costs either way, what words cost beside the bare
//! reading of their postings, how large a posting is, and the plans.
//!
//! ```sh
//! scripts/test-services.sh cargo bench --bench recall -- [VECTORS [TEXTS]]
//! ```
//!
//! `VECTORS` is a file of little-endian `f32`, 384 for each vector, of length 1; `TEXTS` has the text of each in a line.
//! One vector in 250 is kept for asking. Where there are fewer vectors than memories, the rest are mixed from two of
//! them, .7 and .3. Without files, vectors are drawn around centres and texts from words of falling frequency.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a bench has nobody to tell")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and times that are printed, and numbers drawn"
)]
#![expect(unreachable_pub, reason = "shared with the tests")]

mod data;
#[path = "../../tests/it/support/database.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod database;
#[path = "../../tests/it/support/plans.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod plans;
#[path = "../../tests/it/support/rows.rs"]
mod rows;

use std::time::Instant;

use chrono::TimeDelta;
use memser::db::memory::fetch_related;
use memser::db::recall::{Asked, Filter, ScopeSize, by_meaning, by_words, size};
use memser::db::space::{self, Space};
use memser::db::{Db, Pooler, ScopeId, Tx};
use memser::text;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use data::{DIMENSIONS, Data, Stored, cosine, start};

/// How many candidates a recall asks for.
const POOL: i64 = 50;
/// How many of them are held against the exact answer.
const TOP: usize = 20;

struct Bench {
    data: Data,
    url: String,
    db: Db,
    superuser: PgConnection,
    space: Space,
}

/// A scope of the table, to be asked.
struct Scope<'a> {
    id: ScopeId,
    size: ScopeSize,
    rows: &'a [Stored],
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let files: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let mut data = Data::new(files.first(), files.get(1));
    let database = database::TestDatabase::create().await;
    let db = Db::new(database.url.parse().unwrap(), 1, Pooler::None);
    let dimensions = i32::try_from(DIMENSIONS).unwrap();
    let (space, _) = space::open(&db, "bench", "bench", dimensions, start()).await.unwrap();
    let mut superuser = database.connect().await;
    sqlx::raw_sql("set maintenance_work_mem = '2GB'").execute(&mut superuser).await.unwrap();
    let began = Instant::now();
    rows::write(&mut superuser, &data.take_rows()).await;
    sqlx::raw_sql("vacuum analyze").execute(&mut superuser).await.unwrap();
    println!("{} memories written in {:.0} s\n", data.count(), began.elapsed().as_secs_f64());
    let mut bench = Bench { data, url: database.url.clone(), db, superuser, space };
    bench.overlap().await;
    bench.filters().await;
    bench.executions().await;
    bench.costs().await;
    bench.words().await;
    bench.storage().await;
    bench.db.close().await;
    plans::tell(&mut bench.superuser).await;
    bench.db = Db::new(database.url.parse().unwrap(), 1, Pooler::None);
    bench.plans().await;
    bench.db.close().await;
}

impl Bench {
    async fn inside(&self, name: &str) -> (Tx, Scope<'_>) {
        let rows = self.data.scope(name);
        let mut all = Tx::all_scopes(&self.db).await.unwrap();
        let id: i64 = sqlx::query_scalar("select scope_id from scopes where name = $1")
            .bind(name)
            .fetch_one(all.conn())
            .await
            .unwrap();
        all.commit().await.unwrap();
        let id = ScopeId(id);
        let mut tx = Tx::for_scope(&self.db, id).await.unwrap();
        let (size, _) = size(&mut tx, id).await.unwrap();
        (tx, Scope { id, size, rows })
    }

    /// The ids by meaning, and the milliseconds that it took.
    async fn near(&self, tx: &mut Tx, scope: &Scope<'_>, query: &[f32], filter: &Filter) -> (Vec<Uuid>, f64) {
        let began = Instant::now();
        let near = by_meaning(tx, scope.id, self.space, query, scope.size, filter, POOL).await.unwrap();
        (near.iter().map(|hit| hit.id).collect(), began.elapsed().as_secs_f64() * 1e3)
    }

    /// The share of the exact best `TOP` among the first `TOP` of `ids`. What is as near as the last counts as well.
    fn share(&self, rows: &[&Stored], query: &[f32], ids: &[Uuid]) -> f64 {
        let near = |row: &Stored| cosine(self.data.vector(row), query);
        let mut exact: Vec<f32> = rows.iter().map(|row| near(row)).collect();
        exact.sort_by(|a, b| b.total_cmp(a));
        exact.truncate(TOP);
        let Some(last) = exact.last().map(|last| last - 1e-6) else { return 1.0 };
        let first: Vec<&Uuid> = ids.iter().take(TOP).collect();
        let right = rows.iter().filter(|row| first.contains(&&row.id) && near(row) >= last).count();
        (right.min(exact.len())) as f64 / exact.len() as f64
    }

    async fn overlap(&self) {
        println!("Top {TOP} by meaning against the exact answer\n");
        println!(
            "| Rows of the scope | Scopes | Questions | Overlap | Least | p50 ms | p95 ms |\n|---|---|---|---|---|---|---|"
        );
        for (rows, names) in self.data.by_size() {
            let each = (40 / names.len()).max(2);
            let (mut shares, mut times) = (Vec::new(), Vec::new());
            for name in &names {
                let (mut tx, scope) = self.inside(name).await;
                let active: Vec<&Stored> = scope.rows.iter().filter(|row| row.valid_to.is_none()).collect();
                self.near(&mut tx, &scope, self.data.query(0), &Filter::default()).await;
                for query in (0..each).map(|query| self.data.query(query)) {
                    let (ids, time) = self.near(&mut tx, &scope, query, &Filter::default()).await;
                    assert_eq!(ids.len(), 50, "too few");
                    shares.push(self.share(&active, query, &ids));
                    times.push(time);
                }
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            let least = shares.iter().copied().fold(1.0, f64::min);
            println!(
                "| {rows} | {} | {} | {mean:.4} | {least:.2} | {:.1} | {:.1} |",
                names.len(),
                shares.len(),
                percentile(&mut times, 50),
                percentile(&mut times, 95)
            );
        }
    }

    async fn filters(&self) {
        println!(
            "\nFilters in the scope of 80,000: rows that satisfy it, returned for 50, overlap of the top {TOP}\n"
        );
        println!(
            "| Filter | Rows | Returned | Overlap | p50 ms | By words: rows | Returned |\n|---|---|---|---|---|---|---|"
        );
        let (mut tx, scope) = self.inside("large").await;
        let common = self.data.common_word("large");
        let terms = text::query_words(&common).concat();
        let numbers = vec![0; terms.len()];
        let asked = Asked { terms: &terms, words: &numbers, k1: 1.2, b: 0.75 };
        let at = |minute| Some(start() + TimeDelta::minutes(minute));
        let none = Filter::default;
        for (name, filter) in [
            ("none", none()),
            ("superseded as well", Filter { superseded: true, ..none() }),
            ("a rare tag", Filter { tags: vec!["rare".to_owned()], ..none() }),
            ("a tag of half", Filter { tags: vec!["half".to_owned()], ..none() }),
            (
                "any of two tags",
                Filter { tags: vec!["rare".to_owned(), "absent".to_owned()], any_tag: true, ..none() },
            ),
            ("a source", Filter { source: Some("chat-1000".to_owned()), ..none() }),
            ("half an hour", Filter { occurred_after: at(70_000), occurred_before: at(70_030), ..none() }),
            ("three days", Filter { occurred_after: at(40_000), occurred_before: at(44_320), ..none() }),
            ("as of an early minute", Filter { as_of: at(30), ..none() }),
            ("as of the middle", Filter { as_of: at(40_000), ..none() }),
            ("semantic", Filter { tiers: vec!["semantic".to_owned()], ..none() }),
        ] {
            let matching: Vec<&Stored> = scope.rows.iter().filter(|row| row.satisfies(&filter)).collect();
            let (mut shares, mut times, mut returned) = (Vec::new(), Vec::new(), Vec::new());
            for query in (0..10).map(|query| self.data.query(query)) {
                let (ids, time) = self.near(&mut tx, &scope, query, &filter).await;
                shares.push(self.share(&matching, query, &ids));
                times.push(time);
                returned.push(ids.len());
            }
            let least = returned.iter().min().unwrap();
            assert_eq!(*least, matching.len().min(50), "{name} returns too few");
            let holding = matching.iter().filter(|row| self.data.holds(row, &terms)).count();
            let by_words = by_words(&mut tx, scope.id, asked, None, &filter, POOL).await.unwrap().hits.len();
            assert_eq!(by_words, holding.min(50), "{name} returns too few by words");
            println!(
                "| {name} | {} | {least} | {:.3} | {:.1} | {holding} | {by_words} |",
                matching.len(),
                shares.iter().sum::<f64>() / 10.0,
                percentile(&mut times, 50)
            );
        }
    }

    async fn executions(&self) {
        println!("\nThe same prepared statement eight times, ms\n");
        for name in ["large", "small-0"] {
            let (mut tx, scope) = self.inside(name).await;
            let filter = Filter { tags: vec!["rare".to_owned()], ..Filter::default() };
            for (label, filter) in [("no filter", Filter::default()), ("a rare tag", filter)] {
                let mut times = Vec::new();
                for query in (0..8).map(|query| self.data.query(query)) {
                    times.push(format!("{:.1}", self.near(&mut tx, &scope, query, &filter).await.1));
                }
                println!("{name}, {label}: {}", times.join(" "));
            }
            let (generic, custom): (i64, i64) = sqlx::query_as(
                "select coalesce(sum(generic_plans), 0)::int8, coalesce(sum(custom_plans), 0)::int8
                   from pg_prepared_statements where statement like '%<=>%' and statement not like '%pg_prepared_statements%'",
            )
            .fetch_one(tx.conn())
            .await
            .unwrap();
            println!("so far {generic} generic plans and {custom} for their values");
            assert_eq!(generic, 0);
        }
    }

    async fn costs(&self) {
        println!("\nExact scan and index, whichever would be chosen\n");
        println!(
            "| Rows of the scope | Exact p50 ms | µs a row | Index p50 ms | µs a row visited |\n|---|---|---|---|---|"
        );
        for (rows, names) in self.data.by_size() {
            let (mut tx, mut scope) = self.inside(names[0]).await;
            let vectors = scope.size.vectors;
            let mut found = Vec::new();
            for memories in [0, i64::MAX] {
                scope.size.memories = memories;
                let mut times = Vec::new();
                for query in (0..16).map(|query| self.data.query(query)) {
                    times.push(self.near(&mut tx, &scope, query, &Filter::default()).await.1);
                }
                found.push(percentile(&mut times[1..], 50));
            }
            let visited = (POOL as f64 * vectors as f64 / rows as f64).max(100.0);
            println!(
                "| {rows} | {:.1} | {:.1} | {:.1} | {:.1} |",
                found[0],
                found[0] * 1e3 / rows as f64,
                found[1],
                found[1] * 1e3 / visited
            );
        }
    }

    async fn words(&self) {
        println!("\nSix words, and the bare index-only scan of the same postings, p50 ms\n");
        println!(
            "| Rows of the scope | Words | Postings | Bare | By words | Ratio |\n|---|---|---|---|---|---|"
        );
        // A connection beside that of the bare scan.
        let db = Db::new(self.url.parse().unwrap(), 1, Pooler::None);
        for name in ["ten", "large"] {
            let (mut tx, scope) = self.inside(name).await;
            for (label, questions) in self.data.questions(name) {
                let (mut bare, mut whole, mut postings) = (Vec::new(), Vec::new(), Vec::new());
                for words in questions {
                    let numbers: Vec<i32> =
                        words.iter().zip(0..).flat_map(|(word, at)| vec![at; word.len()]).collect();
                    let terms = words.concat();
                    let asked = Asked { terms: &terms, words: &numbers, k1: 1.2, b: 0.75 };
                    for _ in 0..5 {
                        let began = Instant::now();
                        let (count, _, _): (i64, i64, i64) = sqlx::query_as(
                            "select count(*), coalesce(sum(tf), 0), coalesce(sum(len), 0) from memory_term
                              where scope_id = $1 and term = any($2)",
                        )
                        .bind(scope.id.0)
                        .bind(&terms)
                        .fetch_one(tx.conn())
                        .await
                        .unwrap();
                        bare.push(began.elapsed().as_secs_f64() * 1e3);
                        let mut recall = Tx::for_recall(&db, scope.id).await.unwrap();
                        let began = Instant::now();
                        by_words(&mut recall, scope.id, asked, None, &Filter::default(), POOL).await.unwrap();
                        whole.push(began.elapsed().as_secs_f64() * 1e3);
                        postings.push(count as f64);
                    }
                }
                let (bare, whole) = (percentile(&mut bare, 50), percentile(&mut whole, 50));
                println!(
                    "| {} | {label} | {:.0} | {bare:.2} | {whole:.2} | {:.2} |",
                    scope.rows.len(),
                    percentile(&mut postings, 50),
                    whole / bare
                );
            }
        }
    }

    async fn storage(&mut self) {
        let (count, table, key, by_memory): (i64, i64, i64, i64) = sqlx::query_as(
            "select (select count(*) from memory_term), pg_relation_size('memory_term'),
                    pg_relation_size('memory_term_pkey'), pg_relation_size('memory_term_memory')",
        )
        .fetch_one(&mut self.superuser)
        .await
        .unwrap();
        let each = |bytes: i64| bytes as f64 / count as f64;
        println!(
            "\n{count} postings, {:.1} a memory. Bytes of each: table {:.0}, primary key {:.0}, by memory {:.0}, in all {:.0}",
            count as f64 / self.data.count() as f64,
            each(table),
            each(key),
            each(by_memory),
            each(table + key + by_memory)
        );
    }

    async fn plans(&self) {
        println!("\nPlans: rows, loops and buffers are what Postgres counted");
        let plans = plans::Plans::listen();
        for (name, narrow) in [("small-0", false), ("large", false), ("large", true)] {
            let scope = self.inside(name).await.1;
            let tags = if narrow { vec!["rare".to_owned()] } else { Vec::new() };
            let filter = Filter { tags, ..Filter::default() };
            let words = self.data.questions(name)[0].1[0].clone();
            let numbers: Vec<i32> =
                words.iter().zip(0..).flat_map(|(word, at)| vec![at; word.len()]).collect();
            let terms = words.concat();
            let asked = Asked { terms: &terms, words: &numbers, k1: 1.2, b: 0.75 };
            // Once before, so that what is counted is not the first look at the catalogue.
            for _ in 0..2 {
                let mut tx = Tx::for_recall(&self.db, scope.id).await.unwrap();
                plans.take();
                let found = by_words(&mut tx, scope.id, asked, Some(start()), &filter, POOL).await.unwrap();
                let (near, _) = self.near(&mut tx, &scope, self.data.query(1), &filter).await;
                let ids: Vec<Uuid> = found.hits.iter().map(|hit| hit.id).chain(near).collect();
                fetch_related(&mut tx, scope.id, &ids).await.unwrap();
            }
            for (label, executed) in ["words", "meaning", "fetch"].iter().zip(plans.take()) {
                println!("\n{label}, {} rows{}", scope.rows.len(), if narrow { ", a rare tag" } else { "" });
                print_node(&executed.plan, 1);
            }
        }
    }
}

/// A node and what is below it; branches that were not taken are left out.
fn print_node(node: &Value, depth: usize) {
    if node["Actual Loops"].as_f64() == Some(0.0) {
        return;
    }
    let part = |name: &str, label: &str| match &node[name] {
        Value::String(text) => format!(" {label}{text}"),
        Value::Number(number) => format!(" {label}{number}"),
        _ => String::new(),
    };
    println!(
        "{}{}{}{}{}{}{} buffers={}{}{}",
        "  ".repeat(depth),
        node["Node Type"].as_str().unwrap(),
        part("Index Name", "using "),
        part("Relation Name", "on "),
        part("Subplan Name", "for "),
        part("Actual Rows", "rows="),
        part("Actual Loops", "loops="),
        node["Shared Hit Blocks"].as_i64().unwrap_or(0) + node["Shared Read Blocks"].as_i64().unwrap_or(0),
        part("Heap Fetches", "heap fetches="),
        part("Index Cond", "by "),
    );
    for child in node["Plans"].as_array().into_iter().flatten() {
        print_node(child, depth + 1);
    }
}

fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}
