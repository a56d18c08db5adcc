//! `store_memory`: what it promises when it returns.

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::client::contents;
use crate::support::{Client, TestApp, embedder};

const PORT_8080: &str = "The staging server listens on port 8080";
const PORT_8081: &str = "The staging server listens on port 8081";

async fn listed(client: &Client, status: &str) -> Vec<String> {
    contents(&client.ok("list_memories", json!({ "scope": "user:1", "status": status, "limit": 100 })).await)
}

async fn rows(app: &TestApp, table: &str) -> i64 {
    let mut connection = app.database.connect().await;
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {table}")))
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_trivial_repeat_is_support_and_raises_confidence_once_a_source() {
    let app = TestApp::start().await;
    let client = app.admin();
    let store = async |content: &str, source: &str| {
        client.ok("store_memory", json!({ "scope": "user:1", "content": content, "source": source })).await
    };
    let first = store("I like green tea.", "chat").await;
    let again = store("  i LIKE green   tea ", "chat").await;
    let other = store("I like green tea!", "mail").await;
    let repeated = store("I like green tea", "mail").await;
    assert_eq!(first["outcome"], "stored");
    for answer in [&again, &other, &repeated] {
        assert_eq!((&answer["outcome"], &answer["id"]), (&json!("duplicate"), &first["id"]));
    }
    assert_eq!(repeated["support"], 4);
    assert_eq!(again["confidence"], first["confidence"]);
    assert!(other["confidence"].as_f64() > again["confidence"].as_f64());
    assert_eq!(repeated["confidence"], other["confidence"]);
    assert_eq!(rows(&app, "memories").await, 1);
    app.stop().await;
}

#[tokio::test]
async fn equal_memories_come_newest_first_until_one_is_confirmed() {
    let app = TestApp::builder().set("WEIGHT_VECTOR", "0").set("WEIGHT_RECENCY", "0").start().await;
    let client = app.admin();
    let store = async |content: &str, source: &str| {
        let arguments =
            json!({ "scope": "user:1", "content": content, "source": source, "on_conflict": "keep_both" });
        client.ok("store_memory", arguments).await
    };
    let (older, newer) = ("The harbour ferry carries bicycles", "The harbour ferry carries motorbikes");
    store(older, "leaflet").await;
    app.clock.advance(std::time::Duration::from_hours(1));
    store(newer, "leaflet").await;
    assert_eq!(client.recall("user:1", "harbour ferry").await, [newer, older]);

    store(older, "timetable").await;
    let confirmed = store(older, "captain").await;
    assert_eq!(confirmed["support"], 3);
    assert_eq!(client.recall("user:1", "harbour ferry").await, [older, newer]);
    app.stop().await;
}

#[tokio::test]
async fn a_changed_number_supersedes_and_the_old_one_stays_as_history() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = client.store("user:1", PORT_8080).await;
    let before = app.clock.clone();
    let as_of = crate::support::start_of_time() + std::time::Duration::from_mins(1);
    before.advance(std::time::Duration::from_hours(1));
    let new = client.ok("store_memory", json!({ "scope": "user:1", "content": PORT_8081 })).await;
    assert_eq!(new["outcome"], "superseded");
    assert_eq!(new["supersedes"][0]["id"], old.as_str());
    assert_eq!(client.recall("user:1", "staging server port").await, [PORT_8081]);
    assert_eq!(listed(&client, "superseded").await, [PORT_8080]);
    let recall = async |more: Value| {
        let mut arguments = json!({ "scope": "user:1", "query": "staging server port" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.ok("recall_memory", arguments).await
    };
    let then = recall(json!({ "as_of": as_of })).await;
    assert_eq!(contents(&then), [PORT_8080]);
    assert_eq!(then["memories"][0]["superseded_by"], new["id"]);
    let all = contents(&recall(json!({ "include_superseded": true })).await);
    assert!(all.contains(&PORT_8080.to_owned()) && all.contains(&PORT_8081.to_owned()), "{all:?}");
    app.stop().await;
}

#[tokio::test]
async fn flag_and_keep_both_keep_both() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = client.store("user:1", PORT_8080).await;
    let store = async |content: &str, policy: &str| {
        client
            .ok("store_memory", json!({ "scope": "user:1", "content": content, "on_conflict": policy }))
            .await
    };
    let kept = store("The staging server listens on port 8082", "keep_both").await;
    assert_eq!((&kept["outcome"], &kept["conflicts_with"][0]["id"]), (&json!("stored"), &json!(old)));
    assert_eq!(listed(&client, "conflicted").await, Vec::<String>::new());
    let flagged = store(PORT_8081, "flag").await;
    assert_eq!(flagged["outcome"], "flagged");
    let against = flagged["conflicts_with"].as_array().unwrap();
    assert!(against.iter().any(|other| other["id"] == old.as_str()), "{flagged}");
    assert_eq!(listed(&client, "active").await.len(), 3);
    assert!(listed(&client, "conflicted").await.contains(&PORT_8081.to_owned()));
    let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "staging port 8081" })).await;
    let hits = found["memories"].as_array().unwrap();
    let hit = hits.iter().find(|hit| hit["id"] == flagged["id"]).unwrap();
    assert!(hit["conflicts_with"].as_array().unwrap().contains(&json!(old)), "{hit}");
    app.stop().await;
}

#[tokio::test]
async fn what_replaces_a_text_leaves_nothing_of_it_in_recall() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = client.store("user:1", "The recipe needs flour, butter and a cup of walnuts").await;
    let new = "The recipe needs flour and butter";
    client.ok("store_memory", json!({ "scope": "user:1", "content": new, "replaces": old })).await;
    assert_eq!(client.recall("user:1", "Does the recipe need walnuts?").await, [new]);
    assert_eq!(client.recall("user:1", "Which flour does the recipe need?").await, [new]);
    app.stop().await;
}

#[tokio::test]
async fn a_contradiction_is_seen_and_an_addition_is_none() {
    let app = TestApp::start().await;
    let client = app.admin();
    let cases = [
        ("I love Chinese food", "I hate Chinese food", "superseded"),
        ("My name is liguoyu", "My name is liguosong", "superseded"),
        ("The service uses Redis", "The service does not use Redis", "superseded"),
        ("The meeting is on 3 May", "The meeting is on 4 May", "superseded"),
        ("I like tea", "I like tea but prefer coffee", "stored"),
        ("I like tea", "I like tea, although it keeps me awake", "stored"),
        ("Anna lives in Rome", "Anne lives in Rome", "stored"),
        ("Order 17 was paid", "Order 18 was paid", "stored"),
    ];
    for (at, (first, second, outcome)) in cases.into_iter().enumerate() {
        let scope = format!("user:{at}");
        client.store(&scope, first).await;
        let answer = client.ok("store_memory", json!({ "scope": scope, "content": second })).await;
        assert_eq!(answer["outcome"], outcome, "{first} / {second}");
        assert!(client.recall(&scope, second).await.contains(&second.to_owned()), "{second}");
    }
    app.stop().await;
}

#[tokio::test]
async fn replaces_needs_an_active_memory_of_the_scope() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = client.store("user:1", "The cat is called Tom").await;
    let foreign = client.store("user:2", "The cat is called Tom").await;
    let replace = |id: &str, content: &str| json!({ "scope": "user:1", "content": content, "replaces": id });
    let new = client.ok("store_memory", replace(&old, "We have a dog now and no cat")).await;
    assert_eq!((&new["outcome"], &new["supersedes"][0]["id"]), (&json!("superseded"), &json!(old)));
    for (id, code) in [
        (old.as_str(), "conflict"),
        (foreign.as_str(), "not_found"),
        ("00000000-0000-7000-8000-000000000000", "not_found"),
        ("x", "invalid_argument"),
    ] {
        let error = client.refused("store_memory", replace(id, "A parrot as well")).await;
        assert_eq!(error["code"], code, "{id}");
    }
    assert_eq!(listed(&client, "active").await, ["We have a dog now and no cat"]);
    app.stop().await;
}

#[tokio::test]
async fn a_key_gives_the_first_answer_again_also_to_calls_at_once() {
    for ttl in [None, Some(60)] {
        let app = TestApp::builder().redis().start().await;
        let second = TestApp::builder().redis().beside(&app).start().await;
        let clients = [app.admin(), second.admin()];
        let keyed = |content: &str| {
            let mut arguments = json!({ "scope": "user:1", "content": content, "idempotency_key": "k1" });
            if let Some(ttl) = ttl {
                arguments["ttl_seconds"] = json!(ttl);
            }
            arguments
        };
        let calls = (0..10).map(|at| {
            let (client, arguments) = (clients[at % 2].clone(), keyed("Only once"));
            tokio::spawn(async move { client.ok("store_memory", arguments).await })
        });
        let mut answers = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            answers.push(call.await.unwrap());
        }
        assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
        assert_eq!(answers[0]["tier"], if ttl.is_some() { "working" } else { "episodic" });
        let error = clients[0].refused("store_memory", keyed("Something else")).await;
        assert_eq!(error["code"], "idempotency_mismatch");
        let arguments = json!({ "scope": "user:1", "tier": answers[0]["tier"] });
        assert_eq!(contents(&clients[1].ok("list_memories", arguments).await), ["Only once"]);
        second.stop().await;
        app.stop().await;
    }
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_and_makes_no_scope() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (arguments, code, field) in [
        (json!({ "content": "" }), "invalid_argument", "content"),
        (json!({ "content": "\u{200b} \n" }), "invalid_argument", "content"),
        (json!({ "content": "a\0b" }), "invalid_argument", "content"),
        (json!({ "content": "a", "tags": ["a\0"] }), "invalid_argument", "tags"),
        (json!({ "content": "a", "metadata": { "a": ["\0"] } }), "invalid_argument", "metadata"),
        (json!({ "content": "x".repeat(65_537) }), "limit_exceeded", "content"),
        (json!({ "content": "a", "occurred_at": "0000-01-01T00:00:00Z" }), "invalid_argument", "occurred_at"),
    ] {
        let mut arguments = arguments;
        arguments["scope"] = "user:1".into();
        let error = client.refused("store_memory", arguments).await;
        assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)));
    }
    let absent =
        json!({ "scope": "user:1", "content": "a", "replaces": "00000000-0000-7000-8000-000000000000" });
    assert_eq!(client.refused("store_memory", absent).await["code"], "not_found");
    assert_eq!(rows(&app, "scopes").await, 0);
    let most = json!({ "scope": "user:1", "content": "x".repeat(65_536) });
    assert_eq!(client.ok("store_memory", most).await["outcome"], "stored");
    app.stop().await;
}

#[tokio::test]
async fn metadata_stays_inert() {
    let app = TestApp::start().await;
    let client = app.admin();
    let metadata = json!({ "scope": "user:2", "scope_id": 7, "tier": "semantic", "agent_id": "x", "actor": "y", "id": 1 });
    let arguments = json!({ "scope": "user:1", "content": "Inert", "metadata": metadata });
    let stored = client.ok("store_memory", arguments).await;
    assert_eq!(stored["tier"], "episodic");
    let list = client.ok("list_memories", json!({ "scope": "user:1" })).await;
    let memory = &list["memories"][0];
    assert_eq!((&memory["metadata"], &memory["id"]), (&metadata, &stored["id"]));
    assert!(memory["actor"].is_null(), "{memory}");
    assert_eq!(rows(&app, "scopes").await, 1);
    app.stop().await;
}

#[tokio::test]
async fn stores_at_once_over_two_replicas_lose_and_double_nothing() {
    let app = TestApp::start().await;
    let second = TestApp::builder().beside(&app).start().await;
    let clients = [app.admin(), second.admin()];
    let together = async |content: &(dyn Fn(usize) -> String + Sync)| {
        let calls = (0..50).map(|at| {
            let (client, content) = (clients[at % 2].clone(), content(at));
            tokio::spawn(async move { client.store("user:1", &content).await })
        });
        let mut ids = std::collections::BTreeSet::new();
        for call in calls.collect::<Vec<_>>() {
            ids.insert(call.await.unwrap());
        }
        ids.len()
    };
    assert_eq!(together(&|_| "All say the same".to_owned()).await, 1);
    let list = clients[1].ok("list_memories", json!({ "scope": "user:1" })).await;
    assert_eq!(list["memories"][0]["support"], 50);
    let words = ["apple", "river", "stone", "cloud", "tiger", "piano", "lemon", "boat", "chess", "opera"];
    let places = ["ceiling", "garden", "harbour", "meadow", "tunnel"];
    assert_eq!(together(&|at| format!("{} {}", words[at % 10], places[at / 10])).await, 50);
    assert_eq!(listed(&clients[0], "active").await.len(), 51);
    let mut connection = app.database.connect().await;
    let counted: i64 =
        sqlx::query_scalar("select memories from scopes").fetch_one(&mut connection).await.unwrap();
    assert_eq!(counted, 51);
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn contradictions_at_once_over_two_replicas_make_one_chain() {
    let app = TestApp::start().await;
    let second = TestApp::builder().beside(&app).start().await;
    let clients = [app.admin(), second.admin()];
    let calls = (0..20).map(|at| {
        let client = clients[at % 2].clone();
        let content = format!("The staging server listens on port {}", 8080 + at);
        tokio::spawn(async move { client.store("user:1", &content).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(listed(&clients[0], "active").await.len(), 1);
    let mut connection = app.database.connect().await;
    // Each was superseded by exactly one other, so that 19 links lead through all 20 to the one that is active.
    let links: i64 = sqlx::query_scalar(
        "with recursive chain as (
             select id, superseded_by from memories where valid_to is null
             union all select m.id, m.superseded_by from chain c join memories m on m.superseded_by = c.id)
         select count(distinct id) from chain",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(links, 20);
    let forks: i64 = sqlx::query_scalar(
        "select count(*) from (select from memories where superseded_by is not null
                                group by superseded_by having count(*) > 1) as fork",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(forks, 0);
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn a_key_outlives_a_restart() {
    let app = TestApp::start().await;
    let arguments = json!({ "scope": "user:1", "content": "Only once", "idempotency_key": "k1" });
    let first = app.admin().ok("store_memory", arguments.clone()).await;
    let database = app.database.clone();
    app.stop().await;
    let app = TestApp::builder().on(database).start().await;
    assert_eq!(app.admin().ok("store_memory", arguments.clone()).await, first);
    let mut other = arguments.clone();
    other["tags"] = json!(["other"]);
    assert_eq!(app.admin().refused("store_memory", other).await["code"], "idempotency_mismatch");
    // A day later the key is free again.
    app.clock.advance(std::time::Duration::from_hours(25));
    assert_eq!(app.admin().ok("store_memory", arguments).await["outcome"], "duplicate");
    app.stop().await;
}

/// Every kind of call at once over two replicas: whatever they wait for, no caller sees a deadlock.
#[tokio::test]
async fn all_kinds_of_calls_at_once_end_well() {
    let app = TestApp::builder().set("CONSOLIDATION_MIN_EPISODIC", "2").start().await;
    let second = TestApp::builder().set("CONSOLIDATION_MIN_EPISODIC", "2").beside(&app).start().await;
    let clients = [app.admin(), second.admin()];
    for number in 0..20 {
        clients[0].store("user:1", &format!("Host {number} runs the wiki and its backup")).await;
    }
    let worker = |worker: usize| {
        let client = clients[worker % 2].clone();
        async move {
            for round in 0..10 {
                let number = (worker * 7 + round * 3) % 20;
                let content = format!("Host {number} runs the wiki and its backup");
                let id = client.store("user:1", &content).await;
                client.recall("user:1", "Which host runs the wiki?").await;
                let outcome = match (worker + round) % 3 {
                    0 => client.call("forget_memory", json!({ "scope": "user:1", "memory_id": id })).await,
                    1 => client.call("consolidate_memories", json!({ "scope": "user:1" })).await,
                    _ => {
                        client
                            .call(
                                "resolve_conflict",
                                json!({ "scope": "user:1", "memory_id": id, "action": "restore" }),
                            )
                            .await
                    }
                };
                // Another worker may have been faster.
                let code = outcome.structure["error"]["code"].as_str().unwrap_or("ok");
                assert!(matches!(code, "ok" | "not_found" | "conflict"), "{}", outcome.structure);
            }
        }
    };
    let sweeps = async {
        for _ in 0..5 {
            for sweep in Sweep::ALL {
                for jobs in [&app.jobs, &second.jobs] {
                    assert_ne!(jobs.run(sweep).await, Ran::Failed, "{sweep:?}");
                }
            }
            app.engine.flush().await;
            second.engine.flush().await;
        }
    };
    let ((), _) = tokio::join!(sweeps, futures::future::join_all((0..4).map(worker)));
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn without_its_embedder_a_store_is_pending_and_found_by_words() {
    // Refusing, failing, and not there at all: an endpoint that was bound and dropped.
    let (refusing, failing) = (MockServer::start().await, MockServer::start().await);
    for (endpoint, status) in [(&refusing, 400), (&failing, 500)] {
        Mock::given(method("POST")).respond_with(ResponseTemplate::new(status)).mount(endpoint).await;
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [refusing.uri(), failing.uri(), format!("http://{closed}")] {
        let app = embedder::asking(&url, 4).start().await;
        let client = app.admin();
        let stored =
            client.ok("store_memory", json!({ "scope": "user:1", "content": "The kettle whistles" })).await;
        assert_eq!((&stored["embedding"], &stored["degraded"]), (&json!("pending"), &json!(["embedder"])));
        let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "kettle" })).await;
        assert_eq!(contents(&found), ["The kettle whistles"]);
        assert_eq!(found["degraded"], json!(["embedder"]));
        assert_eq!(listed(&client, "pending").await, ["The kettle whistles"]);
        app.stop().await;
    }
}

#[tokio::test]
async fn what_waited_for_the_embedder_is_found_by_meaning_once_it_is_back() {
    let endpoint = MockServer::start().await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(400)).mount(&endpoint).await;
    let app = embedder::asking(&endpoint.uri(), 4).start().await;
    let client = app.admin();
    client.store("user:1", "The kettle whistles").await;
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Failed);
    embedder::answer_with(&endpoint, |_| vec![1.0, 0.0, 0.0, 0.0]).await;
    assert_eq!(app.jobs.run(Sweep::Embed).await, Ran::Done);
    assert_eq!(listed(&client, "pending").await, Vec::<String>::new());
    let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "boiling water" })).await;
    assert_eq!(found["degraded"], json!([]));
    assert!(found["memories"][0]["why"]["vector"].as_f64() > Some(0.0), "{found}");
    app.stop().await;
}

#[tokio::test]
async fn a_text_that_is_remembered_is_not_embedded_again() {
    let endpoint = embedder::endpoint(|text| vec![f32::from(u16::try_from(text.len()).unwrap()), 1.0]).await;
    let app = embedder::asking(&endpoint.uri(), 2).set("EMBEDDING_CACHE_MIB", "0").start().await;
    let client = app.admin();
    let asked = async || endpoint.received_requests().await.unwrap().len();
    let store = async |scope: &str, content: &str| {
        client.ok("store_memory", json!({ "scope": scope, "content": content })).await["outcome"].clone()
    };
    assert_eq!((store("user:1", "Anna plays the cello.").await, asked().await), (json!("stored"), 1));
    assert_eq!((store("user:1", "Anna plays the cello.").await, asked().await), (json!("duplicate"), 1));
    // The same in its normal form, but not what the endpoint was asked.
    assert_eq!((store("user:1", "anna plays the cello").await, asked().await), (json!("duplicate"), 2));
    // Nothing of another scope is looked at.
    assert_eq!((store("user:2", "Anna plays the cello.").await, asked().await), (json!("stored"), 3));
    app.stop().await;

    let app = embedder::asking(&endpoint.uri(), 2).start().await;
    let client = app.admin();
    for scope in ["user:1", "user:2"] {
        client.store(scope, "Anna plays the cello.").await;
    }
    client.recall("user:1", "Anna plays the cello.").await;
    assert_eq!(asked().await, 4, "once for all");
    app.stop().await;
}
