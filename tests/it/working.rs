//! The working tier keeps the same promises in Redis and in Postgres.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use memser::clock::{Clock, FixedClock};
use memser::db::scope::open_or_create;
use memser::db::{Db, Pooler, ScopeId, Tx};
use memser::model::{Scope, Tier};
use memser::working::{CONFIDENCE, DEFAULT_CAP, NewWorking, Working};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::support::{TestDatabase, start_of_time};

const MINUTE: Duration = Duration::from_mins(1);

/// What one test works on: an empty working tier, two scopes, and the time.
struct Bench {
    working: Working,
    db: Db,
    scope: ScopeId,
    other: ScopeId,
    clock: Clock,
    time: FixedClock,
    _database: TestDatabase,
}

impl Bench {
    async fn new(working: impl FnOnce(Db) -> Working) -> Self {
        let database = TestDatabase::create().await;
        let db = Db::new(database.url.parse().unwrap(), 4, Pooler::None);
        let mut scopes = [ScopeId(0); 2];
        for (scope, name) in scopes.iter_mut().zip(["one", "two"]) {
            let name = Scope::parse(name).unwrap();
            let (tx, id) = open_or_create(&db, &name, "test", 10, start_of_time()).await.unwrap();
            tx.commit().await.unwrap();
            *scope = id;
        }
        let working = working(db.clone());
        let time = FixedClock::at(DateTime::from_timestamp(1_800_000_000, 123_456_000).unwrap());
        let [scope, other] = scopes;
        Self { working, db, scope, other, clock: Clock::Fixed(time.clone()), time, _database: database }
    }

    async fn redis(cap: u32) -> Self {
        Self::new(|_| Working::redis(&redis_url(), Uuid::new_v4(), cap).unwrap()).await
    }

    async fn postgres(cap: u32) -> Self {
        Self::new(|db| Working::postgres(db, cap)).await
    }

    fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    fn new_memory(&self, content: &str) -> NewWorking {
        NewWorking {
            id: self.clock.new_id(),
            content: content.to_owned(),
            content_hash: Sha256::digest(content).into(),
            tags: vec!["a,b".to_owned(), "ü".to_owned()],
            source: Some("chat".to_owned()),
            actor: None,
            metadata: BTreeMap::from([
                ("empty".to_owned(), serde_json::json!([])),
                ("n".to_owned(), 1.5.into()),
            ]),
            occurred_at: None,
            created_at: self.now(),
            support: 1,
        }
    }

    async fn remove(&self, scope: ScopeId, ids: &[Uuid]) -> Vec<Uuid> {
        let mut tx = Tx::for_scope(&self.db, scope).await.unwrap();
        let removed = self.working.remove(&mut tx, scope, ids).await.unwrap();
        tx.commit().await.unwrap();
        removed
    }

    async fn put(&self, content: &str, ttl: Duration) -> memser::error::Result<memser::working::Put> {
        self.working.put(self.scope, self.new_memory(content), ttl, self.now()).await
    }

    async fn contents(&self, scope: ScopeId) -> Vec<String> {
        let memories = self.working.list(scope, self.now()).await.unwrap();
        memories.into_iter().map(|memory| memory.content).collect()
    }
}

fn redis_url() -> String {
    std::env::var("MEMSER_TEST_REDIS_URL").expect("run by scripts/test-services.sh")
}

/// Runs each test on both stores.
macro_rules! on_both {
    ($($test:ident($cap:expr);)*) => {
        mod redis { $(#[tokio::test] async fn $test() { super::$test(super::Bench::redis($cap).await).await; })* }
        mod postgres { $(#[tokio::test] async fn $test() { super::$test(super::Bench::postgres($cap).await).await; })* }
    };
}

on_both! {
    what_is_put_is_listed(super::DEFAULT_CAP);
    it_expires_by_the_callers_clock(super::DEFAULT_CAP);
    the_same_content_is_refreshed(super::DEFAULT_CAP);
    an_expired_entry_is_no_repeat(super::DEFAULT_CAP);
    a_full_scope_refuses(2);
    removing_says_what_was_there(super::DEFAULT_CAP);
    concurrent_puts_of_one_content_add_up(super::DEFAULT_CAP);
    concurrent_puts_never_exceed_the_cap(5);
    a_life_beyond_the_calendar_is_refused(super::DEFAULT_CAP);
    it_answers_a_ping(super::DEFAULT_CAP);
}

async fn what_is_put_is_listed(bench: Bench) {
    let content = "naïve 東京 🦀 'quotes' \\u0000 {\"json\": [1]}\n\ttabs";
    let new = NewWorking { occurred_at: Some(bench.now() - MINUTE), ..bench.new_memory(content) };
    let put = bench.working.put(bench.scope, new.clone(), MINUTE, bench.now()).await.unwrap();
    assert_eq!((put.id, put.refreshed, put.support), (new.id, false, 1));

    let [memory] = bench.working.list(bench.scope, bench.now()).await.unwrap().try_into().unwrap();
    assert_eq!((memory.id, memory.tier, memory.support), (new.id, Tier::Working, 1));
    assert_eq!(memory.content, content);
    assert_eq!((memory.tags, memory.source, memory.actor), (new.tags, new.source, new.actor));
    assert_eq!(memory.metadata, new.metadata);
    assert_eq!((memory.created_at, memory.occurred_at), (new.created_at, new.occurred_at));
    assert_eq!(memory.expires_at, Some(put.expires_at));
    assert!((memory.confidence - CONFIDENCE).abs() < f32::EPSILON);
}

async fn it_expires_by_the_callers_clock(bench: Bench) {
    bench.put("short", MINUTE).await.unwrap();
    bench.put("long", 2 * MINUTE).await.unwrap();
    assert_eq!(bench.contents(bench.scope).await, ["long", "short"]);
    bench.time.advance(MINUTE);
    assert_eq!(bench.contents(bench.scope).await, ["long"]);
    bench.time.advance(MINUTE);
    assert!(bench.contents(bench.scope).await.is_empty());
}

async fn the_same_content_is_refreshed(bench: Bench) {
    let first = bench.put("tea", MINUTE).await.unwrap();
    bench.time.advance(MINUTE / 2);
    let second = bench.put("tea", 2 * MINUTE).await.unwrap();
    assert_eq!((second.id, second.refreshed, second.support), (first.id, true, 2));
    assert!(second.expires_at > first.expires_at);
    // Past the first life, and at last past the second: it was renewed, not dropped.
    bench.time.advance(MINUTE);
    let [memory] = bench.working.list(bench.scope, bench.now()).await.unwrap().try_into().unwrap();
    assert_eq!((memory.support, memory.expires_at), (2, Some(second.expires_at)));
    bench.time.advance(MINUTE);
    assert!(bench.contents(bench.scope).await.is_empty());
}

async fn an_expired_entry_is_no_repeat(bench: Bench) {
    let first = bench.put("tea", MINUTE).await.unwrap();
    bench.time.advance(MINUTE);
    let second = bench.put("tea", MINUTE).await.unwrap();
    assert_eq!((second.refreshed, second.support), (false, 1));
    assert_ne!(first.id, second.id);
    assert_eq!(bench.contents(bench.scope).await, ["tea"]);
}

async fn a_full_scope_refuses(bench: Bench) {
    bench.put("one", MINUTE).await.unwrap();
    bench.put("two", 3 * MINUTE).await.unwrap();
    assert_eq!(bench.put("three", MINUTE).await.unwrap_err().code(), "limit_exceeded");
    assert_eq!(bench.contents(bench.scope).await, ["two", "one"], "nothing is evicted");
    assert!(bench.put("one", MINUTE).await.unwrap().refreshed, "a repeat needs no room");

    let new = bench.new_memory("three");
    bench.working.put(bench.other, new, MINUTE, bench.now()).await.unwrap();
    bench.time.advance(MINUTE);
    bench.put("three", MINUTE).await.unwrap();
    assert_eq!(bench.contents(bench.scope).await, ["three", "two"], "what has expired takes no room");
}

async fn removing_says_what_was_there(bench: Bench) {
    let one = bench.put("one", MINUTE).await.unwrap().id;
    let two = bench.put("two", MINUTE).await.unwrap().id;
    let absent = Uuid::new_v4();
    assert!(bench.remove(bench.other, &[one, two]).await.is_empty());
    assert!(bench.remove(bench.scope, &[]).await.is_empty());
    assert_eq!(bench.remove(bench.scope, &[one, absent]).await, [one]);
    assert!(bench.remove(bench.scope, &[one]).await.is_empty());
    assert_eq!(bench.contents(bench.scope).await, ["two"]);
}

async fn concurrent_puts_of_one_content_add_up(bench: Bench) {
    let puts = futures::future::join_all((0..20).map(|_| bench.put("tea", MINUTE))).await;
    let ids: HashSet<Uuid> = puts.iter().map(|put| put.as_ref().unwrap().id).collect();
    assert_eq!(ids.len(), 1);
    let [memory] = bench.working.list(bench.scope, bench.now()).await.unwrap().try_into().unwrap();
    assert_eq!(memory.support, 20);
}

async fn concurrent_puts_never_exceed_the_cap(bench: Bench) {
    let contents: Vec<String> = (0..12).map(|n| format!("fact {n}")).collect();
    let puts = futures::future::join_all(contents.iter().map(|content| bench.put(content, MINUTE))).await;
    assert_eq!(puts.iter().filter(|put| put.is_ok()).count(), 5);
    assert_eq!(bench.contents(bench.scope).await.len(), 5);
}

async fn a_life_beyond_the_calendar_is_refused(bench: Bench) {
    let error = bench.put("for ever", Duration::MAX).await.unwrap_err();
    assert_eq!(error.field(), Some("ttl_seconds"));
}

async fn it_answers_a_ping(bench: Bench) {
    bench.working.ping().await.unwrap();
}

#[tokio::test]
async fn installations_that_share_a_redis_do_not_meet() {
    let (one, two) = (Bench::redis(DEFAULT_CAP).await, Bench::redis(DEFAULT_CAP).await);
    assert_eq!(one.scope, two.scope, "each database numbers its scopes for itself");
    let id = one.put("one's own", MINUTE).await.unwrap().id;
    assert_eq!(two.contents(two.scope).await, Vec::<String>::new());
    assert!(two.remove(two.scope, &[id]).await.is_empty());
    assert_eq!(one.contents(one.scope).await, ["one's own"]);
}

#[tokio::test]
async fn pruning_deletes_the_expired_alone() {
    let bench = Bench::postgres(DEFAULT_CAP).await;
    for content in ["one", "two", "three"] {
        bench.put(content, MINUTE).await.unwrap();
    }
    bench.put("long", 2 * MINUTE).await.unwrap();
    bench.time.advance(MINUTE);
    assert_eq!(bench.working.prune(bench.now(), 2).await.unwrap(), 2);
    assert_eq!(bench.working.prune(bench.now(), 2).await.unwrap(), 1);
    assert_eq!(bench.working.prune(bench.now(), 2).await.unwrap(), 0);
    assert_eq!(bench.contents(bench.scope).await, ["long"]);
}

#[tokio::test]
async fn redis_itself_forgets_what_has_expired() {
    let bench = Bench::redis(DEFAULT_CAP).await;
    bench.put("short", Duration::from_millis(50)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    // The fixed clock has not moved: it is Redis that dropped it.
    assert!(bench.contents(bench.scope).await.is_empty());
}

#[tokio::test]
async fn an_absent_redis_is_unavailable() {
    let working = Working::redis("redis://:hunter2@127.0.0.1:1", Uuid::nil(), DEFAULT_CAP).unwrap();
    let error = working.ping().await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(!format!("{working:?} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_hanging_redis_does_not_hang_the_call() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let working = Working::redis(&url, Uuid::nil(), DEFAULT_CAP).unwrap();
    let start = Instant::now();
    assert_eq!(working.list(ScopeId(1), DateTime::UNIX_EPOCH).await.unwrap_err().code(), "unavailable");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_bad_redis_url_is_refused_without_being_repeated() {
    let error = Working::redis("http://:hunter2@localhost", Uuid::nil(), DEFAULT_CAP).unwrap_err();
    assert_eq!(error.field(), Some("REDIS_URL"));
    assert!(!format!("{error:?}").contains("hunter2"));
}
