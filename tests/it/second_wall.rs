//! Row-level security holds where a statement's own filter does not: every function of `db` that works in one scope is
//! called for one scope within the wall of another.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use memser::api::{ListStatus, StoreAnswer};
use memser::db::list::Page;
use memser::db::memory::NewMemory;
use memser::db::recall::{Asked, Filter, ScopeSize};
use memser::db::scope::CounterChange;
use memser::db::space::Space;
use memser::db::{
    Db, Pooler, ScopeId, Tx, conflict, consolidation, embedding, export, forget, history, idempotency,
    import, job, list, memory, recall, scope, working,
};
use memser::error::Result;
use memser::model::{Memory, Tier};
use memser::port::line::{ConflictLine, MemoryLine};
use memser::text;
use nix::sys::signal::Signal;
use pgvector::Vector;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use uuid::Uuid;

use crate::support::database::{TestDatabase, scoped_tables};
use crate::support::files;
use crate::support::process::{Running, memser};
use crate::support::{ADMIN, TestApp};

/// Every function of `src/db` with a transaction and a scope. The order matters: what deletes comes last.
const FUNCTIONS: [&str; 69] = [
    "export::memories",
    "export::superseded",
    "export::origins",
    "export::conflicts",
    "import::known",
    "import::places",
    "import::link",
    "consolidation::queue",
    "consolidation::members",
    "consolidation::nearest",
    "consolidation::origins",
    "consolidation::contested",
    "conflict::standing",
    "scope::unconsolidated",
    "embedding::is_pending",
    "embedding::of_text",
    "embedding::likeness",
    "conflict::open_pairs",
    "conflict::page",
    "history::chain_to",
    "history::told_before",
    "history::active_end",
    "forget::select",
    "forget::lock",
    "forget::kept_snapshots",
    "forget::derived",
    "idempotency::find",
    "list::page",
    "memory::active",
    "memory::active_with_hash",
    "memory::stated",
    "memory::fetch",
    "memory::fetch_related",
    "recall::size",
    "recall::by_words",
    "recall::by_meaning",
    "scope::holds",
    "working::count",
    "working::list",
    "working::lock",
    "working::refresh",
    "memory::support",
    "memory::insert",
    "import::insert",
    "import::add_origins",
    "import::add_conflicts",
    "conflict::resolve",
    "conflict::put",
    "history::supersede",
    "history::end_earlier",
    "history::restore",
    "consolidation::add_origins",
    "consolidation::take_sources",
    "consolidation::reinforce",
    "consolidation::take_over",
    "consolidation::looked_at",
    "consolidation::look_again",
    "history::retire",
    "history::reactivate_originals",
    "forget::erase_snapshots",
    "idempotency::keep",
    "job::count_failure",
    "job::rest_until",
    "job::clear_failures",
    "scope::count",
    "working::insert",
    "working::remove",
    "forget::delete",
    "tx::narrow_to",
];

/// What is stored in the scope that is called for.
struct Target {
    scope: ScopeId,
    ids: Vec<Uuid>,
    fact: Uuid,
    origin: Uuid,
    /// Superseded by a conflict, with when it happened, and by what.
    past: (Uuid, [u8; 32], DateTime<Utc>),
    successor: Uuid,
    /// An open conflict and its newer memory.
    pair: (Uuid, Uuid),
    forgotten: Uuid,
    content: String,
    hash: [u8; 32],
    vector: Vec<f32>,
    space: Space,
    body: [u8; 32],
    working: (Vec<u8>, Uuid),
    answer: StoreAnswer,
    now: DateTime<Utc>,
}

/// Calls a function; whether it saw or said that it did anything. `None` for one that does not say.
#[expect(clippy::too_many_lines, reason = "a table: one entry for each function")]
async fn call(name: &str, tx: &mut Tx, of: &Target) -> Result<Option<bool>> {
    let (at, now, ids) = (of.scope, of.now, &of.ids[..]);
    let size = ScopeSize { memories: 5, average_tokens: 4.0, vectors: 10 };
    let filter = Filter::default();
    let terms: Vec<String> = text::analyse(&of.content).terms.into_iter().map(|(term, _)| term).collect();
    Ok(match name {
        "consolidation::queue" => {
            Some(!consolidation::queue(tx, at, of.space, Uuid::nil(), 10).await?.is_empty())
        }
        "consolidation::members" => Some(!consolidation::members(tx, at, of.space, ids).await?.is_empty()),
        "consolidation::nearest" => {
            let near = consolidation::nearest(tx, at, of.space, &[&of.vector], size, 10).await?;
            Some(!near[0].is_empty())
        }
        "consolidation::origins" => Some(!consolidation::origins(tx, at, &[of.fact]).await?.is_empty()),
        "consolidation::contested" => {
            Some(!consolidation::contested(tx, at, &[of.pair.1, of.successor]).await?.is_empty())
        }
        "consolidation::take_sources" => {
            consolidation::take_sources(tx, at, ids[0]).await?;
            None
        }
        "consolidation::reinforce" => {
            let evidence = consolidation::Evidence {
                tags: vec!["changed".to_owned()],
                metadata: BTreeMap::new(),
                confidence: 1.0,
                support: 1,
                last: now,
            };
            consolidation::reinforce(tx, at, of.fact, &evidence).await?;
            None
        }
        "consolidation::take_over" => {
            consolidation::take_over(tx, at, of.fact, ids[0]).await?;
            None
        }
        "consolidation::looked_at" => {
            consolidation::looked_at(tx, at, ids).await?;
            None
        }
        "consolidation::look_again" => Some(consolidation::look_again(tx, at).await? > 0),
        "scope::unconsolidated" => Some(scope::unconsolidated(tx, at).await? > 0),
        "consolidation::add_origins" => {
            consolidation::add_origins(tx, at, of.ids[0], &[of.ids[1]]).await?;
            None
        }
        "embedding::is_pending" => Some(!embedding::is_pending(tx, of.space.id, at, ids[0]).await?),
        "embedding::of_text" => {
            Some(embedding::of_text(tx, of.space, at, &of.hash, &of.content).await?.is_some())
        }
        "embedding::likeness" => {
            Some(!embedding::likeness(tx, of.space, at, ids, &of.vector).await?.is_empty())
        }
        "conflict::page" => Some(!conflict::page(tx, at, None, 10).await?.is_empty()),
        "conflict::open_pairs" => Some(!conflict::open_pairs(tx, at, of.pair.1).await?.is_empty()),
        "conflict::standing" => Some(!conflict::standing(tx, at, &[of.pair.1]).await?.is_empty()),
        "conflict::put" => {
            let standing = |new, old, kept_by: Option<&str>| conflict::Standing {
                pair: conflict::Pair { id: Uuid::new_v4(), new, old },
                similarity: Some(0.9),
                kept_by: kept_by.map(str::to_owned),
            };
            let pairs = [standing(ids[0], ids[1], None), standing(ids[1], ids[0], Some("test"))];
            conflict::put(tx, at, &pairs, now).await?;
            None
        }
        "conflict::resolve" => {
            let how = conflict::Resolved { resolution: "keep_both", by: "test", at: now };
            conflict::resolve(tx, at, &[of.pair.0], how).await?;
            None
        }
        "history::chain_to" => Some(!history::chain_to(tx, at, of.successor, of.past.2).await?.is_empty()),
        "history::told_before" => Some(history::told_before(tx, at, &of.past.1, of.past.2).await?.is_some()),
        "history::active_end" => Some(history::active_end(tx, at, of.past.0).await?.is_some()),
        "history::supersede" => {
            Some(history::supersede(tx, at, &[of.ids[1]], ids[0], "conflict", now).await? > 0)
        }
        "history::end_earlier" => {
            history::end_earlier(tx, at, &[of.past.0], ids[0], now).await?;
            None
        }
        "history::restore" => {
            history::restore(tx, at, of.past.0, true).await?;
            None
        }
        "history::retire" => {
            history::retire(tx, at, &[of.fact], now).await?;
            None
        }
        "history::reactivate_originals" => {
            Some(!history::reactivate_originals(tx, at, &[of.fact, ids[0]], &[]).await?.is_empty())
        }
        "forget::lock" => Some(!forget::lock(tx, at, ids).await?.is_empty()),
        "forget::kept_snapshots" => {
            Some(!forget::kept_snapshots(tx, at, &forget::Selector::default()).await?.is_empty())
        }
        "forget::erase_snapshots" => {
            forget::erase_snapshots(tx, at, &[of.forgotten]).await?;
            None
        }
        "forget::select" => Some(!forget::select(tx, at, &forget::Selector::default(), 10).await?.is_empty()),
        "forget::derived" => Some(!forget::derived(tx, at, &[of.origin]).await?.is_empty()),
        "forget::delete" => {
            forget::delete(tx, at, ids, forget::Forgetting { by: "test", at: now, erase: false }).await?;
            None
        }
        "idempotency::find" => Some(idempotency::find(tx, at, "key", &of.body, now).await?.is_some()),
        "idempotency::keep" => {
            idempotency::keep(tx, at, "another", &of.body, &of.answer, now, now).await?;
            None
        }
        "list::page" => {
            let page = Page {
                id: None,
                tier: None,
                tags: vec![],
                any_tag: false,
                source: None,
                status: ListStatus::Active,
                ascending: false,
                after: None,
                limit: 10,
            };
            Some(!list::page(tx, at, of.space.id, &page).await?.is_empty())
        }
        "memory::stated" => Some(memory::stated(tx, at, &of.hash).await?.is_some()),
        "job::count_failure" => {
            job::count_failure(tx, at, "timeout", now).await?;
            None
        }
        "job::rest_until" => {
            job::rest_until(tx, at, now + TimeDelta::days(1)).await?;
            None
        }
        "job::clear_failures" => {
            job::clear_failures(tx, at).await?;
            None
        }
        "memory::active" => Some(!memory::active(tx, at, ids).await?.is_empty()),
        "memory::active_with_hash" => Some(memory::active_with_hash(tx, at, &of.hash).await?.is_some()),
        "memory::fetch_related" => Some(!memory::fetch_related(tx, at, ids).await?.is_empty()),
        "memory::fetch" => Some(!memory::fetch(tx, at, ids).await?.is_empty()),
        "memory::support" => Some(memory::support(tx, at, ids[0], Some("s"), 0.1, now).await?.0 > 0),
        "memory::insert" => {
            let memory = new_memory("An intruder's text", now);
            let analysis = text::analyse(&memory.content);
            let new = NewMemory {
                memory: &memory,
                content_hash: text::content_hash(&memory.content),
                analysis: &analysis,
                embedding: Some((of.space.id, &of.vector)),
            };
            memory::insert(tx, at, &new).await?;
            None
        }
        "export::memories" => Some(!export::memories(tx, at, "", Uuid::nil(), 10).await?.is_empty()),
        "export::superseded" => Some(!export::superseded(tx, at, "", Uuid::nil(), 10).await?.is_empty()),
        "export::origins" => {
            Some(!export::origins(tx, at, "", (Uuid::nil(), Uuid::nil()), 10).await?.is_empty())
        }
        "export::conflicts" => Some(!export::conflicts(tx, at, "", Uuid::nil(), 10).await?.is_empty()),
        "import::known" => Some(!import::known(tx, at, ids, &[of.hash.to_vec()]).await?.is_empty()),
        "import::places" => {
            let places = import::places(tx, at, &["places".to_owned()], &[7]).await?;
            Some(places[0].is_taken || places[0].last > 0)
        }
        "import::link" => Some(!import::link(tx, at, &[of.past.0], &[of.successor]).await?.is_empty()),
        "import::insert" => {
            let memory = new_line("Another intruder's text", now);
            let analysis = text::analyse(&memory.content);
            let content_hash = text::content_hash(&memory.content);
            import::insert(tx, at, &[import::NewRow { memory, content_hash, analysis }]).await?;
            None
        }
        "import::add_origins" => {
            Some(!import::add_origins(tx, at, &[of.successor], &[of.ids[1]]).await?.is_empty())
        }
        "import::add_conflicts" => {
            let line = ConflictLine {
                scope: String::new(),
                id: Uuid::new_v4(),
                new: of.successor,
                old: of.ids[1],
                similarity: None,
                status: "open".to_owned(),
                created_at: now,
                resolution: None,
                resolved_by: None,
                resolved_at: None,
            };
            Some(!import::add_conflicts(tx, at, &[&line]).await?.is_empty())
        }
        "recall::size" => Some(recall::size(tx, at).await?.0.memories > 0),
        "recall::by_words" => {
            let words: Vec<i32> = (0..).take(terms.len()).collect();
            let asked = Asked { terms: &terms, words: &words, k1: 1.2, b: 0.75 };
            Some(!recall::by_words(tx, at, asked, None, &filter, 10).await?.hits.is_empty())
        }
        "recall::by_meaning" => {
            let exact = recall::by_meaning(tx, at, of.space, &of.vector, size, &filter, 10).await?;
            let large = ScopeSize { memories: 1_000_000, vectors: 1_000_000, ..size };
            let indexed = recall::by_meaning(tx, at, of.space, &of.vector, large, &filter, 10).await?;
            assert_eq!(exact.is_empty(), indexed.is_empty());
            Some(!exact.is_empty())
        }
        "scope::holds" => Some(scope::holds(tx, at).await?.0 > 0),
        "scope::count" => {
            scope::count(tx, at, CounterChange { memories: 7, ..CounterChange::default() }).await?;
            None
        }
        "working::lock" => {
            working::lock(tx, at).await?;
            Some(false)
        }
        "working::count" => Some(working::count(tx, at, now).await? > 0),
        "working::list" => Some(!working::list(tx, at, now).await?.is_empty()),
        "working::refresh" => Some(working::refresh(tx, at, &of.working.0, now, now).await?.is_some()),
        "working::insert" => {
            working::insert(tx, at, b"hash", (Uuid::new_v4(), 1), &json!({}), now).await?;
            None
        }
        "working::remove" => Some(!working::remove(tx, at, &[of.working.1]).await?.is_empty()),
        // Who can name a scope can enter it: what it is for. It sees nothing by itself.
        "tx::narrow_to" => Some(false),
        _ => panic!("{name} has no call"),
    })
}

fn new_line(content: &str, now: DateTime<Utc>) -> MemoryLine {
    MemoryLine {
        scope: String::new(),
        id: Uuid::new_v4(),
        tier: Tier::Episodic,
        content: content.to_owned(),
        tags: vec![],
        source: None,
        seq: Some(1),
        actor: None,
        metadata: BTreeMap::new(),
        confidence: 0.5,
        support: 1,
        sources: BTreeMap::from([(String::new(), 1)]),
        created_at: now,
        occurred_at: None,
        valid_from: now,
        valid_to: None,
        superseded_reason: None,
        access_count: 1,
        last_accessed_at: Some(now),
        restated_at: None,
        decayed_at: None,
        kept_apart: false,
        looked_at: false,
    }
}

pub(crate) fn new_memory(content: &str, now: DateTime<Utc>) -> Memory {
    Memory {
        id: Uuid::new_v4(),
        tier: Tier::Episodic,
        content: content.to_owned(),
        tags: vec![],
        source: None,
        actor: None,
        metadata: std::collections::BTreeMap::new(),
        confidence: 0.5,
        support: 1,
        created_at: now,
        occurred_at: None,
        valid_from: now,
        valid_to: None,
        superseded_by: None,
        superseded_reason: None,
        expires_at: None,
    }
}

/// Every row of every table with a scope, but for what is not told by a row's content.
async fn everything(database: &mut PgConnection) -> String {
    let tables = scoped_tables(&mut *database).await;
    let mut all = String::new();
    for table in tables {
        let rows =
            format!("select coalesce(string_agg(t::text, E'\\n' order by t::text), '') from {table} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut *database).await.unwrap();
        all.extend([table, rows].map(|part| part + "\n"));
    }
    all
}

async fn target(app: &TestApp, name: &str) -> Target {
    let client = app.admin();
    let mut ids = Vec::new();
    let content = "Anna likes green tea";
    for text in [content, "The bridge opens at noon", "Ben plays the cello", "Ben plays music"] {
        ids.push(client.store(name, text).await.parse().unwrap());
    }
    let keyed = json!({ "scope": name, "content": "Kept under a key", "idempotency_key": "key" });
    let answer = client.ok("store_memory", keyed).await;
    client.ok("store_memory", json!({ "scope": name, "content": "For a while", "ttl_seconds": 600 })).await;
    let (origin, fact) = (ids[2], ids[3]);
    let placed = json!({ "scope": name, "content": "The archive has seven shelves", "source": "places" });
    client.ok("store_memory", placed).await;
    let mut ports = Vec::new();
    for (port, policy) in [(8080, "newest_wins"), (8081, "newest_wins"), (8082, "flag")] {
        let arguments = json!({
            "scope": name, "content": format!("The staging server listens on port {port}"), "on_conflict": policy,
            "occurred_at": format!("2026-01-0{}T00:00:00Z", port - 8079),
        });
        ports.push(client.ok("store_memory", arguments).await["id"].as_str().unwrap().parse().unwrap());
    }
    let forgotten = client.store(name, "Forget this").await;
    client.ok("forget_memory", json!({ "scope": name, "memory_id": forgotten })).await;
    let mut database = app.database.connect().await;
    let scope: i64 = sqlx::query_scalar("select scope_id from scopes where name = $1")
        .bind(name)
        .fetch_one(&mut database)
        .await
        .unwrap();
    sqlx::query("insert into memory_origin values ($1, $2, $3)")
        .bind(scope)
        .bind(fact)
        .bind(origin)
        .execute(&mut database)
        .await
        .unwrap();
    sqlx::query(
        "update memories set superseded_by = $2, superseded_reason = 'consolidated', valid_to = valid_from
          where id = $1",
    )
    .bind(origin)
    .bind(fact)
    .execute(&mut database)
    .await
    .unwrap();
    let pair: Uuid = sqlx::query_scalar("select conflict_id from conflicts where new_id = $1")
        .bind(ports[2])
        .fetch_one(&mut database)
        .await
        .unwrap();
    let (space, vector): (i32, Vector) =
        sqlx::query_as("select space_id, embedding from memory_embedding where memory_id = $1")
            .bind(ids[0])
            .fetch_one(&mut database)
            .await
            .unwrap();
    let body: Vec<u8> = sqlx::query_scalar("select body_hash from idempotency_keys where scope_id = $1")
        .bind(scope)
        .fetch_one(&mut database)
        .await
        .unwrap();
    let working = sqlx::query_as("select content_hash, id from working_memories where scope_id = $1")
        .bind(scope)
        .fetch_one(&mut database)
        .await
        .unwrap();
    let vector = vector.to_vec();
    Target {
        scope: ScopeId(scope),
        fact,
        origin,
        past: (
            ports[0],
            text::content_hash("The staging server listens on port 8080"),
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ),
        successor: ports[1],
        pair: (pair, ports[2]),
        forgotten: forgotten.parse().unwrap(),
        content: content.to_owned(),
        hash: text::content_hash(content),
        space: Space { id: space, dimensions: i32::try_from(vector.len()).unwrap() },
        vector,
        ids,
        body: body.try_into().unwrap(),
        working,
        answer: serde_json::from_value(answer).unwrap(),
        now: crate::support::start_of_time(),
    }
}

#[tokio::test]
async fn no_function_of_db_sees_or_changes_a_scope_within_the_wall_of_another() {
    let app = TestApp::start().await;
    let foreign = target(&app, "user:2").await;
    let own = target(&app, "user:1").await;
    app.engine.flush().await;
    let mut database = app.database.connect().await;
    let before = everything(&mut database).await;
    let db = Db::new(app.database.url.parse().unwrap(), 2, Pooler::None);
    for name in FUNCTIONS {
        let mut tx = Tx::for_scope(&db, own.scope).await.unwrap();
        // Refused by the wall, or nothing there to see.
        if let Ok(seen) = call(name, &mut tx, &foreign).await {
            assert_ne!(seen, Some(true), "{name} sees a foreign scope");
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(everything(&mut database).await, before);
    // The same calls within their own wall, so that none of them was refused for another reason.
    for name in FUNCTIONS.iter().filter(|name| !["working::lock", "tx::narrow_to"].contains(name)) {
        let before = everything(&mut database).await;
        let mut tx = Tx::for_scope(&db, own.scope).await.unwrap();
        let seen = call(name, &mut tx, &own).await.unwrap();
        tx.commit().await.unwrap();
        let changed = everything(&mut database).await != before;
        assert!(seen.unwrap_or(changed), "{name} does nothing here, so that the test above says nothing");
    }
    db.close().await;
    app.stop().await;
}

#[test]
fn every_function_that_works_in_a_scope_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/db");
    let mut found = Vec::new();
    for entry in files(&folder) {
        // A module's parts show their functions as the module's own.
        let module = entry.strip_prefix(&folder).unwrap().iter().next().unwrap().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        let text = fs::read_to_string(&entry).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (at, _) in code.match_indices("fn ") {
            // Whoever else may call it: `pub`, `pub(crate)`, `pub(super)`, and so on.
            let line = code[..at].rsplit('\n').next().unwrap().trim();
            let (name, rest) = code[at + 3..].split_once('(').unwrap_or_default();
            let name = name.split('<').next().unwrap();
            let arguments = rest.split_once(") -> ").unwrap_or_default().0;
            let within = arguments.contains("&mut Tx") || module == "tx" && arguments.contains("&mut self");
            if line.starts_with("pub") && within && arguments.contains("ScopeId") {
                found.push(format!("{module}::{name}"));
            }
        }
    }
    // They take a lock by number or keep ids for the commit, and touch no table.
    found.retain(|name| !["tx::lock_scope", "tx::listed", "tx::changed"].contains(&name.as_str()));
    found.sort();
    let mut tested = FUNCTIONS.to_vec();
    tested.sort_unstable();
    assert_eq!(found, tested);
}

/// The statements of `.sqlx` that read or change a table with a scope.
fn statements(tables: &[String]) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let described: Value =
            serde_json::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
        let statement = described["query"].as_str().unwrap();
        let words: Vec<&str> = statement.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        if tables.iter().any(|table| words.contains(&table.as_str())) {
            found.push(statement.to_owned());
        }
    }
    found.sort();
    found
}

/// Every node of a plan.
fn nodes<'a>(plan: &'a Value, into: &mut Vec<&'a Value>) {
    into.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, into);
    }
}

#[tokio::test]
async fn every_statement_is_walled_and_no_index_waits_for_an_operator_that_leaks() {
    let app = TestApp::start().await;
    let mut database = app.database.connect_as_memser().await;
    let tables = scoped_tables(&mut database).await;
    assert!(tables.len() > 10, "{tables:?}");
    // Whatever an index can do, it does: what is left out of its condition could not be in it.
    for setting in ["set memser.scope_id = '1'", "set enable_seqscan = off", "set enable_bitmapscan = off"] {
        sqlx::raw_sql(setting).execute(&mut database).await.unwrap();
    }
    let (mut scans, mut by_scope) = (0, 0);
    let statements = statements(&tables);
    assert!(statements.len() > 40, "{}", statements.len());
    for statement in &statements {
        let explain = format!("explain (generic_plan, format json) {statement}");
        let plan: Vec<sqlx::postgres::PgRow> = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(&mut database)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        let plan: Value = sqlx::Row::get::<sqlx::types::Json<Value>, _>(&plan[0], 0).0;
        let mut all = Vec::new();
        nodes(&plan[0]["Plan"], &mut all);
        for node in all {
            let Some(table) =
                node["Relation Name"].as_str().filter(|table| tables.iter().any(|known| known == table))
            else {
                continue;
            };
            if node["Node Type"] == "ModifyTable" {
                continue;
            }
            scans += 1;
            let index = node["Index Cond"].as_str().unwrap_or_default();
            let wall = format!("{index} {}", node["Filter"].as_str().unwrap_or_default());
            assert!(wall.contains("InitPlan"), "{statement}\nreads {table} without the wall: {node}");
            for operator in ["@>", "<@", "&&", "~", "@@", "<->", "<=>"] {
                assert!(!index.contains(operator), "{statement}: {index}");
            }
            by_scope += usize::from(index.contains("scope_id ="));
        }
    }
    assert!(scans > 40 && by_scope > 30, "{scans} scans, {by_scope} by scope");
    // Whatever operator a condition on a B-tree uses is one of its family.
    let leaky: Vec<String> = sqlx::query_scalar(
        "select distinct i.relname || ': ' || p.proname
           from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
           join pg_am m on m.oid = i.relam and m.amname = 'btree'
           cross join unnest(x.indclass) as c (opclass)
           join pg_opclass o on o.oid = c.opclass
           join pg_amop a on a.amopfamily = o.opcfamily and a.amoplefttype = o.opcintype
                         and a.amoprighttype = o.opcintype
           join pg_operator r on r.oid = a.amopopr join pg_proc p on p.oid = r.oprcode
          where t.relname = any($1) and not p.proleakproof order by 1",
    )
    .bind(tables)
    .fetch_all(&mut database)
    .await
    .unwrap();
    assert_eq!(leaky, Vec::<String>::new());
    app.stop().await;
}

#[tokio::test]
async fn a_role_that_the_wall_does_not_bind_is_warned_of_at_the_start() {
    let database = TestDatabase::create().await;
    let superuser = database.superuser.to_url_lossy().to_string();
    for (url, warned) in [(superuser, true), (database.url.clone(), false)] {
        let settings = [("DATABASE_URL", url.as_str()), ("MEMSER_TOKEN", ADMIN)];
        let running = Running::run(memser(&[], &settings));
        running.signal(Signal::SIGTERM);
        let (status, _, logged) = running.end().await;
        assert_eq!(status, Some(0), "{logged}");
        assert_eq!(logged.contains("bypasses row-level security"), warned, "{logged}");
    }
}
