//! `memser doctor`: what it finds where things are as they should be, and where each of them is not.

use nix::sys::signal::Signal;
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::process::{Running, data_folder, memser, output};
use crate::support::{ADMIN, TestDatabase, embedder};

/// Its exit code, and what it prints.
fn said(variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = output(&["doctor"], variables);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn doctor_says_what_is_well_and_what_is_not() {
    let data = data_folder();
    let folder = [("MEMSER_DATA_DIR", data.path().to_str().unwrap())];
    let (code, words) = said(&folder);
    assert!(code == Some(0) && words.contains("warning database: no memser runs"), "{words}");
    let running = Running::start(data.path(), &[("MEMSER_TOKEN", ADMIN)]);
    running.client(ADMIN).store("user:1", "Anna plays the cello.").await;
    let (code, words) = said(&folder);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("MiB are free under"), "{words}");
    for part in [
        "database: PostgreSQL",
        "pooler: none",
        "schema: up to date",
        "row-level security binds it",
        "clock: Postgres' agrees",
        "indexes: all can be used",
        "1 of 1 memories",
        "address: http://127.0.0.1:0, for clients on this machine",
    ] {
        assert!(words.lines().any(|line| line.starts_with("ok ") && line.contains(part)), "{part}: {words}");
    }
    running.signal(Signal::SIGTERM);
    running.end().await;

    let database = TestDatabase::provided().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, words) = said(&[("DATABASE_URL", &database.url)]);
    assert!(code == Some(0) && words.contains("warning schema: at migration 0"), "{words}");
    let database = TestDatabase::create().await;
    let redis = format!("redis://{closed}");
    let (code, words) = said(&[("DATABASE_URL", &database.url), ("REDIS_URL", &redis)]);
    let refused = |part: &str| {
        let line = words.lines().find(|line| line.contains(part)).unwrap_or_default();
        line.starts_with("FAILED ") && line.matches("Connection refused").count() == 1
    };
    assert!(code == Some(1) && refused("Redis: "), "{words}");
    // One trouble does not keep the next from being told.
    let closed = format!("postgres://memser:hunter2@{closed}/memser");
    let (code, words) = said(&[("DATABASE_URL", &closed), ("REDIS_URL", &redis)]);
    assert!(code == Some(1) && words.starts_with("FAILED  database: cannot connect"), "{words}");
    assert!(words.contains("FAILED  Redis: ") && !words.contains("hunter2"), "{words}");
    let (code, words) = said(&[("DATABASE_URL", &database.url), ("REDIS_URL", "hunter2")]);
    assert!(code == Some(1) && words.contains("is not a Redis URL") && !words.contains("hunter2"), "{words}");
}

#[tokio::test]
async fn a_postgres_that_hangs_does_not_keep_doctor_from_saying_so() {
    // Its connections are taken by the system, and nobody answers.
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, words) =
        said(&[("DATABASE_URL", &format!("postgres://memser@{}/memser", hanging.local_addr().unwrap()))]);
    assert!(code == Some(1) && words.contains("FAILED  database: no answer from Postgres"), "{words}");
    assert!(words.contains("embedder: "), "{words}");
}

#[tokio::test]
async fn a_role_that_cannot_bring_the_schema_up_to_date_is_told_before_a_start_fails() {
    let database = TestDatabase::bare("memser_test").await;
    let (code, words) = said(&[("DATABASE_URL", &database.url)]);
    let line = words.lines().find(|line| line.contains("schema: ")).unwrap();
    assert!(code == Some(0) && line.starts_with("warning schema: at migration 0"), "{words}");
    assert!(line.ends_with("run in the database: create extension vector"), "{words}");
    let database = TestDatabase::bare("postgres").await;
    let (code, words) = said(&[("DATABASE_URL", &database.url)]);
    assert!(code == Some(1) && words.contains("FAILED  schema: at migration 0"), "{words}");
    assert!(words.contains("alter database NAME owner to ROLE"), "{words}");
    // Its tables are another's, as after a restore as a superuser.
    let database = TestDatabase::create().await;
    let mut connection = database.connect().await;
    sqlx::query("alter table _sqlx_migrations owner to postgres").execute(&mut connection).await.unwrap();
    let (code, words) = said(&[("DATABASE_URL", &database.url)]);
    assert!(code == Some(1) && words.contains("reassign owned by"), "{words}");
}

#[tokio::test]
async fn models_that_do_not_answer_are_told_with_what_happens_until_they_do() {
    let database = TestDatabase::create().await;
    let embeds = embedder::endpoint(|_| vec![1.0, 0.0, 0.0, 0.0]).await;
    let answers = MockServer::start().await;
    let ready = json!({ "choices": [{ "message": { "content": "{\"ready\": true}" } }] });
    Mock::given(any()).respond_with(ResponseTemplate::new(200).set_body_json(ready)).mount(&answers).await;
    let refuses = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(401)).mount(&refuses).await;
    let ask = |embedder: &MockServer, llm: &MockServer, dimensions: &str| {
        let (embedder, llm) = (embedder.uri(), llm.uri());
        let (code, words) = said(&[
            ("DATABASE_URL", &database.url),
            ("EMBEDDER", "openai"),
            ("EMBEDDING_URL", &embedder),
            ("EMBEDDING_MODEL", "tiny"),
            ("EMBEDDING_DIMENSIONS", dimensions),
            ("OPENAI_API_KEY", "hunter2-hunter2"),
            ("LLM_URL", &llm),
            ("LLM_MODEL", "large"),
        ]);
        assert!(code == Some(0) && !words.contains("hunter2"), "{words}");
        words
    };
    let words = ask(&embeds, &answers, "4");
    assert!(
        words.contains("ok      embedder: tiny answers") && words.contains("ok      llm: large answers"),
        "{words}"
    );
    let words = ask(&refuses, &refuses, "4");
    for line in ["warning embedder: the embedding endpoint answered 401", "warning llm: "] {
        assert!(words.contains(line), "{line}: {words}");
    }
    assert!(words.contains("OPENAI_API_KEY") && words.contains("LLM_API_KEY"), "{words}");
    let words = ask(&embeds, &answers, "8");
    assert!(words.contains("gave a vector of 4 dimensions instead of 8"), "{words}");
    let hashes = said(&[("DATABASE_URL", &database.url), ("EMBEDDER", "hash")]).1;
    assert!(hashes.contains("ok      embedder: feature hashing") && !hashes.contains("llm"), "{hashes}");
}

#[tokio::test]
async fn an_index_that_cannot_be_used_is_named_with_the_way_to_mend_it() {
    let database = TestDatabase::create().await;
    let mut connection = database.connect().await;
    let broken = "update pg_index set indisvalid = false where indexrelid = 'memories_pkey'::regclass";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    let (code, words) = said(&[("DATABASE_URL", &database.url)]);
    assert_eq!(code, Some(0), "{words}");
    let line = words.lines().find(|line| line.contains("memories_pkey")).expect("it is not found");
    assert!(line.starts_with("warning indexes:") && line.contains("reindex index concurrently"), "{line}");
}

#[tokio::test]
async fn a_pooler_is_looked_for_where_the_settings_do_not_name_it() {
    let database = TestDatabase::create().await;
    let [(_, through), (_, direct)] = database.through_pooler();
    let (code, words) = said(&[("DATABASE_URL", &through), ("DATABASE_DIRECT_URL", &direct)]);
    assert!(code == Some(0) && words.contains("ok      pooler: of transactions"), "{words}");
    let (code, words) = said(&[("DATABASE_URL", &through)]);
    assert!(code == Some(1) && words.contains("FAILED  pooler: DATABASE_URL leads"), "{words}");
    let (code, words) = said(&[("DATABASE_URL", &through), ("DATABASE_DIRECT_URL", &through)]);
    assert!(code == Some(1) && words.contains("FAILED  pooler: DATABASE_DIRECT_URL leads"), "{words}");
    let (code, words) = said(&[("DATABASE_URL", &direct), ("DATABASE_DIRECT_URL", &direct)]);
    assert!(code == Some(0) && words.contains("warning pooler: DATABASE_URL keeps its sessions"), "{words}");
}

#[tokio::test]
async fn a_redis_that_writes_nothing_is_warned_of() {
    let database = TestDatabase::create().await;
    let redis = std::env::var("MEMSER_TEST_REDIS_URL").expect("run by scripts/test-services.sh");
    let (code, words) = said(&[("DATABASE_URL", &database.url), ("REDIS_URL", &redis)]);
    assert_eq!(code, Some(0), "{words}");
    for line in [
        "ok      Redis: version ",
        "ok      Redis: it drops nothing",
        "warning Redis: it writes nothing to a disk",
    ] {
        assert!(words.contains(line), "{line}: {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_address_is_asked_whether_it_leads_here() {
    let database = TestDatabase::create().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ask = |url: &str| {
        let (code, words) = said(&[("DATABASE_URL", &database.url), ("MEMSER_PUBLIC_URL", url)]);
        assert_eq!(code, Some(0), "{words}");
        words.lines().filter(|line| line.contains("address: ")).collect::<Vec<_>>().join("\n")
    };
    drop(listener);
    let (public, localhost) = (format!("http://{address}/"), format!("http://localhost:{}/", address.port()));
    assert!(ask(&public).contains("cannot be reached from here (Connection refused"), "{}", ask(&public));
    let bind = address.to_string();
    let settings = [
        ("DATABASE_URL", database.url.as_str()),
        ("MEMSER_TOKEN", ADMIN),
        ("MEMSER_BIND", &bind),
        ("MEMSER_PUBLIC_URL", &public),
    ];
    let running = Running::run(memser(&[], &settings));
    assert_eq!(ask(&public), format!("ok      address: {public} leads to this memser"));
    assert!(ask(&localhost).contains(&format!("calls itself {public}mcp")), "{}", ask(&localhost));
    running.signal(Signal::SIGTERM);
    running.end().await;
}
