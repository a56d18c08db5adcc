//! `consolidate_memories`.

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};

use crate::support::{TestApp, embedder};

const ALIKE: [&str; 3] = [
    "The backup of the wiki runs every night on host alpha",
    "The backup of the wiki runs every night on host alpha safely",
    "The nightly backup of the wiki runs every night on host alpha",
];

async fn store(app: &TestApp, scope: &str) {
    for (at, content) in ALIKE.into_iter().enumerate() {
        let stored = app
            .admin()
            .ok(
                "store_memory",
                json!({ "scope": scope, "content": content, "tags": [format!("t{at}")], "on_conflict": "keep_both" }),
            )
            .await;
        assert_eq!(stored["outcome"], "stored", "{content}");
    }
    app.admin().store(scope, "Anna plays the violin").await;
}

async fn consolidate(app: &TestApp, more: Value) -> Value {
    let mut arguments = json!({ "scope": "user:1" });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app.admin().ok("consolidate_memories", arguments).await
}

/// Everything that consolidation could change, as text.
async fn state(app: &TestApp, scope: &str) -> Vec<String> {
    let mut connection = app.database.connect().await;
    sqlx::query_scalar(
        "select row_to_json(m)::text || coalesce((select string_agg(o::text, ',' order by o::text) from memory_origin o
            where o.scope_id = m.scope_id and o.memory_id = m.id), '')
           from memories m join scopes s using (scope_id) where s.name = $1 order by id",
    )
    .bind(scope)
    .fetch_all(&mut connection)
    .await
    .unwrap()
}

/// Alike texts are to be stored beside each other and to meet in one cluster.
async fn start() -> TestApp {
    TestApp::builder().consolidating().start().await
}

#[tokio::test]
async fn alike_memories_become_one_fact_that_their_words_still_find() {
    let app = start().await;
    store(&app, "user:1").await;
    store(&app, "user:2").await;
    let (before, foreign) = (state(&app, "user:1").await, state(&app, "user:2").await);
    let dry = consolidate(&app, json!({ "dry_run": true })).await;
    assert_eq!(dry["clusters"][0]["members"].as_array().unwrap().len(), 3, "{dry}");
    assert_eq!(state(&app, "user:1").await, before);

    let answer = consolidate(&app, json!({})).await;
    assert_eq!(answer["created"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["superseded"].as_array().unwrap().len(), 3);
    let found = app.admin().ok("recall_memory", json!({ "scope": "user:1", "query": "safely" })).await;
    let fact = &found["memories"][0];
    assert_eq!((&fact["id"], &fact["tier"]), (&answer["created"][0], &json!("semantic")));
    assert_eq!(fact["tags"], json!(["t0", "t1", "t2"]));
    assert_eq!(fact["origin"].as_array().unwrap().len(), 3);
    assert!(fact["why"]["lexical"].as_f64() > Some(0.0), "{fact}");

    let after = state(&app, "user:1").await;
    let again = consolidate(&app, json!({})).await;
    assert_eq!(again["created"], json!([]));
    assert_eq!(state(&app, "user:1").await, after);
    assert_eq!(state(&app, "user:2").await, foreign);
    app.stop().await;
}

#[tokio::test]
async fn forgetting_an_origin_retracts_the_fact_and_brings_the_others_back() {
    let app = start().await;
    store(&app, "user:1").await;
    let answer = consolidate(&app, json!({})).await;
    let origin = &answer["superseded"][0];
    let forgotten = app.admin().ok("forget_memory", json!({ "scope": "user:1", "memory_id": origin })).await;
    assert_eq!(forgotten["retracted"], answer["created"]);
    let listed = app.admin().ok("list_memories", json!({ "scope": "user:1" })).await;
    let active = listed["memories"].as_array().unwrap();
    assert_eq!(active.len(), 3, "{listed}");
    for memory in active {
        assert!(memory["tier"] == "episodic" && memory["id"] != *origin, "{memory}");
    }
    app.stop().await;
}

#[tokio::test]
async fn half_related_memories_do_not_become_one_fact() {
    // Each is as near to the next as the threshold asks (cosine .8), and its ends have little in common (.28, -.35).
    let direction = |text: &str| {
        let step = u8::try_from(text.matches('x').count()).unwrap();
        let angle = 37_f32.to_radians() * f32::from(step);
        vec![angle.cos(), angle.sin()]
    };
    let endpoint = embedder::endpoint(direction).await;
    let app = embedder::asking(&endpoint.uri(), 2).set("CONSOLIDATION_SIMILARITY", "0.75").start().await;
    for content in ["diet", "breakfast x", "sport xx", "school xxx"] {
        app.admin().store("user:1", content).await;
    }
    let answer = consolidate(&app, json!({})).await;
    let clusters = answer["clusters"].as_array().unwrap();
    assert!(!clusters.is_empty(), "no two met, so that the chain was never tried: {answer}");
    for cluster in clusters {
        assert_eq!(cluster["members"].as_array().unwrap().len(), 2, "{answer}");
    }
    app.stop().await;
}

#[tokio::test]
async fn without_any_setting_alike_memories_meet_and_others_stay_apart() {
    let app = TestApp::start().await;
    let texts = [
        "The wiki is backed up every night",
        "Every night the wiki of the team is backed up to another place",
        "Anna plays the violin in an orchestra",
        "The invoices of March were paid late",
    ];
    let mut ids = Vec::new();
    for content in texts {
        ids.push(json!(app.admin().store("user:1", content).await));
    }
    let answer = consolidate(&app, json!({})).await;
    let clusters = answer["clusters"].as_array().unwrap();
    assert_eq!(clusters.len(), 1, "{answer}");
    let mut members = clusters[0]["members"].as_array().unwrap().clone();
    members.sort_unstable_by_key(Value::to_string);
    ids.truncate(2);
    assert_eq!(members, ids);
    app.stop().await;
}

#[tokio::test]
async fn replicas_that_ring_at_once_make_each_fact_once() {
    let app = start().await;
    let scopes: Vec<String> = (1..=4).map(|n| format!("user:{n}")).collect();
    for scope in &scopes {
        store(&app, scope).await;
    }
    let beside = || TestApp::builder().consolidating().beside(&app).start();
    let (second, third) = (beside().await, beside().await);
    let rings = [&app, &second, &third].map(|replica| replica.jobs.run(Sweep::Consolidate));
    let ran = futures::future::join_all(rings).await;
    assert!(
        ran.contains(&Ran::Done) && ran.iter().all(|ran| matches!(ran, Ran::Done | Ran::Skipped)),
        "{ran:?}"
    );
    for scope in &scopes {
        let arguments = json!({ "scope": scope, "tier": "semantic" });
        let listed = app.admin().ok("list_memories", arguments).await;
        assert_eq!(listed["memories"].as_array().unwrap().len(), 1, "{scope}: {listed}");
    }
    for replica in [second, third, app] {
        replica.stop().await;
    }
}

#[tokio::test]
async fn a_fact_has_the_places_of_its_originals_in_their_conversations() {
    let app = start().await;
    let say = async |source: &str, content: &str, occurred_at: &str| {
        let arguments = json!({
            "scope": "user:1", "source": source, "content": content, "occurred_at": occurred_at,
            "on_conflict": "keep_both",
        });
        app.admin().ok("store_memory", arguments).await["id"].clone()
    };
    say("first", "The invoices of March were paid late", "2026-01-01T00:00:00Z").await;
    say("first", ALIKE[0], "2026-01-01T01:00:00Z").await;
    let after = say("first", "Anna plays the violin in an orchestra", "2026-01-01T02:00:00Z").await;
    say("second", ALIKE[1], "2026-02-01T00:00:00Z").await;
    let fact = consolidate(&app, json!({})).await["created"][0].clone();
    let found = async |more: Value| {
        let mut arguments = json!({ "scope": "user:1", "query": "Who paid the invoices of March?" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let found = app.admin().ok("recall_memory", arguments).await;
        found["memories"].as_array().unwrap().clone()
    };
    let neighbour = |memories: &[Value], id: &Value| {
        let memory = memories.iter().find(|memory| memory["id"] == *id);
        memory.map(|memory| memory["why"]["neighbour"].as_f64().unwrap())
    };
    assert!(neighbour(&found(json!({})).await, &fact) > Some(0.1));
    assert!(neighbour(&found(json!({ "query": "nightly backup of host alpha" })).await, &after) > Some(0.1));
    // It is of the sources and times of its originals, too.
    for filter in [
        json!({ "query": "backup", "source": "first" }),
        json!({ "query": "backup", "source": "second" }),
        json!({ "query": "backup", "occurred_before": "2026-01-31T00:00:00Z" }),
    ] {
        assert!(neighbour(&found(filter.clone()).await, &fact).is_some(), "{filter}");
    }
    assert_eq!(neighbour(&found(json!({ "query": "backup", "source": "third" })).await, &fact), None);
    app.stop().await;
}

#[tokio::test]
async fn what_was_looked_at_is_looked_at_again_when_an_operator_says_so() {
    let app = start().await;
    store(&app, "user:1").await;
    store(&app, "user:2").await;
    let strict = TestApp::builder().consolidating().set("CONSOLIDATION_SIMILARITY", "1").beside(&app);
    let strict = strict.start().await;
    assert_eq!(consolidate(&strict, json!({})).await["remaining"], 0);
    // With other settings it would find something, but does not look.
    assert_eq!(consolidate(&app, json!({})).await["created"], json!([]));
    let mut connection = app.database.connect().await;
    sqlx::query("update memories set kept_apart = true where content = $1 and looked_at")
        .bind(ALIKE[2])
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(app.engine.look_again().await.unwrap(), 3, "all of one scope but what is kept apart");
    let answer = consolidate(&app, json!({})).await;
    assert_eq!(answer["superseded"].as_array().unwrap().len(), 2, "{answer}");
    assert_eq!(answer["remaining"], 0);
    for replica in [strict, app] {
        replica.stop().await;
    }
}

/// A client that goes away ends its call between two facts; what is left is for the next call.
#[tokio::test]
async fn a_call_that_nobody_waits_for_ends_and_the_next_one_goes_on() {
    let app = start().await;
    store(&app, "user:1").await;
    for content in ["Bread needs flour, water and salt", "Bread needs flour, water, salt and time"] {
        app.admin().store("user:1", content).await;
    }
    let mut connection = app.database.connect().await;
    // The second fact waits for this test.
    sqlx::raw_sql(
        "create function wait() returns trigger language plpgsql as $$ begin
             if exists (select from memories where tier = 'semantic') then
                 perform pg_advisory_xact_lock(77);
             end if;
             return new;
         end $$;
         create trigger wait before insert on memories for each row when (new.tier = 'semantic') execute function wait();
         select pg_advisory_lock(77)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let client = app.admin();
    let call =
        tokio::spawn(async move { client.ok("consolidate_memories", json!({ "scope": "user:1" })).await });
    let waiting =
        "select exists (select from pg_locks where locktype = 'advisory' and objid = 77 and not granted)";
    while !sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut connection).await.unwrap() {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The server notices and says so in the audit log.
    let audited = async |connection: &mut sqlx::PgConnection| {
        app.engine.flush().await;
        sqlx::query_scalar::<_, i64>("select count(*) from memory_audit_log where outcome = 'cancelled'")
            .fetch_one(connection)
            .await
            .unwrap()
    };
    while audited(&mut connection).await == 0 {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("select pg_advisory_unlock(77); drop trigger wait on memories")
        .execute(&mut connection)
        .await
        .unwrap();
    let facts = async || {
        let listed = app.admin().ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
        listed["memories"].as_array().unwrap().len()
    };
    assert_eq!(facts().await, 1, "the fact that was under way is not there");
    let answer = consolidate(&app, json!({})).await;
    assert_eq!(
        (answer["created"].as_array().unwrap().len(), &answer["remaining"]),
        (1, &json!(0)),
        "{answer}"
    );
    assert_eq!(facts().await, 2);
    app.stop().await;
}
