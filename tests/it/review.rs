//! `resolve_conflict`: decisions about contradictions, and the way back from every supersession.

use std::time::Duration;

use memser::jobs::{Ran, Sweep};
use serde_json::{Value, json};

use crate::support::client::contents;
use crate::support::{Client, TestApp};

const OLD: &str = "The staging server listens on port 8080";
const NEW: &str = "The staging server listens on port 8081";
const NEWER: &str = "The staging server listens on port 8082";

async fn store(client: &Client, content: &str, more: Value) -> Value {
    let mut arguments = json!({ "scope": "user:1", "content": content });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok("store_memory", arguments).await
}

fn review(id: &Value, action: &str, more: &Value) -> Value {
    let mut arguments = json!({ "scope": "user:1", "memory_id": id, "action": action });
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

async fn resolve(client: &Client, id: &Value, action: &str, more: Value) -> Value {
    client.ok("resolve_conflict", review(id, action, &more)).await
}

/// The contents with this status, in the order of storing.
async fn listed(client: &Client, status: &str) -> Vec<String> {
    let arguments = json!({ "scope": "user:1", "status": status, "order": "oldest", "limit": 100 });
    contents(&client.ok("list_memories", arguments).await)
}

async fn memory(client: &Client, id: &Value) -> Value {
    client.ok("list_memories", json!({ "scope": "user:1", "memory_id": id })).await["memories"][0].clone()
}

/// Two flagged memories.
async fn flagged(client: &Client) -> (Value, Value) {
    let old = store(client, OLD, json!({ "tags": ["a"] })).await["id"].clone();
    let new = store(client, NEW, json!({ "tags": ["b"], "on_conflict": "flag" })).await;
    assert_eq!(new["conflicts_with"][0]["id"], old, "{new}");
    (old, new["id"].clone())
}

#[tokio::test]
async fn a_reviewer_keeps_the_new_the_old_or_both() {
    for (action, active, superseded) in [
        ("keep_new", vec![NEW], vec![OLD]),
        ("keep_old", vec![OLD], vec![NEW]),
        ("keep_both", vec![OLD, NEW], vec![]),
    ] {
        let app = TestApp::start().await;
        let client = app.admin();
        let (old, new) = flagged(&client).await;
        // Either memory names the conflict.
        let named = if action == "keep_old" { &old } else { &new };
        let answer = resolve(&client, named, action, json!({})).await;
        assert_eq!(answer["resolved"], json!([{ "new_id": new, "old_id": old }]), "{action}");
        assert_eq!(listed(&client, "active").await, active, "{action}");
        assert_eq!(listed(&client, "superseded").await, superseded, "{action}");
        assert_eq!(listed(&client, "conflicted").await, Vec::<String>::new(), "{action}");
        let error = client.refused("resolve_conflict", review(&new, action, &json!({}))).await;
        assert_eq!(error["code"], "conflict", "{action}: {error}");
        // Said again, it is not flagged again.
        let again = store(&client, active[0], json!({ "on_conflict": "flag" })).await;
        assert_eq!((&again["outcome"], &again["conflicts_with"]), (&json!("duplicate"), &json!([])));
        app.stop().await;
    }
}

#[tokio::test]
async fn what_was_rejected_was_never_held_true() {
    let app = TestApp::start().await;
    let client = app.admin();
    store(&client, OLD, json!({})).await;
    app.clock.advance(Duration::from_hours(1));
    let new = store(&client, NEW, json!({ "on_conflict": "flag" })).await["id"].clone();
    app.clock.advance(Duration::from_hours(1));
    let between = crate::support::start_of_time() + Duration::from_mins(90);
    resolve(&client, &new, "keep_old", json!({})).await;
    let question = json!({ "scope": "user:1", "query": "staging port", "as_of": between });
    assert_eq!(contents(&client.ok("recall_memory", question).await), [OLD]);
    app.stop().await;
}

#[tokio::test]
async fn a_merge_supersedes_both_and_keeps_their_labels() {
    let app = TestApp::start().await;
    let client = app.admin();
    let (old, new) = flagged(&client).await;
    let missing = client.refused("resolve_conflict", review(&new, "merge", &json!({}))).await;
    assert_eq!((&missing["code"], &missing["field"]), (&json!("invalid_argument"), &json!("content")));
    let merged = "The staging server listens on 8080 in the old data centre and on 8081 in the new one";
    let answer = resolve(&client, &old, "merge", json!({ "content": merged })).await;
    assert_eq!(listed(&client, "active").await, [merged]);
    let superseded = answer["superseded"].as_array().unwrap();
    assert!(superseded.contains(&old) && superseded.contains(&new) && superseded.len() == 2, "{answer}");
    let memory = memory(&client, &answer["merged_into"]).await;
    assert_eq!(memory["tags"], json!(["a", "b"]));
    assert_eq!(listed(&client, "conflicted").await, Vec::<String>::new());
    app.stop().await;
}

#[tokio::test]
async fn of_two_reviewers_at_once_one_decides() {
    let app = TestApp::start().await;
    let second = TestApp::builder().beside(&app).start().await;
    let clients = [app.admin(), second.admin()];
    let (_, new) = flagged(&clients[0]).await;
    let texts =
        ["It listens on 8080 inside and 8081 outside", "The port depends on the data centre: 8080 or 8081"];
    let calls = clients.iter().zip(texts).map(|(client, text)| {
        client.call("resolve_conflict", review(&new, "merge", &json!({ "content": text })))
    });
    let outcomes = futures::future::join_all(calls).await;
    let refused: Vec<&Value> = outcomes
        .iter()
        .filter(|outcome| outcome.is_error)
        .map(|outcome| &outcome.structure["error"]["code"])
        .collect();
    assert_eq!(refused, [&json!("conflict")], "{outcomes:?}");
    assert_eq!(listed(&clients[0], "active").await.len(), 1);
    second.stop().await;
    app.stop().await;
}

#[tokio::test]
async fn of_several_conflicts_the_one_that_is_meant_is_named() {
    let app = TestApp::start().await;
    let client = app.admin();
    let (old, new) = flagged(&client).await;
    let newer = store(&client, NEWER, json!({ "on_conflict": "flag" })).await;
    assert_eq!(newer["conflicts_with"].as_array().unwrap().len(), 2, "{newer}");
    // `new` is the newer one of one conflict and the older one of another.
    let error = client.refused("resolve_conflict", review(&new, "keep_new", &json!({}))).await;
    assert_eq!(error["field"], "other_id", "{error}");
    let answer = resolve(&client, &new, "keep_new", json!({ "other_id": newer["id"] })).await;
    assert_eq!(answer["superseded"], json!([new]));
    // With `new` its conflict with `old` is settled as well; that of `old` and `newer` is not.
    assert_eq!(memory(&client, &old).await["conflicts_with"], json!([newer["id"]]));
    assert_eq!(listed(&client, "conflicted").await, [OLD, NEWER]);
    let both = resolve(&client, &newer["id"], "keep_new", json!({})).await;
    assert_eq!(both["superseded"], json!([old]));
    assert_eq!(listed(&client, "active").await, [NEWER]);
    app.stop().await;
}

#[tokio::test]
async fn restore_undoes_a_supersession_and_leaves_a_conflict_to_decide() {
    let app = TestApp::start().await;
    let client = app.admin();
    let old = store(&client, OLD, json!({})).await["id"].clone();
    let new = store(&client, NEW, json!({})).await;
    assert_eq!(new["supersedes"][0]["id"], old);
    let answer = resolve(&client, &old, "restore", json!({})).await;
    assert_eq!(answer["restored"], json!([old]));
    assert_eq!(answer["conflicts"], json!([{ "new_id": new["id"], "old_id": old }]));
    assert_eq!(listed(&client, "active").await, [OLD, NEW]);
    assert_eq!(memory(&client, &old).await["conflicts_with"], json!([new["id"]]));
    let error = client.refused("resolve_conflict", review(&old, "restore", &json!({}))).await;
    assert_eq!(error["code"], "conflict", "{error}");
    // The wrong correction steps back, and can be brought back as well.
    resolve(&client, &old, "keep_old", json!({})).await;
    assert_eq!(listed(&client, "active").await, [OLD]);
    resolve(&client, &new["id"], "restore", json!({})).await;
    resolve(&client, &new["id"], "keep_new", json!({})).await;
    assert_eq!(listed(&client, "active").await, [NEW]);
    app.stop().await;
}

#[tokio::test]
async fn restoring_the_first_of_a_chain_keeps_the_rest_true() {
    let app = TestApp::start().await;
    let client = app.admin();
    let mut ids = Vec::new();
    for content in [OLD, NEW, NEWER] {
        ids.push(store(&client, content, json!({})).await["id"].clone());
        app.clock.advance(Duration::from_hours(1));
    }
    let answer = resolve(&client, &ids[0], "restore", json!({})).await;
    assert_eq!(
        answer["conflicts"],
        json!([{ "new_id": ids[2], "old_id": ids[0] }]),
        "with what is active now"
    );
    let second = memory(&client, &ids[1]).await;
    assert_eq!((&second["superseded_by"], &second["status"]), (&ids[2], &json!("superseded")));
    assert_eq!(listed(&client, "active").await, [OLD, NEWER]);
    app.stop().await;
}

#[tokio::test]
async fn a_text_that_is_active_again_by_itself_is_not_restored_twice() {
    let app = TestApp::start().await;
    let client = app.admin();
    let first = store(&client, OLD, json!({})).await["id"].clone();
    store(&client, NEW, json!({})).await;
    let again = store(&client, OLD, json!({})).await;
    assert_eq!(again["outcome"], "superseded", "it holds again, as a memory of its own");
    let error = client.refused("resolve_conflict", review(&first, "restore", &json!({}))).await;
    assert_eq!(error["code"], "conflict");
    assert!(error["message"].as_str().unwrap().contains(again["id"].as_str().unwrap()), "{error}");
    app.stop().await;
}

#[tokio::test]
async fn restoring_an_original_takes_the_fact_apart_for_good() {
    let app = TestApp::builder().consolidating().start().await;
    let client = app.admin();
    let alike = [
        "The backup of the wiki runs every night on host alpha",
        "The backup of the wiki runs every night on host alpha safely",
        "The nightly backup of the wiki runs every night on host alpha",
    ];
    for content in alike {
        store(&client, content, json!({ "on_conflict": "keep_both" })).await;
    }
    let made = client.ok("consolidate_memories", json!({ "scope": "user:1" })).await;
    let (fact, original) = (&made["created"][0], &made["superseded"][0]);
    let answer = resolve(&client, original, "restore", json!({})).await;
    assert_eq!(answer["superseded"], json!([fact]));
    assert_eq!(answer["restored"].as_array().unwrap().len(), 3, "{answer}");
    assert_eq!(listed(&client, "active").await, alike);

    // The next consolidation leaves the restored one alone.
    assert_eq!(app.jobs.run(Sweep::Consolidate).await, Ran::Done);
    let left = memory(&client, original).await;
    assert_eq!(left["status"], "active", "{left}");
    let facts = client.ok("list_memories", json!({ "scope": "user:1", "tier": "semantic" })).await;
    let origin = facts["memories"][0]["origin"].as_array().unwrap();
    assert!(origin.len() == 2 && !origin.contains(original), "{facts}");

    // Undone once more, the first fact stands again, with its originals behind it.
    let second = &facts["memories"][0]["id"];
    client.ok("forget_memory", json!({ "scope": "user:1", "memory_id": second })).await;
    let back = resolve(&client, fact, "restore", json!({})).await;
    assert_eq!(back["restored"], json!([fact]));
    assert_eq!(memory(&client, original).await["superseded_by"], *fact);
    app.stop().await;
}

#[tokio::test]
async fn only_reviewers_see_and_use_it_and_only_in_their_scopes() {
    let app = TestApp::builder()
        .token("writer-token-0123456789", &["user:1=write", "user:2=read"])
        .token("reviewer-token-0123456789", &["user:1=review", "user:2=write"])
        .start()
        .await;
    let admin = app.admin();
    let (old, new) = flagged(&admin).await;
    let names = async |client: &Client| {
        let listed = client.rpc("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (writer, reviewer) = (app.client("writer-token-0123456789"), app.client("reviewer-token-0123456789"));
    assert!(!names(&writer).await.contains(&"resolve_conflict".to_owned()));
    assert!(names(&reviewer).await.contains(&"resolve_conflict".to_owned()));
    let params = json!({ "name": "resolve_conflict", "arguments": review(&new, "keep_new", &json!({})) });
    assert_eq!(writer.post("tools/call", params).await.status(), 403);
    // A conflict of a scope in which this token is no reviewer, and one of a scope that it cannot see at all.
    for (scope, code) in [("user:2", "action_not_granted"), ("user:3", "scope_not_granted")] {
        let mut arguments = review(&new, "keep_new", &json!({}));
        arguments["scope"] = scope.into();
        assert_eq!(reviewer.refused("resolve_conflict", arguments).await["code"], code);
    }
    // A foreign id and an absent one, by a token that may review both scopes.
    let mut answers = Vec::new();
    for id in [new.as_str().unwrap(), "00000000-0000-7000-8000-000000000000"] {
        admin.store("user:2", "Something").await;
        let arguments = json!({ "scope": "user:2", "memory_id": id, "action": "keep_old" });
        answers.push(admin.refused("resolve_conflict", arguments).await);
    }
    assert_eq!((&answers[0], &answers[0]["code"]), (&answers[1], &json!("not_found")));
    assert_eq!(listed(&admin, "conflicted").await, [OLD, NEW]);
    resolve(&reviewer, &old, "keep_old", json!({})).await;

    app.engine.flush().await;
    let mut connection = app.database.connect().await;
    let audited: Vec<String> = sqlx::query_scalar(
        "select subject || ' ' || outcome from memory_audit_log
          where action = 'resolve_conflict' and outcome <> 'not_found' order by 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let expected = [
        "reviewer-token-0123456789 action_not_granted",
        "reviewer-token-0123456789 ok",
        "reviewer-token-0123456789 scope_not_granted",
        "writer-token-0123456789 action_not_granted",
    ];
    assert_eq!(audited, expected);
    app.stop().await;
}

#[tokio::test]
async fn a_conflict_outlives_a_restart_and_ends_with_its_memories() {
    let app = TestApp::start().await;
    let (old, new) = flagged(&app.admin()).await;
    let database = app.database.clone();
    app.stop().await;
    let app = TestApp::builder().on(database).start().await;
    let client = app.admin();
    assert_eq!(memory(&client, &new).await["conflicts_with"], json!([old]));
    client.ok("forget_memory", json!({ "scope": "user:1", "memory_id": old })).await;
    assert_eq!(listed(&client, "conflicted").await, Vec::<String>::new());
    let error = client.refused("resolve_conflict", review(&new, "keep_new", &json!({}))).await;
    assert_eq!(error["code"], "conflict");
    app.stop().await;
}

#[tokio::test]
async fn wrong_reviews_are_refused_by_name() {
    let app = TestApp::start().await;
    let client = app.admin();
    let (_, new) = flagged(&client).await;
    for (arguments, field) in [
        (json!({ "memory_id": new }), "action"),
        (json!({ "action": "keep_new" }), "memory_id"),
        (json!({ "memory_id": "x", "action": "keep_new" }), "memory_id"),
        (json!({ "memory_id": new, "action": "delete" }), "action"),
        (json!({ "memory_id": new, "action": "keep_new", "content": "c" }), "content"),
        (json!({ "memory_id": new, "action": "merge", "content": " " }), "content"),
        (json!({ "memory_id": new, "action": "keep_new", "other_id": 5 }), "other_id"),
        (json!({ "memory_id": new, "action": "restore", "other_id": new }), "other_id"),
    ] {
        let mut arguments = arguments;
        arguments["scope"] = "user:1".into();
        let error = client.refused("resolve_conflict", arguments.clone()).await;
        assert_eq!(
            (&error["code"], &error["field"]),
            (&json!("invalid_argument"), &json!(field)),
            "{arguments}"
        );
    }
    assert_eq!(listed(&client, "conflicted").await, [OLD, NEW]);
    app.stop().await;
}
