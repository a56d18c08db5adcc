//! Each tool, through MCP.

use serde_json::json;

use crate::support::TestApp;

#[tokio::test]
async fn what_was_stored_is_recalled() {
    let app = TestApp::start().await;
    let client = app.admin();
    client.store("user:1", "Anna moved to Lisbon in March 2025.").await;
    client.store("user:1", "The deployment pipeline runs on Buildkite.").await;
    let found = client.recall("user:1", "Where does Anna live?").await;
    assert_eq!(found.first().map(String::as_str), Some("Anna moved to Lisbon in March 2025."));
    app.stop().await;
}

#[tokio::test]
async fn forgetting_needs_a_selector() {
    let app = TestApp::start().await;
    let error = app.admin().refused("forget_memory", json!({ "scope": "user:1" })).await;
    assert_eq!(error["code"], "invalid_argument");
    app.stop().await;
}
