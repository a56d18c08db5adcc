//! Recall in a scope that is larger than what is scanned exactly, beside a small one in the same table.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use memser::clock::Clock;
use memser::db::consolidation::nearest;
use memser::db::recall::{Asked, Filter, ScopeSize, by_meaning, by_words, size};
use memser::db::space::Space;
use memser::db::{Db, Pooler, ScopeId, Tx};
use memser::engine::score::{Bm25, Posting, idf};
use memser::text::{self, Analysis};
use pgvector::Vector;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::support::client::contents;
use crate::support::plans::{Plans, nodes, tell};
use crate::support::rows::Row;
use crate::support::{TestApp, bulk, start_of_time};

const DIMENSIONS: usize = 32;
/// More than are scanned exactly.
const MANY: usize = 10_500;
const FEW: usize = 300;

/// A text of its own for each number, of words that others have too.
fn content(number: usize) -> String {
    const WHO: [&str; 7] = ["Anna", "Ravi", "Mehmet", "Chloé", "Jun", "Olga", "Sven"];
    const DID: [&str; 11] = [
        "repaired",
        "sold",
        "painted",
        "borrowed",
        "photographed",
        "measured",
        "returned",
        "cleaned",
        "hid",
        "lost",
        "drew",
    ];
    const WHAT: [&str; 13] = [
        "a kettle",
        "a bicycle",
        "an old radio",
        "the map",
        "two lamps",
        "a violin",
        "the ladder",
        "a coat",
        "a clock",
        "the tent",
        "a mirror",
        "some chairs",
        "a bridge",
    ];
    format!("{} {} {} on round {number}", WHO[number % 7], DID[number % 11], WHAT[number % 13])
}

/// A direction of its own for each number, the same in every run.
fn direction(number: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::try_from(number).unwrap() + 1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f32::from(u16::try_from(state >> 48).unwrap()) / 32_768.0 - 1.0
    };
    let vector: Vec<f32> = (0..DIMENSIONS).map(|_| next()).collect();
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / length).collect()
}

/// Each row a minute older than the one before. Every 100th was superseded ten minutes after it happened; every 1,000th
/// is marked; 30 have one source.
fn rows(app: &TestApp, count: usize) -> Vec<Row> {
    let clock = Clock::Fixed(app.clock.clone());
    let row = |number: usize| {
        let at = start_of_time() - TimeDelta::minutes(i64::try_from(number).unwrap());
        let tags: &[&str] = if number % 1_000 == 7 { &["all", "marked"] } else { &["all"] };
        Row {
            id: clock.new_id(),
            content: content(number),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            source: Some(format!("chat-{}", number / 30)),
            seq: i64::try_from(number % 30).unwrap(),
            created_at: start_of_time(),
            occurred_at: Some(at),
            valid_to: (!is_active(number)).then(|| at + TimeDelta::minutes(10)),
            vector: Some(direction(number)),
        }
    };
    (0..count).map(row).collect()
}

/// A memser with a large scope `many` and a small one `few`.
async fn filled() -> TestApp {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", DIMENSIONS.to_string()).start().await;
    bulk::store_rows(&app, &[("many", rows(&app, MANY)), ("few", rows(&app, FEW))]).await;
    app
}

/// The best 100 that satisfy a filter, in the order of their numbers.
async fn found(app: &TestApp, filter: Value) -> BTreeSet<String> {
    let mut question = json!({ "scope": "many", "query": "Who repaired the kettle?", "k": 100 });
    question.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
    contents(&app.admin().ok("recall_memory", question).await).into_iter().collect()
}

fn texts(numbers: impl Iterator<Item = usize>) -> BTreeSet<String> {
    numbers.map(content).collect()
}

fn is_active(number: usize) -> bool {
    !number.is_multiple_of(100)
}

#[tokio::test]
async fn a_filter_in_a_large_scope_returns_all_there_is() {
    let app = filled().await;
    let at = |number: usize| start_of_time() - TimeDelta::minutes(i64::try_from(number).unwrap());
    let window = json!({ "occurred_after": at(529), "occurred_before": at(499) });
    let mut with_history = window.clone();
    with_history["include_superseded"] = json!(true);
    let first = MANY - 20;
    for (filter, expected) in [
        (json!({ "tags": ["marked"] }), texts((7..MANY).step_by(1_000))),
        (json!({ "tags": ["marked", "missing"], "tags_match": "any" }), texts((7..MANY).step_by(1_000))),
        (json!({ "tags": ["marked", "missing"] }), texts(0..0)),
        (json!({ "source": "chat-10" }), texts((300..330).filter(|number| is_active(*number)))),
        (window, texts((500..530).filter(|number| is_active(*number)))),
        (with_history, texts(500..530)),
        // Of what had happened by then, the one that was superseded later held as well.
        (json!({ "as_of": at(first) }), texts(first..MANY)),
        (json!({ "as_of": at(first), "tags": ["marked"] }), texts(0..0)),
        (json!({ "tiers": ["semantic"] }), texts(0..0)),
    ] {
        assert_eq!(found(&app, filter.clone()).await, expected, "{filter}");
    }
    // Kept by too many rows for a scan: the index is asked, and every row that it gives is looked at.
    let wide = found(&app, json!({ "occurred_before": at(99) })).await;
    assert!(wide.len() == 100 && wide.is_subset(&texts(100..MANY)), "{wide:?}");
    // Nothing asked for but the scope: as many as are wanted.
    assert_eq!(found(&app, json!({})).await.len(), 100);
    app.stop().await;
}

/// A transaction in a scope, and what a search by meaning needs to know of it.
async fn inside(app: &TestApp, db: &Db, name: &str) -> (Tx, ScopeId, ScopeSize, Space) {
    let mut connection = app.database.connect().await;
    let scope = sqlx::query_scalar("select scope_id from scopes where name = $1").bind(name);
    let scope = ScopeId(scope.fetch_one(&mut connection).await.unwrap());
    let mut tx = Tx::for_scope(db, scope).await.unwrap();
    let (size, active) = size(&mut tx, scope).await.unwrap();
    (tx, scope, size, Space { id: active, dimensions: i32::try_from(DIMENSIONS).unwrap() })
}

fn uses_vectors(node: &Value) -> bool {
    node["Index Name"].as_str().is_some_and(|name| name.starts_with("memory_embedding_hnsw"))
}

/// The index may stop before it has enough. Here it is let to stop early, and everything near was superseded.
#[tokio::test]
async fn what_the_index_does_not_reach_is_found_by_a_scan() {
    let app = filled().await;
    let query = direction(1_000_000);
    let mut connection = app.database.connect().await;
    sqlx::query(
        "update memories set valid_to = created_at, superseded_reason = 'replaced'
          where id in (select memory_id from memory_embedding order by embedding <=> $1 limit 500) and valid_to is null",
    )
    .bind(Vector::from(query.clone()))
    .execute(&mut connection)
    .await
    .unwrap();
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut connection).await.unwrap();
    let early = format!("alter database {database} set hnsw.max_scan_tuples = 1");
    sqlx::raw_sql(AssertSqlSafe(early)).execute(&mut connection).await.unwrap();
    tell(&mut connection).await;
    let plans = Plans::listen();
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    let (mut tx, scope, size, space) = inside(&app, &db, "many").await;
    plans.take();
    let near = by_meaning(&mut tx, scope, space, &query, size, &Filter::default(), 50).await.unwrap();
    assert_eq!(near.len(), 50);
    let executed = plans.take();
    let meaning = executed.iter().find(|executed| executed.statement.contains("memory_embedding")).unwrap();
    let all = nodes(&meaning.plan);
    let scan = all.iter().find(|node| uses_vectors(node)).unwrap();
    assert!(scan["Actual Rows"].as_f64() < Some(500.0), "{scan}");
    drop(tx);
    db.close().await;
    app.stop().await;
}

#[tokio::test]
async fn the_best_by_meaning_are_those_of_an_exact_scan() {
    let app = filled().await;
    let db = Db::new(app.database.url.parse().unwrap(), 2, Pooler::None);
    for (name, count, at_least) in [("many", MANY, 0.95), ("few", FEW, 1.0)] {
        let (mut tx, scope, size, space) = inside(&app, &db, name).await;
        let stored: Vec<(usize, Uuid)> = sqlx::query_as(
            "select substring(content from '[0-9]+$')::int8, id from memories where valid_to is null",
        )
        .fetch_all(tx.conn())
        .await
        .unwrap()
        .into_iter()
        .map(|(number, id): (i64, Uuid)| (usize::try_from(number).unwrap(), id))
        .collect();
        let mut right = 0;
        for query in (0..6).map(|query| direction(1_000_000 + query)) {
            let near = by_meaning(&mut tx, scope, space, &query, size, &Filter::default(), 50).await.unwrap();
            assert_eq!(near.len(), 50);
            let cosine = |number| direction(number).iter().zip(&query).map(|(a, b)| a * b).sum::<f32>();
            let mut exact: Vec<(f32, Uuid)> =
                stored.iter().map(|(number, id)| (cosine(*number), *id)).collect();
            exact.sort_by(|a, b| b.0.total_cmp(&a.0));
            let best: Vec<Uuid> = exact[..20].iter().map(|(_, id)| *id).collect();
            right += near[..20].iter().filter(|hit| best.contains(&hit.id)).count();
        }
        let share = f64::from(u32::try_from(right).unwrap()) / 120.0;
        assert!(share >= at_least, "{share} of {count}");
    }
    db.close().await;
    app.stop().await;
}

/// Consolidation looks the neighbours of many memories up in one statement. A scope of a fifth of the table finds them by
/// the index, too, past all rows of the others.
#[tokio::test]
async fn neighbours_come_by_the_index_where_the_scope_is_large_in_the_table() {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", DIMENSIONS.to_string()).start().await;
    let counts = [("many", MANY, true), ("some", 3_000, true), ("few", FEW, false)];
    bulk::store_rows(&app, &counts.map(|(name, count, _)| (name, rows(&app, count)))).await;
    tell(&mut app.database.connect().await).await;
    let plans = Plans::listen();
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    for (name, count, by_index) in counts {
        let (mut tx, scope, size, space) = inside(&app, &db, name).await;
        let vectors: Vec<Vec<f32>> = (0..12).map(|number| direction(number * 23 + 1)).collect();
        let asked: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
        plans.take();
        let near = nearest(&mut tx, scope, space, &asked, size, 9).await.unwrap();
        let executed = plans.take();
        let scans =
            executed.iter().flat_map(|executed| nodes(&executed.plan)).filter(|node| uses_vectors(node));
        assert_eq!(
            scans.map(|node| node["Actual Loops"].as_f64()).next(),
            by_index.then_some(Some(12.0)),
            "{name}"
        );
        let mut right = 0;
        for (vector, hits) in vectors.iter().zip(near) {
            assert_eq!(hits.len(), 9, "{name}");
            let mut exact: Vec<f32> = (0..count)
                .filter(|number| is_active(*number))
                .map(|number| direction(number).iter().zip(vector).map(|(a, b)| a * b).sum())
                .collect();
            exact.sort_by(|a, b| b.total_cmp(a));
            right += hits.iter().filter(|hit| hit.score >= exact[8] - 1e-4).count();
        }
        let share = f64::from(u32::try_from(right).unwrap()) / 108.0;
        assert!(share >= if by_index { 0.95 } else { 1.0 }, "{name}: {share}");
    }
    db.close().await;
    app.stop().await;
}

/// Branches that are not taken are in the plan all the same.
fn has_run(node: &Value) -> bool {
    node["Actual Loops"].as_f64() > Some(0.0)
}

/// What a scan is, without its figures.
fn shape(plan: &Value) -> Vec<String> {
    let node =
        |node: &&Value| format!("{} {} {}", node["Node Type"], node["Relation Name"], node["Index Name"]);
    nodes(plan).iter().map(node).collect()
}

#[tokio::test]
async fn a_recall_is_three_statements_whose_plans_fit_the_scope_and_stay() {
    let app = filled().await;
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    assert!(db.has_second_wall().await.unwrap());
    tell(&mut app.database.connect().await).await;
    // A memser of its own, whose connections tell.
    let telling = TestApp::builder()
        .beside(&app)
        .set("EMBEDDING_DIMENSIONS", DIMENSIONS.to_string())
        .set("DATABASE_MAX_CONNECTIONS", "2")
        .start()
        .await;
    let client = telling.admin();
    // The scope's number is looked up once.
    for scope in ["many", "few"] {
        client.recall(scope, "violin").await;
    }
    telling.engine.flush().await;
    let plans = Plans::listen();
    for (scope, indexed) in [("many", true), ("few", false)] {
        let mut shapes = BTreeSet::new();
        for round in 1..=8 {
            plans.take();
            client.recall(scope, "Who repaired the violin and painted two lamps for Chloé?").await;
            let mut executed = plans.take();
            // A new connection asks once what a vector is.
            executed.retain(|executed| !executed.statement.contains("pg_catalog"));
            let [begin, words, meaning, fetch] = &executed[..] else {
                panic!(
                    "{scope}, round {round}: {:#?}",
                    executed.iter().map(|e| &e.statement).collect::<Vec<_>>()
                )
            };
            assert!(begin.statement.contains("set_config('memser.scope_id'"), "{}", begin.statement);
            shapes.insert([shape(&words.plan), shape(&meaning.plan), shape(&fetch.plan)].concat());

            let postings: Vec<&Value> = nodes(&words.plan)
                .into_iter()
                .filter(|node| node["Relation Name"] == "memory_term" && has_run(node))
                .collect();
            assert!(!postings.is_empty());
            for node in postings {
                assert_eq!(node["Node Type"], "Index Only Scan", "{node}");
                let condition = node["Index Cond"].as_str().unwrap();
                assert!(condition.contains("(scope_id = $1) AND (term >= "), "{node}");
                assert!(node["Filter"].as_str().unwrap().contains("InitPlan"), "no wall: {node}");
            }
            let vectors: Vec<&Value> =
                nodes(&meaning.plan).into_iter().filter(|node| uses_vectors(node)).collect();
            let used = vectors.into_iter().any(has_run);
            assert_eq!(used, indexed, "{scope}: {:#?}", shape(&meaning.plan));
            for statement in &executed {
                for node in nodes(&statement.plan) {
                    let whole = node["Node Type"] == "Seq Scan" && node["Relation Name"] == "memories";
                    assert!(!(has_run(node) && whole && scope == "many"), "{}\n{node}", statement.statement);
                }
            }
            // The journal's turn, so that it writes between the rounds and not within one.
            telling.engine.flush().await;
        }
        assert_eq!(shapes.len(), 1, "the plans of {scope} changed: {shapes:#?}");
    }
    telling.stop().await;
    app.stop().await;
}

/// The plan of the words is made once on each connection, maybe while the tables are empty, and has to do when they are not.
#[tokio::test]
async fn the_plan_of_the_words_that_is_kept_is_one_of_lookups_from_the_start() {
    let app = TestApp::start().await;
    tell(&mut app.database.connect().await).await;
    let telling = TestApp::builder().beside(&app).set("DATABASE_MAX_CONNECTIONS", "2").start().await;
    let client = telling.admin();
    let plans = Plans::listen();
    for stored in 0..3 {
        client.store("few", &format!("Anna restrung violin number {stored}")).await;
        plans.take();
        client.recall("few", "Who restrung a violin?").await;
        let executed = plans.take();
        let words = executed.iter().find(|executed| executed.statement.contains("memory_term")).unwrap();
        let of = |table: &str| -> Vec<&Value> {
            let all = nodes(&words.plan).into_iter();
            all.filter(|node| node["Relation Name"] == table && has_run(node)).collect()
        };
        let (postings, memories) = (of("memory_term"), of("memories"));
        assert!(postings.len() > 1 && !memories.is_empty(), "{:#?}", shape(&words.plan));
        for (node, by) in postings
            .into_iter()
            .map(|node| (node, "(scope_id = $1) AND (term >= "))
            .chain(memories.into_iter().map(|node| (node, "(scope_id = $1) AND (id >= ")))
        {
            let condition = node["Index Cond"].as_str().unwrap_or_else(|| panic!("no lookup: {node}"));
            assert!(condition.contains(by), "another plan for each execution: {node}");
        }
    }
    telling.stop().await;
    app.stop().await;
}

/// A word that all memories hold is weighed on the best candidates of the other words alone; the best are the same.
#[tokio::test]
async fn words_are_weighed_as_bm25_says_also_very_common_ones() {
    let app = filled().await;
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    let asked = ["round", "violin", "olga", "77"].map(|word| text::query_words(word).concat());
    for (name, count) in [("many", MANY), ("few", FEW)] {
        let (mut tx, scope, size, _) = inside(&app, &db, name).await;
        let analyses: Vec<_> = (0..count).map(|number| text::analyse(&content(number))).collect();
        let tf = |analysis: &Analysis, word: &Vec<String>| -> u32 {
            analysis.terms.iter().filter(|(term, _)| word.contains(term)).map(|(_, tf)| tf).sum()
        };
        let frequencies = asked.each_ref().map(|word| {
            u64::try_from(analyses.iter().filter(|analysis| tf(analysis, word) > 0).count()).unwrap()
        });
        assert_eq!(frequencies[0], count as u64, "a word that all hold");
        #[expect(clippy::cast_possible_truncation, reason = "a short average")]
        let average = size.average_tokens as f32;
        let mut scores: Vec<f32> = (0..count)
            .filter(|number| is_active(*number))
            .map(|number| {
                let postings = asked.iter().zip(frequencies).map(|(word, frequency)| Posting {
                    tf: tf(&analyses[number], word),
                    idf: idf(count as u64, frequency),
                });
                Bm25::default().score(postings, analyses[number].tokens, average)
            })
            .collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        let terms = asked.concat();
        let words: Vec<i32> = asked.iter().zip(0..).flat_map(|(word, at)| vec![at; word.len()]).collect();
        let asked = Asked { terms: &terms, words: &words, k1: 1.2, b: 0.75 };
        let found = by_words(&mut tx, scope, asked, None, &Filter::default(), 50).await.unwrap();
        assert_eq!(found.hits.len(), 50);
        for (at, (hit, expected)) in found.hits.iter().zip(scores).enumerate() {
            assert!((hit.score - expected).abs() < 1e-3, "{name}, {at}: {} for {expected}", hit.score);
        }
    }
    db.close().await;
    app.stop().await;
}
