//! Every condition of a recall in every arm: words, meaning, neighbours, originals and the working tier.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use memser::db::recall::{Asked, Filter, by_meaning, by_words, size};
use memser::db::space::Space;
use memser::db::{Db, Pooler, ScopeId, Tx};
use memser::text;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::support::client::contents;
use crate::support::rows::Row;
use crate::support::{Client, TestApp, bulk, start_of_time};

const SCOPE: &str = "user:1";

async fn recall(client: &Client, query: &str, filter: &Value) -> Value {
    let mut question = json!({ "scope": SCOPE, "query": query });
    question.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
    client.ok("recall_memory", question).await
}

async fn run(connection: &mut PgConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

/// Day 0 is the first of what is stored here.
fn day(number: i64) -> DateTime<Utc> {
    start_of_time() - TimeDelta::days(100 - number)
}

/// Five memories that words and meaning find alike, and that differ in everything that a condition looks at. The last
/// two are history: one was replaced on day 10, one consolidated into the third on day 11.
async fn five(app: &TestApp) -> [Uuid; 5] {
    type Made = (&'static str, &'static [&'static str], Option<&'static str>, Option<i64>);
    let made: [Made; 5] = [
        ("The kettle is blue", &["a"], Some("chat"), None),
        ("The kettle is loud", &["a", "b"], Some("mail"), None),
        ("The kettle is old", &["b"], Some("chat"), None),
        ("The kettle is new", &[], None, Some(10)),
        ("The kettle is rusty", &[], Some("chat"), Some(11)),
    ];
    let ids = [1, 2, 3, 4, 5].map(Uuid::from_u128);
    let rows = made.iter().zip(ids).zip(1..).map(|(((content, tags, source, end), id), number)| Row {
        id,
        content: (*content).to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        source: source.map(str::to_owned),
        seq: number,
        created_at: start_of_time(),
        occurred_at: Some(day(number)),
        valid_to: end.map(day),
        vector: Some(vec![1.0, 0.0]),
    });
    bulk::store_rows(app, &[(SCOPE, rows.collect())]).await;
    let mut connection = app.database.connect().await;
    run(
        &mut connection,
        "update memories set tier = 'semantic' where content like '%old';
         update memories set superseded_reason = 'consolidated', superseded_by =
                (select id from memories where content like '%old') where content like '%rusty'",
    )
    .await;
    ids
}

#[tokio::test]
async fn words_and_meaning_obey_every_condition() {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", "2").start().await;
    let ids = five(&app).await;
    let db = Db::new(app.database.url.parse().unwrap(), 1, Pooler::None);
    let mut connection = app.database.connect().await;
    let scope =
        ScopeId(sqlx::query_scalar("select scope_id from scopes").fetch_one(&mut connection).await.unwrap());
    let mut tx = Tx::for_scope(&db, scope).await.unwrap();
    let (size, active) = size(&mut tx, scope).await.unwrap();
    let space = Space { id: active, dimensions: 2 };
    let terms = text::query_words("kettle").concat();
    let numbers = vec![0; terms.len()];
    let asked = Asked { terms: &terms, words: &numbers, k1: 1.2, b: 0.75 };
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    let none = Filter::default;
    let half = TimeDelta::hours(12);
    for (name, filter, expected) in [
        ("nothing", none(), &[1, 2, 3][..]),
        ("superseded", Filter { superseded: true, ..none() }, &[1, 2, 3, 4, 5]),
        ("originals", Filter { originals: true, ..none() }, &[1, 2, 3, 5]),
        ("a tag", Filter { tags: tags(&["a"]), ..none() }, &[1, 2]),
        ("both tags", Filter { tags: tags(&["a", "b"]), ..none() }, &[2]),
        ("either tag", Filter { tags: tags(&["a", "b"]), any_tag: true, ..none() }, &[1, 2, 3]),
        ("source", Filter { source: Some("chat".to_owned()), ..none() }, &[1, 3]),
        ("semantic", Filter { tiers: tags(&["semantic"]), ..none() }, &[3]),
        ("episodic", Filter { tiers: tags(&["episodic"]), ..none() }, &[1, 2]),
        ("after", Filter { occurred_after: Some(day(2)), ..none() }, &[2, 3]),
        ("before", Filter { occurred_before: Some(day(2)), ..none() }, &[1]),
        ("early", Filter { as_of: Some(day(1) + half), ..none() }, &[1]),
        ("before the ends", Filter { as_of: Some(day(6)), ..none() }, &[1, 2, 3, 4, 5]),
        ("between the ends", Filter { as_of: Some(day(10) + half), ..none() }, &[1, 2, 3, 5]),
        ("at an end", Filter { as_of: Some(day(11)), originals: true, ..none() }, &[1, 2, 3]),
        ("then, with history", Filter { as_of: Some(day(1)), superseded: true, ..none() }, &[1]),
    ] {
        let expected: BTreeSet<Uuid> = expected.iter().map(|number| ids[number - 1]).collect();
        let words = by_words(&mut tx, scope, asked, None, &filter, 50).await.unwrap();
        assert_eq!(words.hits.iter().map(|hit| hit.id).collect::<BTreeSet<_>>(), expected, "words: {name}");
        let near = by_meaning(&mut tx, scope, space, &[0.8, 0.6], size, &filter, 50).await.unwrap();
        assert_eq!(near.iter().map(|hit| hit.id).collect::<BTreeSet<_>>(), expected, "meaning: {name}");
    }
    drop(tx);
    db.close().await;
    app.stop().await;
}

/// The neighbour has no word of the question and no vector: it comes as a neighbour or not at all. A source needs no test
/// here, because neighbours have the same one.
#[tokio::test]
async fn neighbours_obey_every_condition() {
    let app = TestApp::start().await;
    let client = app.admin();
    let (anchor, neighbour) = ("The kettle was descaled", "Works again");
    for content in [anchor, neighbour] {
        let arguments = json!({
            "scope": SCOPE, "content": content, "source": "chat", "tags": ["a", "b"],
            "occurred_at": "2026-01-10T00:00:00Z",
        });
        client.ok("store_memory", arguments).await;
    }
    let mut connection = app.database.connect().await;
    let of_neighbour = format!("where content = '{neighbour}'");
    run(
        &mut connection,
        &format!("delete from memory_embedding where memory_id = (select id from memories {of_neighbour})"),
    )
    .await;
    let ended = "valid_to = '2026-01-14', superseded_reason = 'replaced'";
    for (filter, change) in [
        (json!({ "tags": ["a", "b"] }), "tags = '{a}'"),
        (json!({ "tags": ["a", "b"], "tags_match": "any" }), "tags = '{c}'"),
        (json!({ "tiers": ["episodic"] }), "tier = 'semantic'"),
        (json!({ "occurred_after": "2026-01-10T00:00:00Z" }), "occurred_at = '2026-01-09'"),
        (json!({ "occurred_before": "2026-01-11T00:00:00Z" }), "occurred_at = '2026-01-11'"),
        (json!({ "as_of": "2026-01-15T00:00:00Z" }), "valid_from = '2026-01-16'"),
        (json!({ "as_of": "2026-01-15T00:00:00Z" }), ended),
        (json!({}), ended),
    ] {
        let found = contents(&recall(&client, "kettle", &filter).await);
        assert_eq!(found, [anchor, neighbour], "{filter}");
        run(&mut connection, &format!("update memories set {change} {of_neighbour}")).await;
        let found = contents(&recall(&client, "kettle", &filter).await);
        assert_eq!(found, [anchor], "{filter}, {change}");
        if change == ended {
            let before = recall(&client, "kettle", &json!({ "as_of": "2026-01-13T00:00:00Z" })).await;
            assert_eq!(contents(&before), [anchor, neighbour], "it held then");
            let all = recall(&client, "kettle", &json!({ "include_superseded": true })).await;
            assert_eq!(contents(&all), [anchor, neighbour]);
        }
        run(
            &mut connection,
            &format!(
                "update memories set tags = '{{a,b}}', tier = 'episodic', occurred_at = '2026-01-10',
                        valid_from = '2026-01-10', valid_to = null, superseded_reason = null {of_neighbour}"
            ),
        )
        .await;
    }
    let both = recall(&client, "kettle", &json!({})).await;
    let least = both["memories"][1]["score"].as_f64().unwrap();
    let better = recall(&client, "kettle", &json!({ "min_score": least + 0.01 })).await;
    assert_eq!(contents(&better), [anchor]);
    let shorter = recall(&client, "kettle", &json!({ "max_chars": anchor.len() + 1 })).await;
    assert_eq!((contents(&shorter), &shorter["left_out"]), (vec![anchor.to_owned()], &json!(1)));
    app.stop().await;
}

/// An original lends its fact a score, and its source and time; in all else the fact has to be what is asked for.
#[tokio::test]
async fn a_fact_that_its_original_speaks_for_obeys_every_condition() {
    let app = TestApp::builder().set("EMBEDDING_DIMENSIONS", "2").start().await;
    let client = app.admin();
    five(&app).await;
    let mut connection = app.database.connect().await;
    // Found by nothing of its own.
    run(
        &mut connection,
        "delete from memory_embedding;
         delete from memory_term where memory_id = (select id from memories where content like '%old')",
    )
    .await;
    let fact = "The kettle is old";
    assert_eq!(contents(&recall(&client, "rusty", &json!({})).await)[0], fact);
    let lent = recall(&client, "rusty", &json!({ "min_score": 0.5 })).await;
    assert_eq!(contents(&lent), [fact], "{lent}");
    // The fact is of day 3 and has the original of day 5.
    let since = recall(&client, "rusty", &json!({ "occurred_after": day(5) })).await;
    assert_eq!(contents(&since), [fact]);
    for filter in [
        json!({ "occurred_after": day(6) }),
        // Its own day counts, but what is asked for is the word of the original.
        json!({ "occurred_before": day(4) }),
        json!({ "tiers": ["episodic"] }),
        json!({ "tags": ["a"] }),
        json!({ "source": "mail" }),
        json!({ "min_score": 1 }),
    ] {
        let found = contents(&recall(&client, "rusty", &filter).await);
        assert!(!found.contains(&fact.to_owned()), "{filter}: {found:?}");
    }
    // When the original still held, it was no original.
    let then = contents(&recall(&client, "rusty", &json!({ "as_of": day(10) })).await);
    assert_eq!(then[0], "The kettle is rusty");
    app.stop().await;
}

#[tokio::test]
async fn the_working_tier_obeys_every_condition() {
    for builder in [TestApp::builder(), TestApp::builder().redis()] {
        let app = builder.start().await;
        let client = app.admin();
        let at = |time: &str| json!({ "ttl_seconds": 60, "occurred_at": time });
        let tagged = |tags: &[&str]| json!({ "ttl_seconds": 60, "tags": tags });
        let from = |source: &str| json!({ "ttl_seconds": 60, "source": source });
        let (earlier, later) = ("2026-01-09T00:00:00Z", "2026-01-11T00:00:00Z");
        let cases = [
            (json!({ "tags": ["a", "b"] }), tagged(&["a", "b"]), tagged(&["a"])),
            (json!({ "tags": ["a", "b"], "tags_match": "any" }), tagged(&["b"]), tagged(&["c"])),
            (json!({ "source": "chat" }), from("chat"), from("mail")),
            (json!({ "occurred_after": later }), at(later), at(earlier)),
            (json!({ "occurred_before": later }), at(earlier), at(later)),
            (json!({ "as_of": "2026-01-10T00:00:00Z" }), at(earlier), at(later)),
            (json!({ "tiers": ["working"] }), json!({ "ttl_seconds": 60 }), json!({})),
            (json!({ "tiers": ["episodic", "semantic"] }), json!({}), json!({ "ttl_seconds": 60 })),
        ];
        let (right, wrong) = ("Descale the kettle soon", "Put some tea beside the kettle");
        for (number, (filter, fits, fails)) in cases.into_iter().enumerate() {
            let scope = format!("user:{number}");
            for (content, mut arguments) in [(right, fits), (wrong, fails)] {
                arguments["scope"] = json!(scope);
                arguments["content"] = json!(content);
                client.ok("store_memory", arguments).await;
            }
            assert_eq!(client.recall(&scope, "kettle").await.len(), 2, "{filter}");
            let mut question = filter.clone();
            question["scope"] = json!(scope);
            question["query"] = json!("kettle");
            let found = client.ok("recall_memory", question.clone()).await;
            assert_eq!(contents(&found), [right], "{filter}");
            let reached = found["memories"][0]["score"].as_f64().unwrap();
            // Not just above what it reached: a recall is counted, and that may lift it a little by then.
            question["min_score"] = json!(1);
            assert_eq!(contents(&client.ok("recall_memory", question.clone()).await), Vec::<String>::new());
            question["min_score"] = json!(reached - 0.001);
            question["max_chars"] = json!(right.len() - 1);
            let cut = client.ok("recall_memory", question).await;
            assert_eq!((contents(&cut).len(), &cut["left_out"]), (0, &json!(1)), "{filter}");
        }
        app.stop().await;
    }
}
