//! One scope never sees another: neither through a tool nor past it.

use memser::db::{Db, Pooler, ScopeId, Tx};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row};

use crate::support::TestApp;
use crate::support::client::contents;
use crate::support::database::scoped_tables;

const WRITER: &str = "writer-of-user-1";
const READER: &str = "reader-of-user-1-writer-of-user-3";

const TEXTS: [&str; 3] = ["Anna likes green tea", "Anna really likes green tea", "The bridge opens at noon"];

/// What a scope holds, byte for byte.
async fn state(app: &TestApp, scope: &str) -> Vec<String> {
    let mut connection = app.database.connect().await;
    sqlx::query_scalar(
        "select row_to_json(m)::text from memories m join scopes using (scope_id) where name = $1 order by id",
    )
    .bind(scope)
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

fn calls(memory_id: &str) -> [(&'static str, Value); 7] {
    [
        ("store_memory", json!({ "content": "Intruder" })),
        ("store_memory", json!({ "content": "Intruder", "ttl_seconds": 60 })),
        ("recall_memory", json!({ "query": "tea" })),
        ("forget_memory", json!({ "all": true })),
        ("forget_memory", json!({ "memory_id": memory_id })),
        ("list_memories", json!({})),
        ("consolidate_memories", json!({})),
    ]
}

#[tokio::test]
async fn no_tool_reaches_a_scope_that_is_not_granted() {
    let app = TestApp::builder().token(WRITER, &["user:1=write"]).start().await;
    let (admin, client) = (app.admin(), app.client(WRITER));
    let foreign = admin.store("user:2", TEXTS[0]).await;
    let before = state(&app, "user:2").await;
    assert_eq!(before.len(), 1);
    for (tool, mut arguments) in calls(&foreign) {
        arguments["scope"] = "user:2".into();
        assert_eq!(client.refused(tool, arguments).await["code"], "scope_not_granted", "{tool}");
    }
    assert_eq!(state(&app, "user:2").await, before);
    app.engine.flush().await;
    let mut connection = app.database.connect().await;
    let denied: Vec<String> = sqlx::query_scalar(
        "select action from memory_audit_log where subject = $1 and scope = 'user:2'
            and outcome = 'scope_not_granted' order by audit_id",
    )
    .bind(WRITER)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(denied, calls("").map(|(tool, _)| tool.to_owned()));
    app.stop().await;
}

#[tokio::test]
async fn the_same_texts_in_two_scopes_never_mix() {
    let app = TestApp::builder().token(WRITER, &["user:1=write"]).start().await;
    let (admin, client) = (app.admin(), app.client(WRITER));
    for text in TEXTS {
        admin.store("user:2", text).await;
        // Without a scope the token's only one is meant.
        let stored = client.ok("store_memory", json!({ "content": text })).await;
        assert_eq!(stored["outcome"], "stored", "a duplicate of another scope's memory");
    }
    let before = state(&app, "user:2").await;
    assert_eq!(before.len(), TEXTS.len());
    let found = client.ok("recall_memory", json!({ "query": "green tea bridge" })).await;
    let own = state(&app, "user:1").await.concat();
    for memory in found["memories"].as_array().unwrap() {
        assert!(own.contains(memory["id"].as_str().unwrap()), "{memory}");
    }
    assert_eq!(contents(&client.ok("list_memories", json!({})).await).len(), TEXTS.len());
    client.ok("consolidate_memories", json!({})).await;
    client.ok("forget_memory", json!({ "all": true })).await;
    assert_eq!(contents(&client.ok("list_memories", json!({})).await).len(), 0);
    assert_eq!(state(&app, "user:2").await, before);
    app.engine.flush().await;
    let mut connection = app.database.connect().await;
    let allowed: i64 = sqlx::query_scalar(
        "select count(distinct action) from memory_audit_log
          where subject = $1 and scope = 'user:1' and outcome = 'ok'",
    )
    .bind(WRITER)
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(allowed, 5);
    app.stop().await;
}

#[tokio::test]
async fn a_reader_reads_and_changes_nothing() {
    let app = TestApp::builder().token(READER, &["user:1=read", "user:3=write"]).start().await;
    let (admin, client) = (app.admin(), app.client(READER));
    let id = admin.store("user:1", TEXTS[0]).await;
    let before = state(&app, "user:1").await;
    for (tool, mut arguments) in calls(&id) {
        arguments["scope"] = "user:1".into();
        if matches!(tool, "recall_memory" | "list_memories") {
            assert_eq!(contents(&client.ok(tool, arguments).await), [TEXTS[0]]);
        } else {
            assert_eq!(client.refused(tool, arguments).await["code"], "action_not_granted", "{tool}");
        }
    }
    assert_eq!(state(&app, "user:1").await, before);
    app.stop().await;
}

#[tokio::test]
async fn the_second_wall_stands_where_a_statement_forgets_its_scope() {
    let app = TestApp::start().await;
    let admin = app.admin();
    for scope in ["user:1", "user:2"] {
        let port = |port: u32| {
            json!({ "scope": scope, "content": format!("The server listens on port {port}"),
            "on_conflict": "flag", "idempotency_key": format!("k{port}") })
        };
        for number in [8080, 8081] {
            admin.ok("store_memory", port(number)).await;
        }
        let working = json!({ "scope": scope, "content": "For a minute", "ttl_seconds": 60 });
        admin.ok("store_memory", working).await;
        let gone = admin.store(scope, "Forget this one").await;
        admin.ok("forget_memory", json!({ "scope": scope, "memory_id": gone })).await;
        admin.store(scope, TEXTS[0]).await;
        admin.store(scope, TEXTS[1]).await;
        admin.recall(scope, "port").await;
    }
    app.engine.flush().await;
    let mut superuser = app.database.connect().await;
    let tables = scoped_tables(&mut superuser).await;
    assert!(tables.len() >= 11, "{tables:?}");
    // Consolidation is not what is tested here.
    sqlx::raw_sql(
        "insert into memory_origin select a.scope_id, a.id, b.id from memories a
           join memories b on a.scope_id = b.scope_id and a.id < b.id;
         insert into consolidation_failures select scope_id, 1, 'timeout', now(), now() from scopes",
    )
    .execute(&mut superuser)
    .await
    .unwrap();
    let scopes: Vec<i64> = sqlx::query_scalar("select scope_id from scopes order by scope_id")
        .fetch_all(&mut superuser)
        .await
        .unwrap();
    let [a, b] = scopes[..] else { panic!("{scopes:?}") };
    let db = Db::new(app.database.url.parse().unwrap(), 2, Pooler::None);
    let mut outside = app.database.connect_as_memser().await;
    for table in &tables {
        let count = |of: i64| format!("select count(*) from {table} where scope_id = {of}");
        let own: i64 = sqlx::query_scalar(AssertSqlSafe(count(a))).fetch_one(&mut superuser).await.unwrap();
        let others: i64 =
            sqlx::query_scalar(AssertSqlSafe(count(b))).fetch_one(&mut superuser).await.unwrap();
        assert!(own > 0 && others > 0, "{table} has nothing to protect");
        let all = format!("select count(*), min(scope_id), max(scope_id) from {table}");
        let mut tx = Tx::for_scope(&db, ScopeId(a)).await.unwrap();
        let seen = sqlx::query(AssertSqlSafe(all.clone())).fetch_one(tx.conn()).await.unwrap();
        assert_eq!((seen.get(0), seen.get(1), seen.get(2)), (own, a, a), "{table}");
        let column = if table == "scopes" { "name = name" } else { "scope_id = scope_id" };
        let updated = sqlx::query(AssertSqlSafe(format!("update {table} set {column}")))
            .execute(tx.conn())
            .await
            .unwrap();
        assert_eq!(updated.rows_affected(), own.unsigned_abs(), "{table}");
        if table != "scopes" {
            let moved = sqlx::query(AssertSqlSafe(format!("update {table} set scope_id = {b}")))
                .execute(tx.conn())
                .await;
            let error = moved.unwrap_err().to_string();
            assert!(error.contains("row-level security"), "{table}: {error}");
        }
        drop(tx);
        if table != "scopes" && table != "memories" {
            let mut tx = Tx::for_scope(&db, ScopeId(a)).await.unwrap();
            let deleted =
                sqlx::query(AssertSqlSafe(format!("delete from {table}"))).execute(tx.conn()).await.unwrap();
            assert_eq!(deleted.rows_affected(), own.unsigned_abs(), "{table}");
        }
        let unset = sqlx::query(AssertSqlSafe(all)).fetch_one(&mut outside).await.unwrap();
        assert_eq!(unset.get::<i64, _>(0), 0, "{table} is readable without a scope");
    }
    db.close().await;
    app.stop().await;
}

#[tokio::test]
async fn every_scoped_table_is_walled_and_keyed_by_scope() {
    let app = TestApp::start().await;
    let mut connection = app.database.connect().await;
    let open: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class
          where relname = any($1) and relkind = 'r' and not (relrowsecurity and relforcerowsecurity)",
    )
    .bind(scoped_tables(&mut connection).await)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(open, Vec::<String>::new());
    // Names are unique over all scopes, and a space belongs to none.
    let unscoped: Vec<String> = sqlx::query_scalar(
        "select conname::text from pg_constraint k
           join pg_attribute a on a.attrelid = k.conrelid and a.attname = 'scope_id'
          where k.contype in ('p', 'u', 'f') and not a.attnum = any(k.conkey) order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(unscoped, ["memory_embedding_space_id_fkey", "scopes_name_key"]);
    app.stop().await;
}

#[tokio::test]
async fn a_row_for_another_scope_cannot_be_written_from_within_one() {
    let app = TestApp::start().await;
    app.admin().store("user:1", "mine").await;
    app.admin().store("user:2", "theirs").await;
    let mut connection = app.database.connect_as_memser().await;
    let scopes: Vec<i64> =
        sqlx::query_scalar("select scope_id from scopes").fetch_all(&mut connection).await.unwrap();
    assert_eq!(scopes, Vec::<i64>::new(), "without a setting nothing is seen");
    let mut superuser = app.database.connect().await;
    let ids: Vec<i64> = sqlx::query_scalar("select scope_id from scopes order by name")
        .fetch_all(&mut superuser)
        .await
        .unwrap();
    let insert = "insert into working_memories (scope_id, content_hash, id, entry, expires_at)
                  values ($1, '\\x00', gen_random_uuid(), '{}', now())";
    for (scope, expected) in [(ids[0], true), (ids[1], false)] {
        sqlx::query("select set_config('memser.scope_id', $1, false)")
            .bind(ids[0].to_string())
            .execute(&mut connection)
            .await
            .unwrap();
        let inserted = sqlx::query(insert).bind(scope).execute(&mut connection).await;
        assert_eq!(inserted.is_ok(), expected, "{inserted:?}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_refused_store_makes_no_scope() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.refused("store_memory", json!({ "scope": "new", "content": "x", "ttl_seconds": 0 })).await;
    client.refused("store_memory", json!({ "scope": "new", "content": " ", "ttl_seconds": 9 })).await;
    client.refused("store_memory", json!({ "scope": "new", "content": "x", "replaces": "nonsense" })).await;
    let mut superuser = app.database.connect().await;
    let scopes: i64 =
        sqlx::query_scalar("select count(*) from scopes").fetch_one(&mut superuser).await.unwrap();
    assert_eq!(scopes, 0);
    app.stop().await;
}
