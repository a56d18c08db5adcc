//! What row-level security costs.

use std::time::{Duration, Instant};

use memser::clock::Clock;
use memser::db::memory::NewMemory;
use memser::db::recall::{Asked, Filter};
use memser::db::space::Space;
use memser::db::{Db, Pooler, ScopeId, Tx, memory, recall};
use memser::model::Memory;
use memser::text;
use sqlx::ConnectOptions;
use uuid::Uuid;

use crate::second_wall::new_memory;
use crate::support::{TestApp, bulk, start_of_time};

const MEMORIES: usize = 9_000;
const DIMENSIONS: usize = 256;
const ROUNDS: usize = 200;
const PARTS: [&str; 4] =
    ["candidates by words", "candidates by meaning", "50 memories by id", "one insertion"];

/// What the parts work on.
struct Subject {
    scope: ScopeId,
    space: Space,
    vector: Vec<f32>,
    ids: Vec<Uuid>,
    clock: Clock,
}

/// Does one part in a transaction of its own, which is rolled back.
async fn work(db: &Db, part: &str, of: &Subject) -> Duration {
    let terms: Vec<String> =
        text::analyse("Anna painted a violin").terms.into_iter().map(|(term, _)| term).collect();
    let words: Vec<i32> = (0..).take(terms.len()).collect();
    let now = of.clock.now();
    let memory = Memory { id: of.clock.new_id(), ..new_memory("Anna painted a violin in the evening", now) };
    let analysis = text::analyse(&memory.content);
    let mut tx = Tx::for_scope(db, of.scope).await.unwrap();
    let size = recall::size(&mut tx, of.scope).await.unwrap().0;
    let begun = Instant::now();
    let found = match part {
        "candidates by words" => {
            let asked = Asked { terms: &terms, words: &words, k1: 1.2, b: 0.75 };
            let filter = Filter::default();
            recall::by_words(&mut tx, of.scope, asked, None, &filter, 50).await.unwrap().hits.len()
        }
        "candidates by meaning" => {
            let filter = Filter::default();
            let near = recall::by_meaning(&mut tx, of.scope, of.space, &of.vector, size, &filter, 50).await;
            near.unwrap().len()
        }
        "50 memories by id" => memory::fetch(&mut tx, of.scope, &of.ids).await.unwrap().len(),
        _ => {
            let embedding = Some((of.space.id, &of.vector[..]));
            let content_hash = text::content_hash(&memory.content);
            let new = NewMemory { memory: &memory, content_hash, analysis: &analysis, embedding };
            memory::insert(&mut tx, of.scope, &new).await.unwrap();
            50
        }
    };
    let took = begun.elapsed();
    assert_eq!(found, 50, "{part}");
    took
}

fn milliseconds(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1_000.0
}

/// The same statements on the same rows, in turns: by memser's role, which the wall binds, and by a superuser, whom it
/// does not.
#[tokio::test]
#[ignore = "a measurement: its figures are in docs/benchmarks.md"]
async fn what_the_second_wall_costs() {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", DIMENSIONS.to_string()).start().await;
    let contents: Vec<String> = (0..MEMORIES)
        .map(|number| {
            format!("{} painted {} violins on day {number}", ["Anna", "Ben", "Olga"][number % 3], number % 7)
        })
        .collect();
    for scope in ["user:1", "user:2"] {
        bulk::store(&app, scope, &contents, DIMENSIONS).await;
    }
    let mut database = app.database.connect().await;
    let scope: i64 = sqlx::query_scalar("select scope_id from scopes where name = 'user:1'")
        .fetch_one(&mut database)
        .await
        .unwrap();
    let ids: Vec<Uuid> =
        sqlx::query_scalar("select id from memories where scope_id = $1 order by id limit 50")
            .bind(scope)
            .fetch_all(&mut database)
            .await
            .unwrap();
    let (space, vector): (i32, pgvector::Vector) =
        sqlx::query_as("select space_id, embedding from memory_embedding where memory_id = $1")
            .bind(ids[0])
            .fetch_one(&mut database)
            .await
            .unwrap();
    let subject = Subject {
        scope: ScopeId(scope),
        space: Space { id: space, dimensions: i32::try_from(DIMENSIONS).unwrap() },
        vector: vector.to_vec(),
        ids,
        clock: Clock::Fixed(memser::clock::FixedClock::at(start_of_time())),
    };
    let superuser = app.database.superuser.to_url_lossy().to_string();
    let dbs = [&app.database.url, &superuser].map(|url| Db::new(url.parse().unwrap(), 1, Pooler::None));
    assert!(dbs[0].has_second_wall().await.unwrap() && !dbs[1].has_second_wall().await.unwrap());
    println!("| Part | with the wall | without | ratio |\n|---|---|---|---|");
    for part in PARTS {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in 0..2 {
                let at = (round + turn) % 2;
                times[at].push(work(&dbs[at], part, &subject).await);
            }
        }
        let [with, without] = times.map(milliseconds);
        println!("| {part} | {with:.2} ms | {without:.2} ms | {:.2} |", with / without);
    }
    for db in &dbs {
        db.close().await;
    }
    app.stop().await;
}
