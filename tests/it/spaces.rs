//! A change of the embedding model: nothing is lost, no recall fails, and vectors of two models never meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memser::engine::maintain::Pass;
use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};

use crate::support::{Client, TestApp, TestAppBuilder, bulk, embedder};

const SCOPE: &str = "user:1";

/// A memser that hashes into vectors of this width. Two widths are two models, and Postgres refuses to compare them.
fn hashing(dimensions: usize) -> TestAppBuilder {
    TestApp::builder().set("EMBEDDING_DIMENSIONS", dimensions.to_string())
}

/// The spaces by their width: their state, and how many vectors are in each.
async fn spaces(app: &TestApp) -> BTreeMap<i32, (String, i64)> {
    let mut connection = app.database.connect().await;
    let rows: Vec<(i32, String, i64)> = sqlx::query_as(
        "select dimensions, state, (select count(*) from memory_embedding e where e.space_id = s.space_id)
           from embedding_spaces s",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    rows.into_iter().map(|(dimensions, state, vectors)| (dimensions, (state, vectors))).collect()
}

fn space(state: &str, vectors: i64) -> (String, i64) {
    (state.to_owned(), vectors)
}

/// The indexes of vectors that can be used.
async fn indexes(app: &TestApp) -> i64 {
    let mut connection = app.database.connect().await;
    sqlx::query_scalar(
        "select count(*) from pg_index join pg_class on oid = indexrelid
          where relname like 'memory\\_embedding\\_hnsw%' and indisvalid",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap()
}

async fn recall(client: &Client, query: &str) -> Value {
    client.ok("recall_memory", json!({ "scope": SCOPE, "query": query })).await
}

/// The share of meaning in the score of the best hit.
fn by_meaning(answer: &Value) -> f64 {
    answer["memories"][0]["why"]["vector"].as_f64().unwrap()
}

#[tokio::test]
async fn the_old_model_is_used_until_every_memory_has_its_new_vector() {
    let old = hashing(64).start().await;
    for text in ["Anna plays the cello.", "The office closes at noon.", "Ravi drinks tea."] {
        old.admin().store(SCOPE, text).await;
    }
    let new = hashing(96).beside(&old).start().await;
    assert_eq!(spaces(&new).await, BTreeMap::from([(64, space("active", 3)), (96, space("building", 0))]));
    let stored =
        new.admin().ok("store_memory", json!({ "scope": SCOPE, "content": "Mia speaks Danish." })).await;
    assert_eq!((&stored["embedding"], &stored["degraded"]), (&json!("ready"), &json!([])));
    // A repetition is recognised among the old vectors.
    let again = json!({ "scope": SCOPE, "content": "Anna plays the cello" });
    assert_eq!(new.admin().ok("store_memory", again).await["outcome"], "duplicate");
    for app in [&old, &new] {
        let found = recall(&app.admin(), "Who speaks Danish?").await;
        assert_eq!(
            (&found["degraded"], &found["memories"][0]["content"]),
            (&json!([]), &json!("Mia speaks Danish."))
        );
        assert!(by_meaning(&found) > 0.0, "{found}");
    }

    // The old configuration has nothing to fill, and cannot end what it did not begin.
    assert_eq!(old.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&old).await[&96], space("building", 0));
    let metrics = new.get("/metrics").await.text().await.unwrap();
    for line in [
        r#"memser_memories{tier="episodic"} 4"#,
        r#"memser_embedding_vectors{provider="hash",model="hash-v1",dimensions="96",state="building"} 0"#,
        r#"memser_part_up{part="postgres"} 1"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&new).await, BTreeMap::from([(64, space("retired", 4)), (96, space("active", 4))]));
    assert_eq!(indexes(&new).await, 1, "the new index is there and the old one gone");
    let found = recall(&new.admin(), "Who speaks Danish?").await;
    assert!(found["degraded"] == json!([]) && by_meaning(&found) > 0.0, "{found}");

    new.stop().await;
    old.stop().await;
}

#[tokio::test]
async fn a_replica_with_the_old_settings_says_so_and_writes_nothing_into_the_new_space() {
    let old = hashing(64).start().await;
    old.admin().store(SCOPE, "Anna plays the cello.").await;
    let new = hashing(96).beside(&old).start().await;
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);

    let found = recall(&old.admin(), "Who plays the cello?").await;
    assert_eq!(found["degraded"], json!(["embeddings"]));
    assert_eq!(found["memories"][0]["content"], "Anna plays the cello.");
    let stored =
        old.admin().ok("store_memory", json!({ "scope": SCOPE, "content": "Ravi drinks tea." })).await;
    assert_eq!((&stored["embedding"], &stored["degraded"]), (&json!("pending"), &json!(["embeddings"])));
    assert_eq!(old.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&new).await[&96], space("active", 1));
    let pending = json!({ "scope": SCOPE, "status": "pending" });
    let waiting = new.admin().ok("list_memories", pending.clone()).await;
    assert_eq!(crate::support::client::contents(&waiting), ["Ravi drinks tea."]);
    assert_eq!(new.admin().recall(SCOPE, "Who drinks tea?").await[0], "Ravi drinks tea.");

    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&new).await[&96], space("active", 2));
    assert_eq!(new.admin().ok("list_memories", pending).await["memories"], json!([]));
    new.stop().await;
    old.stop().await;
}

#[tokio::test]
async fn a_crash_at_any_point_is_gone_on_from() {
    let old = hashing(64).start().await;
    let ids: Vec<String> = {
        let admin = old.admin();
        let mut ids = Vec::new();
        for number in 0..100 {
            ids.push(admin.store(SCOPE, &format!("Parcel number {number} waits in hall {number}.")).await);
        }
        ids
    };
    // One chunk is embedded, then everything stops.
    let interrupted = hashing(96).beside(&old).start().await;
    let models = interrupted.engine.models_to_fill().await.unwrap();
    let mut pass = Pass::default();
    let filled = interrupted.engine.fill_chunk(models.last().unwrap(), &mut pass).await.unwrap();
    assert!(filled.is_some_and(|filled| (1..100).contains(&filled)));
    interrupted.stop().await;
    let before = spaces(&old).await[&96].1;
    // Meanwhile one with a vector and one without are forgotten.
    for id in [&ids[0], &ids[99]] {
        old.admin().ok("forget_memory", json!({ "scope": SCOPE, "memory_id": id })).await;
    }

    let new = hashing(96).beside(&old).start().await;
    assert_eq!(spaces(&new).await[&96], space("building", before - 1), "what was made is kept");
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&new).await, BTreeMap::from([(64, space("retired", 98)), (96, space("active", 98))]));

    // An index whose making broke off is made anew.
    let mut connection = new.database.connect().await;
    let broken = "update pg_index set indisvalid = false
                   where indexrelid = (select oid from pg_class where relname like 'memory\\_embedding\\_hnsw%')";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    assert_eq!(indexes(&new).await, 0);
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(indexes(&new).await, 1);
    new.stop().await;
    old.stop().await;
}

#[tokio::test]
async fn a_change_back_uses_what_was_kept_and_what_was_not_is_dropped_in_time() {
    let first = hashing(64).start().await;
    first.admin().store(SCOPE, "Anna plays the cello.").await;
    let second = hashing(96).beside(&first).start().await;
    assert_eq!(second.jobs.run(Sweep::Embed).await, Ran::Done);
    second.admin().store(SCOPE, "Ravi drinks tea.").await;
    second.stop().await;

    let back = hashing(64).beside(&first).start().await;
    assert_eq!(spaces(&back).await, BTreeMap::from([(64, space("building", 1)), (96, space("active", 2))]));
    let found = recall(&back.admin(), "Who drinks tea?").await;
    assert!(found["degraded"] == json!([]) && by_meaning(&found) > 0.0, "{found}");
    assert_eq!(back.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&back).await, BTreeMap::from([(64, space("active", 2)), (96, space("retired", 2))]));

    assert_eq!(back.jobs.run(Sweep::Prune).await, Ran::Done);
    assert_eq!(spaces(&back).await[&96], space("retired", 2));
    back.clock.advance(Duration::from_hours(8 * 24));
    assert_eq!(back.jobs.run(Sweep::Prune).await, Ran::Done);
    assert_eq!(spaces(&back).await, BTreeMap::from([(64, space("active", 2)), (96, space("retired", 0))]));
    back.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn an_endpoints_old_model_answers_questions_until_the_new_one_has_embedded_everything() {
    let endpoint =
        embedder::endpoint(|text| vec![f32::from(u8::try_from(text.len() % 200).unwrap()) + 1.0, 1.0]).await;
    let with = |model: &str| embedder::asking(&endpoint.uri(), 2).set("EMBEDDING_MODEL", model);
    let old = with("old-model").start().await;
    old.admin().store(SCOPE, "Anna plays the cello.").await;
    let new = with("new-model").beside(&old).start().await;
    let models_asked = async || -> Vec<String> {
        let requests = endpoint.received_requests().await.unwrap();
        let model = |request: &wiremock::Request| request.body_json::<Value>().unwrap()["model"].clone();
        requests.iter().map(|request| model(request).as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(recall(&new.admin(), "Who plays?").await["degraded"], json!([]));
    assert_eq!(models_asked().await.last().unwrap(), "old-model");
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(recall(&new.admin(), "Who played?").await["degraded"], json!([]));
    assert_eq!(models_asked().await.last().unwrap(), "new-model");
    new.stop().await;
    old.stop().await;
}

#[tokio::test]
async fn without_a_way_to_the_old_model_recall_goes_by_words_and_says_so() {
    let endpoint = embedder::endpoint(|_| vec![1.0, 0.0]).await;
    let old = embedder::asking(&endpoint.uri(), 2).start().await;
    old.admin().store(SCOPE, "Anna plays the cello.").await;
    let new = hashing(96).beside(&old).start().await;
    let found = recall(&new.admin(), "Who plays the cello?").await;
    assert_eq!(found["degraded"], json!(["embeddings"]));
    assert_eq!(found["memories"][0]["content"], "Anna plays the cello.");
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(recall(&new.admin(), "Who plays the cello?").await["degraded"], json!([]));
    new.stop().await;
    old.stop().await;
}

#[tokio::test]
async fn vectors_too_wide_for_an_index_are_scanned() {
    let app = hashing(4_001).start().await;
    app.admin().store(SCOPE, "Anna plays the cello.").await;
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(indexes(&app).await, 0);
    let found = recall(&app.admin(), "Who plays the cello?").await;
    assert!(by_meaning(&found) > 0.0, "{found}");
    app.stop().await;
}

#[tokio::test]
async fn a_text_that_the_endpoint_refuses_holds_up_neither_others_nor_the_change() {
    let endpoint = wiremock::MockServer::start().await;
    let answer = |request: &wiremock::Request| {
        let body: Value = request.body_json().unwrap();
        let texts = body["input"].as_array().unwrap();
        if texts.iter().any(|text| text.as_str().unwrap().contains("cursed")) {
            return wiremock::ResponseTemplate::new(400);
        }
        let data: Vec<Value> =
            (0..texts.len()).map(|index| json!({ "index": index, "embedding": [1.0, 0.5] })).collect();
        wiremock::ResponseTemplate::new(200).set_body_json(json!({ "data": data }))
    };
    wiremock::Mock::given(wiremock::matchers::any()).respond_with(answer).mount(&endpoint).await;
    let old = hashing(64).start().await;
    for text in ["Anna plays the cello.", "A cursed text.", "Ravi drinks tea."] {
        old.admin().store(SCOPE, text).await;
    }
    let new = embedder::asking(&endpoint.uri(), 2).beside(&old).start().await;
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(spaces(&new).await, BTreeMap::from([(2, space("active", 2)), (64, space("retired", 3))]));
    let waiting = new.admin().ok("list_memories", json!({ "scope": SCOPE, "status": "pending" })).await;
    assert_eq!(crate::support::client::contents(&waiting), ["A cursed text."]);
    new.stop().await;
    old.stop().await;
}

/// Ten thousand memories change their model while clients recall and store on both replicas.
#[tokio::test]
async fn a_change_under_load_fails_no_call() {
    const MEMORIES: usize = 10_000;
    let old = hashing(64).start().await;
    old.admin().store(SCOPE, "The first memory makes the scope.").await;
    let contents: Vec<String> = (0..MEMORIES)
        .map(|number| format!("Shelf {number} holds box {} of the archive.", number * 7 % MEMORIES))
        .collect();
    bulk::store(&old, SCOPE, &contents, 64).await;
    let new = hashing(96).beside(&old).start().await;

    let is_over = Arc::new(AtomicBool::new(false));
    let callers = [&old, &new].into_iter().flat_map(|app| [app.admin(), app.admin()]).enumerate().map(
        |(caller, client)| {
            let is_over = Arc::clone(&is_over);
            let contents = contents.clone();
            tokio::spawn(async move {
                let mut calls = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let content = &contents[(caller * 2_500 + calls * 13) % MEMORIES];
                    let found = recall(&client, content).await;
                    assert_eq!(found["memories"][0]["content"], **content, "{found}");
                    if calls % 5 == 0 {
                        client
                            .store(
                                SCOPE,
                                &format!("Caller {caller} made call {calls} in room {caller}x{calls}."),
                            )
                            .await;
                    }
                    calls += 1;
                }
                calls
            })
        },
    );
    let callers: Vec<_> = callers.collect();
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
    // What the replica with the old settings stored in the last moment.
    assert_eq!(new.jobs.run(Sweep::Embed).await, Ran::Done);
    let mut connection = new.database.connect().await;
    let memories: i64 =
        sqlx::query_scalar("select count(*) from memories").fetch_one(&mut connection).await.unwrap();
    assert_eq!(spaces(&new).await[&96], space("active", memories));
    let found = recall(&new.admin(), &contents[4_711]).await;
    assert!(found["degraded"] == json!([]) && by_meaning(&found) > 0.0, "{found}");
    new.stop().await;
    old.stop().await;
}
