//! memser with what the official MCP conformance suite wants of a server beside its own tools: tools, prompts and
//! resources with fixed answers, behind memser's own HTTP layers. Only `make conformance` runs it; everything that is not
//! the suite's goes to memser.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::Result;
use memser::app;
use memser::clock::Clock;
use memser::config::{Config, Source};
use memser::mcp::Handler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, DiscoverResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig, SubscriptionFilter,
    Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

type Answer<T> = std::result::Result<T, ErrorData>;
type Context = RequestContext<RoleServer>;

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
/// A client lacks a capability that it would need (revision 2026-07-28).
const MISSING_CAPABILITY: ErrorCode = ErrorCode(-32021);
/// The tools. What they are called with does not matter.
const TOOLS: [&str; 12] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "json_schema_2020_12_tool",
    "test_header_argument",
];

#[tokio::main]
async fn main() -> Result<()> {
    let config = Config::parse(&Source::from_process(None)?)?;
    let telemetry = memser::telemetry::start(&config.telemetry)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let app = app::build_with(config, Clock::System, WithFixtures).await?;
    println!("memser serves MCP at {}", app.welcome().mcp_url);
    let served = app
        .run_until(async move {
            terminate.recv().await;
        })
        .await;
    telemetry.stop().await;
    served
}

#[derive(Clone)]
struct WithFixtures(Handler);

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } })
}

/// What a tool takes.
fn schema(name: &str) -> Value {
    let text = json!({ "type": "string" });
    match name {
        // Words of the dialect that a server may not lose on the way.
        "json_schema_2020_12_tool" => json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": { "$anchor": "address", "type": "object", "properties": { "city": text } }
            },
            "properties": { "home": { "$ref": "#/$defs/address" }, "phone": text, "email": text },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": { "required": ["phone"] },
            "then": { "properties": { "email": false } },
            "else": { "required": ["email"] },
            "additionalProperties": false
        }),
        // Its argument is repeated in the header Mcp-Param-Region.
        "test_header_argument" => json!({
            "type": "object",
            "properties": { "region": { "type": "string", "x-mcp-header": "Region" } }
        }),
        _ => json!({ "type": "object" }),
    }
}

fn described(name: &str) -> Answer<Tool> {
    made(json!({ "name": name, "description": "A fixture", "inputSchema": schema(name) }))
}

/// What the suite's own reference server answers.
fn tool(name: &str) -> Option<Value> {
    Some(match name {
        "test_image_content" => json!({ "content": [image()] }),
        "test_audio_content" => {
            json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] })
        }
        "test_embedded_resource" => {
            let words = "This is an embedded resource content.";
            json!({ "content": [resource("test://embedded-resource", "text/plain", words)] })
        }
        "test_multiple_content_types" => {
            let data = resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            );
            json!({ "content": [text("Multiple content types test:"), image(), data] })
        }
        "test_error_handling" => {
            let words = "This tool intentionally returns an error for testing";
            json!({ "content": [text(words)], "isError": true })
        }
        name if TOOLS.contains(&name) => {
            json!({ "content": [text("This is a simple text response for testing.")] })
        }
        _ => return None,
    })
}

fn contents(uri: &str) -> Option<Value> {
    let contents = match uri {
        "test://static-text" => {
            json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
        }
        "test://static-binary" => json!({ "mimeType": "image/png", "blob": PNG }),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "mimeType": "application/json", "text": data.to_string() })
        }
    };
    let mut contents = json!({ "contents": [contents] });
    contents["contents"][0]["uri"] = json!(uri);
    Some(contents)
}

fn prompt(name: &str, arguments: &Value) -> Option<Value> {
    let argument = |name: &str| arguments[name].as_str().unwrap_or_default();
    let contents = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1"), argument("arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => vec![
            resource(argument("resourceUri"), "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        _ => return None,
    };
    let message = |content| json!({ "role": "user", "content": content });
    Some(json!({ "messages": contents.into_iter().map(message).collect::<Vec<_>>() }))
}

fn made<T: DeserializeOwned>(value: Value) -> Answer<T> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// What answers a request.
fn result<T: DeserializeOwned>(mut value: Value) -> Answer<T> {
    value["resultType"] = json!("complete");
    made(value)
}

/// Three steps, for a client that asked to be told of them.
async fn progress(context: &Context) -> Answer<()> {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let step = ProgressNotificationParam::new(token, done).with_total(100.0);
            let sent = context.peer.notify_progress(step).await;
            sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

impl ServerHandler for WithFixtures {
    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Answer<ListToolsResult> {
        let mut listed = self.0.list_tools(page, context).await?;
        for name in TOOLS {
            listed.tools.push(described(name)?);
        }
        Ok(listed)
    }

    async fn call_tool(&self, call: CallToolRequestParams, context: Context) -> Answer<CallToolResponse> {
        let Some(found) = tool(&call.name) else {
            return self.0.call_tool(call, context).await;
        };
        match &*call.name {
            "test_missing_capability" => {
                let missing = json!({ "requiredCapabilities": { "sampling": {} } });
                return Err(ErrorData::new(MISSING_CAPABILITY, "sampling is needed", Some(missing)));
            }
            "test_tool_with_progress" => progress(&context).await?,
            _ => {}
        }
        Ok(result::<CallToolResult>(found)?.into())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Answer<ListPromptsResult> {
        let mut listed = self.0.list_prompts(page, context).await?;
        listed.prompts.push(made(json!({ "name": "test_simple_prompt", "description": "A fixture" }))?);
        Ok(listed)
    }

    async fn get_prompt(&self, call: GetPromptRequestParams, context: Context) -> Answer<GetPromptResponse> {
        match prompt(&call.name, &json!(call.arguments)) {
            Some(found) => Ok(result::<GetPromptResult>(found)?.into()),
            None => self.0.get_prompt(call, context).await,
        }
    }

    async fn complete(&self, call: CompleteRequestParams, context: Context) -> Answer<CompleteResult> {
        if json!(call.r#ref)["name"] == "test_prompt_with_arguments" {
            return result(json!({ "completion": { "values": ["testing"] } }));
        }
        self.0.complete(call, context).await
    }

    async fn read_resource(
        &self,
        call: ReadResourceRequestParams,
        context: Context,
    ) -> Answer<ReadResourceResponse> {
        let Some(found) = contents(&call.uri) else {
            return self.0.read_resource(call, context).await;
        };
        let found: ReadResourceResult = result(found)?;
        Ok(found.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
    }

    /// By this, rmcp knows which headers repeat arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        if TOOLS.contains(&name) { described(name).ok() } else { self.0.get_tool(name) }
    }

    // The rest is memser's.

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Answer<InitializeResult> {
        self.0.initialize(request, context).await
    }

    async fn discover(&self, context: Context) -> Answer<DiscoverResult> {
        self.0.discover(context).await
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Answer<ListResourcesResult> {
        self.0.list_resources(page, context).await
    }

    async fn list_resource_templates(
        &self,
        page: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Answer<ListResourceTemplatesResult> {
        self.0.list_resource_templates(page, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.0.accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Answer<()> {
        self.0.listen(context).await
    }
}
