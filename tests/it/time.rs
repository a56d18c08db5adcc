//! When things held: the order of events is not the order of storing.

use serde_json::{Value, json};

use crate::support::client::contents;
use crate::support::{Client, TestApp};

/// The same fact with another value for each.
fn port(number: u32) -> String {
    format!("The staging server listens on port {number}")
}

/// Stores what held from a day of January 2026 on.
async fn store(client: &Client, number: u32, day: u32) -> Value {
    let arguments = json!({ "scope": "user:1", "content": port(number), "occurred_at": format!("2026-01-{day:02}T00:00:00Z") });
    client.ok("store_memory", arguments).await
}

/// What was held true on a day.
async fn held(client: &Client, day: u32) -> Vec<String> {
    let as_of = format!("2026-01-{day:02}T12:00:00Z");
    let question = json!({ "scope": "user:1", "query": "staging server port", "as_of": as_of });
    let mut held = contents(&client.ok("recall_memory", question).await);
    held.sort();
    held
}

async fn active(client: &Client) -> Vec<String> {
    contents(&client.ok("list_memories", json!({ "scope": "user:1" })).await)
}

#[tokio::test]
async fn an_older_event_that_arrives_later_is_history() {
    let app = TestApp::start().await;
    let client = app.admin();
    let newer = store(&client, 8081, 20).await;
    let older = store(&client, 8080, 10).await;
    assert_eq!((&older["outcome"], &older["supersedes"]), (&json!("stored"), &json!([])));
    assert_eq!(older["superseded_by"], newer["id"]);
    assert_eq!(active(&client).await, [port(8081)]);
    assert_eq!(held(&client, 5).await, Vec::<String>::new());
    assert_eq!(held(&client, 15).await, [port(8080)]);
    assert_eq!(held(&client, 25).await, [port(8081)]);
    app.stop().await;
}

#[tokio::test]
async fn every_order_of_arrival_tells_the_same_history() {
    let events = [(8080, 10), (8081, 15), (8082, 20)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let app = TestApp::start().await;
        let client = app.admin();
        for at in order {
            store(&client, events[at].0, events[at].1).await;
        }
        assert_eq!(active(&client).await, [port(8082)], "{order:?}");
        for (day, number) in [(12, 8080), (17, 8081), (25, 8082)] {
            assert_eq!(held(&client, day).await, [port(number)], "{order:?} on day {day}");
        }
        app.stop().await;
    }
}

#[tokio::test]
async fn a_batch_of_events_told_again_adds_nothing() {
    let app = TestApp::start().await;
    let client = app.admin();
    let events = [(8080, 10), (8081, 15), (8082, 20)];
    let mut ids = Vec::new();
    for (number, day) in events {
        ids.push(store(&client, number, day).await["id"].clone());
    }
    for (at, (number, day)) in events.into_iter().enumerate() {
        let again = store(&client, number, day).await;
        assert_eq!((&again["outcome"], &again["id"]), (&json!("duplicate"), &ids[at]));
        assert_eq!(again["support"], 2);
        assert_eq!(again["superseded_by"], ids.get(at + 1).cloned().unwrap_or(Value::Null), "{again}");
    }
    assert_eq!(active(&client).await, [port(8082)]);
    for (day, number) in [(12, 8080), (17, 8081), (25, 8082)] {
        assert_eq!(held(&client, day).await, [port(number)]);
    }
    app.stop().await;
}

#[tokio::test]
async fn what_holds_again_is_a_memory_of_its_own() {
    let app = TestApp::start().await;
    let client = app.admin();
    for (number, day) in [(8080, 10), (8081, 15), (8080, 20)] {
        assert_ne!(store(&client, number, day).await["outcome"], "duplicate");
    }
    assert_eq!(active(&client).await, [port(8080)]);
    for (day, number) in [(12, 8080), (17, 8081), (25, 8080)] {
        assert_eq!(held(&client, day).await, [port(number)], "day {day}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_statement_without_a_time_is_of_now() {
    let app = TestApp::start().await;
    let client = app.admin();
    // Even where an event is to come: nobody would look for the newest statement in the history.
    let coming = json!({ "scope": "user:1", "content": port(8080), "occurred_at": "2027-01-01T00:00:00Z" });
    client.ok("store_memory", coming).await;
    let now = client.ok("store_memory", json!({ "scope": "user:1", "content": port(8081) })).await;
    assert_eq!((&now["outcome"], &now["superseded_by"]), (&json!("superseded"), &Value::Null));
    assert_eq!(active(&client).await, [port(8081)]);
    app.stop().await;
}

#[tokio::test]
async fn a_correction_of_history_names_what_it_corrects() {
    let app = TestApp::start().await;
    let client = app.admin();
    let newer = store(&client, 8082, 20).await;
    let wrong = client
        .ok("store_memory", json!({ "scope": "user:1", "content": "Anna moved to Oslo", "occurred_at": "2026-01-05T00:00:00Z" }))
        .await;
    // It corrects one memory and contradicts a newer one: it must not disappear behind that.
    let arguments = json!({
        "scope": "user:1", "content": port(8081), "occurred_at": "2026-01-10T00:00:00Z", "replaces": wrong["id"],
    });
    let correction = client.ok("store_memory", arguments).await;
    assert_eq!(correction["supersedes"][0]["id"], wrong["id"], "{correction}");
    assert_eq!(correction["conflicts_with"][0]["id"], newer["id"], "{correction}");
    assert_eq!(active(&client).await.len(), 2);
    app.stop().await;
}
