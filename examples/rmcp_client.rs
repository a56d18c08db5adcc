//! memser from Rust, with the client of `rmcp`: lists the tools, uses each and looks at an error.
//!
//! ```sh
//! MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… cargo run --example rmcp_client
//! ```

use anyhow::{Context, Result, bail, ensure};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

type Client = RunningService<RoleClient, ClientConfig>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("MEMSER_URL").context("MEMSER_URL is not set")?;
    let token = std::env::var("MEMSER_TOKEN").context("MEMSER_TOKEN is not set")?;

    // `auth_header` is the token alone; rmcp puts "Bearer" before it.
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{url}/mcp")).auth_header(token);
    let client = ClientConfig::default().serve(StreamableHttpClientTransport::from_config(config)).await?;

    let tools = client.list_all_tools().await?;
    // The sixth is shown to tokens with review rights, as this one has.
    ensure!(tools.len() == 6, "six tools expected, not {}", tools.len());

    // A scope is made by the first store; this one is a new one in each run.
    let scope = format!("example:rmcp-{}", std::process::id());

    let stored = ok(
        &client,
        "store_memory",
        json!({ "scope": scope, "content": "Ada moved the release review to Thursdays.", "tags": ["schedule"] }),
    )
    .await?;
    ensure!(stored["outcome"] == "stored", "not stored: {stored}");
    let id = &stored["id"];

    let question = json!({ "scope": scope, "query": "When is the release review?" });
    let recalled = ok(&client, "recall_memory", question).await?;
    ensure!(recalled["memories"][0]["id"] == *id, "not recalled: {recalled}");

    let listed = ok(&client, "list_memories", json!({ "scope": scope, "tags": ["schedule"] })).await?;
    ensure!(listed["memories"][0]["id"] == *id, "not listed: {listed}");

    ok(&client, "consolidate_memories", json!({ "scope": scope, "dry_run": true })).await?;

    let correction = json!({ "scope": scope, "content": "The review is on Fridays.", "replaces": id });
    let corrected = ok(&client, "store_memory", correction).await?;
    ensure!(corrected["supersedes"][0]["id"] == *id, "not superseded: {corrected}");
    let undo = json!({ "scope": scope, "memory_id": id, "action": "restore" });
    let restored = ok(&client, "resolve_conflict", undo).await?;
    ensure!(restored["restored"] == json!([id]), "not restored: {restored}");

    let forgotten = ok(&client, "forget_memory", json!({ "scope": scope, "memory_id": id })).await?;
    ensure!(forgotten["ids"] == json!([id]), "not forgotten: {forgotten}");

    // What the caller can put right is an answer with `isError` and a code, not a failure of the protocol.
    let refused =
        call(&client, "recall_memory", json!({ "scope": scope, "query": "review", "k": 0 })).await?;
    let error = refused.structured_content.context("an error without structuredContent")?;
    ensure!(refused.is_error == Some(true), "k = 0 was accepted");
    ensure!(error["error"]["code"] == "invalid_argument", "another code: {error}");
    ensure!(error["error"]["field"] == "k", "another field: {error}");

    client.cancel().await?;
    Ok(())
}

async fn call(client: &Client, tool: &'static str, arguments: Value) -> Result<CallToolResult> {
    let Value::Object(arguments) = arguments else { bail!("arguments are an object") };
    Ok(client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?)
}

/// The `structuredContent` of a call that succeeds.
async fn ok(client: &Client, tool: &'static str, arguments: Value) -> Result<Value> {
    let result = call(client, tool, arguments).await?;
    ensure!(result.is_error != Some(true), "{tool}: {:?}", result.content);
    result.structured_content.with_context(|| format!("{tool} without structuredContent"))
}
