//! The public contract: the tools as clients see them, and the errors as models read them.

use std::fmt::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ClientConfig};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use crate::support::{ADMIN, TestApp};

/// A tool in a few lines: what a change of the contract would change.
fn outline(tool: &Value) -> String {
    let hints = &tool["annotations"];
    let mut text = format!(
        "{} ({}) read_only={} destructive={} idempotent={} open_world={}\n",
        tool["name"].as_str().unwrap(),
        tool["title"].as_str().unwrap(),
        hints["readOnlyHint"],
        hints["destructiveHint"],
        hints["idempotentHint"],
        hints["openWorldHint"],
    );
    let required = tool["inputSchema"]["required"].as_array().cloned().unwrap_or_default();
    let mut arguments: Vec<_> = tool["inputSchema"]["properties"].as_object().unwrap().iter().collect();
    arguments.sort_by_key(|(name, _)| *name);
    for (name, schema) in arguments {
        let kind = match &schema["enum"] {
            Value::Array(choices) => {
                let choices: Vec<_> = choices.iter().map(|choice| choice.as_str().unwrap()).collect();
                choices.join("|")
            }
            _ => schema["type"].as_str().unwrap().to_owned(),
        };
        let mark = if required.contains(&json!(name)) { "" } else { "?" };
        writeln!(text, "  {name}{mark}: {kind}").unwrap();
    }
    let mut answer: Vec<_> = tool["outputSchema"]["properties"].as_object().unwrap().keys().collect();
    answer.sort();
    let answer: Vec<_> = answer.into_iter().map(String::as_str).collect();
    writeln!(text, "  -> {}", answer.join(", ")).unwrap();
    text
}

/// The one picture that is carried in the message.
fn drawn(icons: &Value) -> String {
    let [icon] = &icons.as_array().unwrap()[..] else { panic!("{icons}") };
    assert_eq!(icon["mimeType"], "image/svg+xml");
    let encoded = icon["src"].as_str().unwrap().strip_prefix("data:image/svg+xml;base64,").unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[tokio::test]
async fn the_server_has_a_title_and_a_picture() {
    let app = TestApp::start().await;
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let info = app.admin().rpc("initialize", hello).await["result"]["serverInfo"].clone();
    assert_eq!(info["title"], "memser memory");
    assert!(drawn(&info["icons"]).starts_with("<svg xmlns="), "{info}");
    app.stop().await;
}

#[tokio::test]
async fn the_tools_are_these() {
    let app = TestApp::start().await;
    let listed = app.admin().rpc("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let outlines: Vec<String> = tools.iter().map(outline).collect();
    for tool in tools {
        assert_eq!(drawn(&tool["icons"]).matches("<path d=").count(), 1, "{}", tool["name"]);
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{}", tool["name"]);
    }
    insta::assert_snapshot!(outlines.concat(), @r#"
    store_memory (Store a memory) read_only=false destructive=false idempotent=false open_world=false
      actor?: string
      content: string
      idempotency_key?: string
      metadata?: object
      occurred_at?: string
      on_conflict?: newest_wins|flag|keep_both
      replaces?: string
      scope?: string
      source?: string
      tags?: array
      ttl_seconds?: integer
      -> confidence, conflicts_with, degraded, duplicate_of, embedding, error, expires_at, id, outcome, redacted, superseded_by, supersedes, support, tier
    recall_memory (Recall memories) read_only=true destructive=false idempotent=true open_world=false
      actor?: string
      as_of?: string
      include_superseded?: boolean
      k?: integer
      max_chars?: integer
      min_score?: number
      occurred_after?: string
      occurred_before?: string
      query: string
      scope?: string
      source?: string
      tags?: array
      tags_match?: all|any
      tiers?: array
      -> degraded, error, left_out, memories
    forget_memory (Forget memories) read_only=false destructive=true idempotent=true open_world=false
      actor?: string
      all?: boolean
      dry_run?: boolean
      erase?: boolean
      memory_id?: string
      scope?: string
      tags?: array
      tier?: working|episodic|semantic
      -> complete, degraded, dry_run, erased, error, forgotten, ids, retracted
    list_memories (List memories) read_only=true destructive=false idempotent=true open_world=false
      actor?: string
      cursor?: string
      limit?: integer
      memory_id?: string
      order?: newest|oldest
      scope?: string
      source?: string
      status?: active|superseded|conflicted|pending
      tags?: array
      tags_match?: all|any
      tier?: working|episodic|semantic
      -> error, memories, next_cursor
    consolidate_memories (Consolidate memories) read_only=false destructive=false idempotent=true open_world=false
      actor?: string
      dry_run?: boolean
      scope?: string
      -> clusters, complete, created, degraded, dry_run, error, remaining, skipped, superseded, updated
    resolve_conflict (Resolve a conflict) read_only=false destructive=false idempotent=false open_world=false
      action: keep_new|keep_old|keep_both|merge|restore
      actor?: string
      content?: string
      memory_id: string
      other_id?: string
      scope?: string
      -> action, conflicts, degraded, error, merged_into, redacted, resolved, restored, superseded
    "#);
    app.stop().await;
}

#[tokio::test]
async fn errors_say_what_is_wrong_and_what_to_do() {
    let app = TestApp::builder()
        .token("bound", &["user:1=read"])
        .set("MEMSER_MAX_CONTENT_BYTES", "100")
        .start()
        .await;
    let (admin, bound) = (app.admin(), app.client("bound"));
    let first = json!({ "scope": "s", "content": "first", "idempotency_key": "k" });
    let known = admin.ok("store_memory", first).await;
    let successor = json!({ "scope": "s", "content": "second", "replaces": known["id"] });
    admin.ok("store_memory", successor).await;
    let absent = "00000000-0000-7000-8000-000000000000";
    let mut text = String::new();
    for (client, tool, arguments) in [
        (&admin, "recall_memory", json!({ "query": "q", "scope": "s", "limt": 3 })),
        (&admin, "recall_memory", json!({ "query": "q", "scope": "s", "k": "many" })),
        (&admin, "recall_memory", json!({ "query": "q" })),
        (&bound, "recall_memory", json!({ "query": "q", "scope": "user:2" })),
        (&admin, "list_memories", json!({ "scope": "s", "memory_id": absent })),
        (&admin, "store_memory", json!({ "scope": "s", "content": "third", "replaces": known["id"] })),
        (&admin, "store_memory", json!({ "scope": "s", "content": "other", "idempotency_key": "k" })),
        (&admin, "store_memory", json!({ "scope": "s", "content": "x".repeat(101) })),
    ] {
        let error = client.refused(tool, arguments).await;
        let field = error["field"].as_str().unwrap_or("-");
        let shown = |name: &str| error[name].as_str().unwrap().to_owned();
        writeln!(text, "{} [{field}] {} | {}", shown("code"), shown("message"), shown("hint")).unwrap();
    }
    insta::assert_snapshot!(text, @r#"
    invalid_argument [limt] limt is no argument of this tool | Known arguments: actor, as_of, include_superseded, k, max_chars, min_score, occurred_after, occurred_before, query, scope, source, tags, tags_match, tiers.
    invalid_argument [k] k must be a whole number | From 1 to 100. The most memories to return, 1 to 100; 10 if left out.
    invalid_argument [scope] scope is missing | This token reaches several scopes: name one.
    scope_not_granted [scope] this token has no grant for scope "user:2" | Use a scope that this token is granted, or ask the operator for a grant.
    not_found [-] no such memory in this scope | list_memories shows the ids of this scope.
    conflict [-] the memory named by replaces is superseded already | Name the memory that superseded it, or leave out replaces.
    idempotency_mismatch [idempotency_key] this idempotency_key was used before with other arguments | Use a new key for new content, or send the first call's arguments again.
    limit_exceeded [content] content has 101 bytes; the limit is 100 | Shorten it, forget what is no longer needed, or ask the operator for more.
    "#);
    app.stop().await;
}

#[tokio::test]
async fn rmcps_own_client_uses_every_tool() {
    let app = TestApp::start().await;
    let config = StreamableHttpClientTransportConfig::with_uri(app.url("/mcp")).auth_header(ADMIN);
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = ClientConfig::default().serve(transport).await.unwrap();
    assert_eq!(client.list_all_tools().await.unwrap().len(), 6);
    for (tool, arguments) in [
        ("store_memory", json!({ "scope": "s", "content": "Ravi prefers tea." })),
        ("recall_memory", json!({ "scope": "s", "query": "What does Ravi drink?" })),
        ("list_memories", json!({ "scope": "s" })),
        ("consolidate_memories", json!({ "scope": "s" })),
        ("forget_memory", json!({ "scope": "s", "all": true })),
    ] {
        let call = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
        let result = client.call_tool(call).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{tool}");
        assert!(result.structured_content.is_some(), "{tool}");
    }
    client.cancel().await.unwrap();
    app.stop().await;
}
