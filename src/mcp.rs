//! The MCP server: the tools, their calls and what a model reads of the answers.
//!
//! The handler keeps no identity: who calls is read from the request of every call, where `http::auth` put it.

mod connector;
mod icon;
mod instructions;
mod progress;
mod prompts;
mod resources;
pub(crate) mod span;
mod subscriptions;
mod text;
mod tools;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, ContentBlock, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ResourcesCapability, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData as McpError, ServerHandler};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use self::progress::Progress;
pub use self::resources::may_watch;
pub use self::tools::ToolName;
use crate::args;
use crate::auth::Caller;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::metrics::Via;

/// How long a client may keep a list that depends on its token alone.
const LISTS_TTL: Duration = Duration::from_mins(5);
/// Serves MCP requests from the engine.
#[derive(Clone)]
pub struct Handler {
    engine: Arc<Engine>,
    connector: bool,
    call_timeout: Duration,
    stop: CancellationToken,
    shutdown: CancellationToken,
}

impl Handler {
    /// A handler that stops calls after `call_timeout`, and when `stop` is cancelled; and subscriptions at `shutdown`.
    /// `connector` says whether it offers [`ToolName::CONNECTOR`].
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        connector: bool,
        call_timeout: Duration,
        stop: CancellationToken,
        shutdown: CancellationToken,
    ) -> Self {
        Self { engine, connector, call_timeout, stop, shutdown }
    }

    /// The tools that the caller is told of.
    fn tools(&self, caller: &Caller) -> impl Iterator<Item = ToolName> {
        tools::offered(self.connector).filter(|tool| tool.is_shown_to(caller))
    }

    /// The tool of that name, if it is offered.
    fn tool(&self, name: &str) -> Option<ToolName> {
        tools::offered(self.connector).find(|tool| tool.as_str() == name)
    }

    /// Runs a call to its end, or until it is cut off: by its time limit, the shutdown, or a client that went away.
    async fn run(
        &self,
        caller: &Caller,
        tool: ToolName,
        arguments: JsonObject,
        gone: &CancellationToken,
        progress: Option<&Progress>,
    ) -> CallToolResult {
        let scope = arguments.get("scope").and_then(|scope| scope.as_str()).map(str::to_owned);
        let started = Instant::now();
        let ended = tokio::select! {
            ended = contain(self.dispatch(caller, tool, arguments, progress), self.call_timeout) => ended,
            () = self.stop.cancelled() => {
                Err(Error::Unavailable { part: "memser", source: anyhow::anyhow!("shutting down") })
            }
            () = gone.cancelled() => Err(Error::Cancelled),
        };
        // The engine audits what it refuses; a call that was cut off never came back from it.
        let result = ended.unwrap_or_else(|cut| {
            self.engine.deny(caller, tool.as_str(), cut.code(), scope.as_deref());
            Err(cut)
        });
        let outcome = result.as_ref().err().map_or("ok", Error::code);
        span::ended(&Span::current(), outcome);
        self.engine.metrics().call(tool.as_str(), Via::Mcp, outcome, started.elapsed());
        result.unwrap_or_else(|error| refusal(&error, tool, caller))
    }

    /// Runs what only reads, within the bounds of a call. What it reads is audited where it is read.
    async fn look_up<T>(
        &self,
        look: impl Future<Output = std::result::Result<T, McpError>>,
        context: &RequestContext<RoleServer>,
    ) -> std::result::Result<T, McpError> {
        tokio::select! {
            seen = contain(look, self.call_timeout) => seen.map_err(|error| protocol_error(&error))?,
            () = self.stop.cancelled() => Err(McpError::internal_error("memser is shutting down: try again", None)),
            () = context.ct.cancelled() => Err(McpError::internal_error("cancelled", None)),
        }
    }

    async fn dispatch(
        &self,
        caller: &Caller,
        tool: ToolName,
        arguments: JsonObject,
        progress: Option<&Progress>,
    ) -> Result<CallToolResult> {
        let engine = &self.engine;
        match tool {
            ToolName::Store => {
                let args = self.parse(caller, tool, arguments)?;
                answer(Box::pin(engine.store(caller, args)).await?, text::store)
            }
            ToolName::Recall => {
                let args = self.parse(caller, tool, arguments)?;
                answer(Box::pin(engine.recall(caller, args)).await?, text::recall)
            }
            ToolName::Forget => {
                let args = self.parse(caller, tool, arguments)?;
                // In time to answer: what is left is for the next call.
                let until = Instant::now() + self.call_timeout / 2;
                answer(Box::pin(engine.forget(caller, args, until)).await?, text::forget)
            }
            ToolName::List => {
                let args = self.parse(caller, tool, arguments)?;
                answer(Box::pin(engine.list(caller, args)).await?, text::list)
            }
            ToolName::Consolidate => {
                let args = self.parse(caller, tool, arguments)?;
                let until = Instant::now() + self.call_timeout / 2;
                let (told, steps) = unbounded_channel();
                let call = Box::pin(engine.consolidate(caller, args, until, told));
                answer(Progress::told(progress, steps, call).await?, text::consolidate)
            }
            ToolName::Resolve => {
                let args = self.parse(caller, tool, arguments)?;
                answer(Box::pin(engine.resolve(caller, args)).await?, text::resolve)
            }
            ToolName::Search => {
                let args = self.parse(caller, tool, arguments)?;
                verbatim(&Box::pin(connector::search(engine, caller, args)).await?)
            }
            ToolName::Fetch => {
                let args = self.parse(caller, tool, arguments)?;
                verbatim(&Box::pin(connector::fetch(engine, caller, args)).await?)
            }
        }
    }

    /// Reads the arguments; a call that fails here never reaches the engine and is audited all the same.
    fn parse<T: DeserializeOwned + JsonSchema>(
        &self,
        caller: &Caller,
        tool: ToolName,
        arguments: JsonObject,
    ) -> Result<T> {
        args::parse(arguments)
            .inspect_err(|error| self.engine.deny(caller, tool.as_str(), error.code(), None))
    }
}

/// Gives a call's end, or why it did not come to one. A panic is such a reason: rmcp never answers a call that panicked.
pub(crate) async fn contain<T>(call: impl Future<Output = T>, limit: Duration) -> Result<T> {
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(_panic)) => Err(Error::internal("the tool panicked")),
        Err(_elapsed) => Err(Error::Timeout { limit }),
    }
}

/// The structure for programs and a short text for models.
fn answer<T: Serialize>(answer: T, text: fn(&T) -> String) -> Result<CallToolResult> {
    let structure = serde_json::to_value(&answer).map_err(|error| Error::Internal(error.into()))?;
    let mut result = CallToolResult::structured(structure);
    result.content = vec![ContentBlock::text(text(&answer))];
    Ok(result)
}

/// The structure, and the same as text: what connectors read.
fn verbatim<T: Serialize>(answer: &T) -> Result<CallToolResult> {
    let structure = serde_json::to_value(answer).map_err(|error| Error::Internal(error.into()))?;
    Ok(CallToolResult::structured(structure))
}

/// An error as the caller sees it; the cause of a fault goes to the log.
fn refusal(error: &Error, tool: ToolName, caller: &Caller) -> CallToolResult {
    let (tool, request_id) = (tool.as_str(), caller.request_id.as_str());
    match error {
        Error::Internal(cause) => tracing::error!(tool, request_id, "internal error: {cause:#}"),
        Error::Unavailable { part, source } => {
            tracing::warn!(tool, request_id, part, "unavailable: {source:#}");
        }
        Error::Timeout { .. } => tracing::warn!(tool, request_id, "{error}"),
        _ => {}
    }
    let (code, hint) = (error.code(), error.hint());
    let mut shown = json!({ "code": code, "message": error.to_string(), "hint": hint });
    if let Some(field) = error.field() {
        shown["field"] = json!(field);
    }
    let mut result = CallToolResult::structured_error(json!({ "error": shown }));
    result.content = vec![ContentBlock::text(format!("{error} ({code}). {hint}"))];
    result
}

/// An error of what is no tool: the protocol has no other place for it. The cause of a fault goes to the log alone.
fn protocol_error(error: &Error) -> McpError {
    match error {
        Error::Internal(cause) => tracing::error!("internal error: {cause:#}"),
        Error::Unavailable { part, source } => tracing::warn!(part, "unavailable: {source:#}"),
        _ => {}
    }
    let data = json!({ "code": error.code(), "field": error.field(), "hint": error.hint() });
    let message = format!("{error}. {}", error.hint());
    match error {
        Error::Unavailable { .. } | Error::Timeout { .. } | Error::Internal(_) => {
            McpError::internal_error(message, Some(data))
        }
        _ => McpError::invalid_params(message, Some(data)),
    }
}

/// Refuses a cursor where there is one page.
fn one_page(request: Option<PaginatedRequestParams>) -> std::result::Result<(), McpError> {
    match request.and_then(|request| request.cursor) {
        Some(_) => Err(McpError::invalid_params("unknown cursor: this list has one page", None)),
        None => Ok(()),
    }
}

fn lists_ttl() -> u64 {
    u64::try_from(LISTS_TTL.as_millis()).unwrap_or(u64::MAX)
}

/// Who calls, as the HTTP layer found out for this very request.
fn caller(context: &RequestContext<RoleServer>) -> std::result::Result<&Caller, McpError> {
    extension(context)
}

/// What the HTTP layer left with the request.
fn extension<T: Send + Sync + 'static>(
    context: &RequestContext<RoleServer>,
) -> std::result::Result<&T, McpError> {
    let parts = context.extensions.get::<http::request::Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<T>())
        .ok_or_else(|| McpError::internal_error("the request lacks what the HTTP layer leaves with it", None))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("memser", env!("CARGO_PKG_VERSION"))
            .with_title("memser memory")
            .with_icons(icon::server());
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .build();
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(instructions::GENERAL)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<InitializeResult, McpError> {
        let mut result =
            self.negotiate_initialize(&request)?.with_instructions(instructions::of(caller(&context)?));
        // Whoever shakes hands speaks a revision in which changes are told within a session, and there is none.
        result.capabilities.resources = Some(ResourcesCapability::default());
        context.peer.set_peer_info(request);
        Ok(result)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<DiscoverResult, McpError> {
        let info = self.get_info().with_instructions(instructions::of(caller(&context)?));
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), info))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, McpError> {
        one_page(request)?;
        let tools = self.tools(caller(&context)?).map(|tool| tools::definition(tool).clone());
        Ok(ListToolsResult::with_all_items(tools.collect())
            .with_ttl_ms(lists_ttl())
            .with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, McpError> {
        let caller = caller(&context)?;
        let Some(tool) = self.tool(&request.name) else {
            let known = self.tools(caller).map(ToolName::as_str).collect::<Vec<_>>().join(", ");
            return Err(ErrorData::invalid_params(format!("unknown tool; the tools are {known}"), None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let progress = Progress::asked_for(&context);
        let span = span::of_tool(&context, tool);
        Ok(self.run(caller, tool, arguments, &context.ct, progress.as_ref()).instrument(span).await.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListPromptsResult, McpError> {
        one_page(request)?;
        Ok(ListPromptsResult::with_all_items(prompts::shown_to(caller(&context)?))
            .with_ttl_ms(lists_ttl())
            .with_cache_scope(CacheScope::Private))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<GetPromptResponse, McpError> {
        let arguments = request.arguments.unwrap_or_default();
        let prompt = Box::pin(prompts::get(&self.engine, caller(&context)?, &request.name, arguments));
        Ok(self.look_up(prompt, &context).await?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CompleteResult, McpError> {
        self.look_up(Box::pin(prompts::complete(&self.engine, caller(&context)?, &request)), &context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, McpError> {
        let cursor = request.and_then(|request| request.cursor);
        self.look_up(Box::pin(resources::list(&self.engine, caller(&context)?, cursor.as_deref())), &context)
            .await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, McpError> {
        one_page(request)?;
        Ok(resources::templates().with_ttl_ms(lists_ttl()).with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, McpError> {
        let memory = Box::pin(resources::read(&self.engine, caller(&context)?, &request.uri));
        Ok(self.look_up(memory, &context).await?.into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // rmcp takes out what the capabilities do not name, and `http::listen` what the caller may not read.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> std::result::Result<(), McpError> {
        subscriptions::listen(&context, &self.shutdown).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tool(name).map(|tool| tools::definition(tool).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panics_and_time_outs_are_answers() {
        let panicked = contain::<()>(async { panic!("a fault") }, Duration::from_secs(5)).await;
        assert_eq!(panicked.unwrap_err().code(), "internal");
        let stopped = contain(std::future::pending::<()>(), Duration::from_millis(1)).await;
        assert_eq!(stopped.unwrap_err().code(), "timeout");
    }

    #[test]
    fn an_internal_error_shows_neither_its_cause_nor_its_text() {
        let caller = Caller { subject: "s".to_owned(), grants: vec![], request_id: "r".to_owned() };
        let error = Error::Internal(anyhow::anyhow!("select secret"));
        let shown = serde_json::to_string(&refusal(&error, ToolName::Store, &caller)).unwrap();
        assert!(!shown.contains("secret") && shown.contains("\"isError\":true"), "{shown}");
        let error = Error::invalid("k", "k is out of range: 0", "From 1 to 100.");
        let shown = refusal(&error, ToolName::Recall, &caller);
        assert_eq!(shown.structured_content.unwrap()["error"]["field"], "k");
    }
}
