//! What telling changes costs those who make them.

use std::time::Duration;

use futures::future::join_all;
use memser::clock::Clock;
use memser::db::embedded::{Embedded, EmbeddedSettings};
use memser::db::{Db, Pooler, ScopeId, Tx, memory, scope};
use memser::model::Scope;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::process::data_folder;
use crate::support::{TestApp, TestDatabase};

const WRITERS: u16 = 8;
const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Nobody,
    After,
    Within,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Nobody, "nobody listens"),
    (Way::After, "told after the commit"),
    (Way::Within, "told within the transaction"),
];

/// States a memory again and again until `end`; how often.
async fn write(db: &Db, (scope, id): (ScopeId, Uuid), clock: &Clock, way: Way, end: Instant) -> u32 {
    let mut commits = 0;
    while Instant::now() < end {
        let mut tx = Tx::for_scope(db, scope).await.unwrap();
        memory::support(&mut tx, scope, id, None, 0.1, clock.now()).await.unwrap();
        if way == Way::Within {
            let payload = format!(r#"{{"scope":{},"listed":false,"memories":["{id}"]}}"#, scope.0);
            let notify = sqlx::query("select pg_notify('memser_changes', $1)").bind(payload);
            notify.execute(tx.conn()).await.unwrap();
        }
        tx.commit().await.unwrap();
        commits += 1;
    }
    commits
}

/// On a Postgres that waits for its disk, as one does that is kept: that of the other tests does not.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: its figures are in docs/benchmarks.md"]
async fn what_telling_costs() {
    let data = data_folder();
    let pg_bin = std::env::var_os("MEMSER_PG_BIN").map(Into::into);
    let settings = EmbeddedSettings { data_dir: Some(data.path().to_owned()), pg_bin, ..Default::default() };
    let postgres = Embedded::start(&settings).await.unwrap();
    let options = postgres.connect_options();
    let database = TestDatabase {
        url: sqlx::ConnectOptions::to_url_lossy(&options).to_string(),
        superuser: options.clone(),
    };
    let app = TestApp::builder().on(database).start().await;
    let db = Db::new(options.clone(), WRITERS.into(), Pooler::None);
    let clock = Clock::Fixed(app.clock.clone());
    let mut targets = Vec::new();
    for number in 0..WRITERS {
        let name = format!("user:{number}");
        let id = app.admin().store(&name, "Tea is in the left drawer").await;
        let scope = scope::find(&db, &Scope::parse(&name).unwrap()).await.unwrap().unwrap();
        targets.push((scope, id.parse::<Uuid>().unwrap()));
    }
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("memser_changes").await.unwrap();
    let mut rates = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for turn in 0..WAYS.len() {
            let at = (round + turn) % WAYS.len();
            let way = WAYS[at].0;
            if way == Way::After {
                sqlx::query("select pg_advisory_lock_shared(-1002)").execute(&mut listener).await.unwrap();
            }
            let begun = Instant::now();
            let writers = targets.iter().map(|target| {
                let (db, clock, target) = (db.clone(), clock.clone(), *target);
                tokio::spawn(async move { write(&db, target, &clock, way, begun + TURN).await })
            });
            let commits: u32 = join_all(writers).await.into_iter().map(Result::unwrap).sum();
            rates[at].push(f64::from(commits) / begun.elapsed().as_secs_f64());
            if way == Way::After {
                sqlx::query("select pg_advisory_unlock_shared(-1002)").execute(&mut listener).await.unwrap();
            }
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("| {WRITERS} writers, each in a scope of its own | commits a second | ratio |\n|---|---|---|");
    for ((_, name), median) in WAYS.iter().zip(medians) {
        println!("| {name} | {median:.0} | {:.2} |", median / medians[0]);
    }
    db.close().await;
    app.stop().await;
    drop(listener);
    postgres.stop().await.unwrap();
}
