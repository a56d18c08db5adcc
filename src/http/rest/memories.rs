//! Memories: store, get, list, recall, forget.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::call::{Given, Rest, answer, tagged};
use super::problem::Problem;
use crate::api::{
    ForgetAnswer, ForgetArgs, ListAnswer, ListArgs, MemoryView, RecallAnswer, RecallArgs, StoreAnswer,
    StoreArgs, StoreOutcome,
};
use crate::args;
use crate::auth::Caller;
use crate::error::{Error, Result};
use crate::mcp::ToolName;

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The most memories of one batch.
const BATCH_MAX: usize = 100;

pub(super) fn router() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(store, list))
        .routes(routes!(store_batch))
        .routes(routes!(get, forget_one))
        .routes(routes!(recall))
        .routes(routes!(forget))
}

/// Which memory to get.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct GetArgs {
    /// Whose memory. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String", length(min = 1, max = 256))]
    scope: Option<String>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    actor: Option<String>,
}

/// How to forget a memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct ForgetOneArgs {
    /// Whose memory. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String", length(min = 1, max = 256))]
    scope: Option<String>,
    /// Leave no copy of the text: only a hash is kept.
    erase: bool,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    actor: Option<String>,
}

/// Memories to store, one after the other.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["memories"]))]
pub(super) struct BatchArgs {
    /// Each is an object as for storing one; a wrong one is refused by itself.
    #[schemars(length(min = 1, max = 100))]
    memories: Vec<Map<String, Value>>,
}

/// What became of one memory of a batch: the answer, or the problem.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct BatchResult {
    /// The status that storing it alone would have had.
    status: u16,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StoreAnswer")]
    stored: Option<StoreAnswer>,
    /// Why it was not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Problem")]
    problem: Option<Problem>,
}

/// Answer to a batch: one result for each memory, in their order.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct BatchAnswer {
    /// The results.
    results: Vec<BatchResult>,
}

/// Store a memory
///
/// The answer says what became of it. The same text again is support for the memory that is there.
#[utoipa::path(post, path = "/v1/memories", tag = "memories", request_body = StoreArgs,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key gives the first answer again for 24 hours; as idempotency_key in the body.")),
    responses((status = 201, description = "A new memory, found at Location", body = StoreAnswer),
              (status = 200, description = "It was known already, or expires", body = StoreAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn store(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    given: Given,
) -> std::result::Result<Response, Response> {
    let given = keyed(given, &headers);
    let mut scope = None;
    let stored: StoreAnswer = rest
        .call(&caller, ToolName::Store, given, async |engine, args: StoreArgs| {
            scope.clone_from(&args.scope);
            engine.store(&caller, args).await
        })
        .await?;
    let mut response = answer(status_of(&stored), &stored);
    if response.status() == StatusCode::CREATED {
        let scope = scope.as_deref().map(|scope| format!("?scope={}", encoded(scope))).unwrap_or_default();
        if let Ok(location) = HeaderValue::from_str(&format!("/v1/memories/{}{scope}", stored.id)) {
            response.headers_mut().insert(header::LOCATION, location);
        }
    }
    Ok(response)
}

/// Store several memories
///
/// Each has a result of its own: one that is refused keeps no other from being stored.
#[utoipa::path(post, path = "/v1/memories/batch", tag = "memories", request_body = BatchArgs,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated batch harmless, as a key of its own for each memory without one.")),
    responses((status = 200, description = "A result for each memory, in their order", body = BatchAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn store_batch(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    given: Given,
) -> std::result::Result<Response, Response> {
    let key = key_of(&headers);
    let results = rest
        .call(&caller, ToolName::Store, Ok(given), async |engine, args: BatchArgs| {
            check_batch(&args)?;
            let key = key?;
            let mut results = Vec::with_capacity(args.memories.len());
            for (number, mut memory) in args.memories.into_iter().enumerate() {
                if let (Some(key), None) = (&key, memory.get("idempotency_key")) {
                    memory.insert("idempotency_key".to_owned(), Value::from(format!("{key}/{number}")));
                }
                let stored = match args::parse_exact(memory) {
                    Ok(args) => engine.store(&caller, args).await,
                    Err(error) => {
                        engine.deny(&caller, ToolName::Store.as_str(), error.code(), None);
                        Err(error)
                    }
                };
                results.push(match stored {
                    Ok(stored) => {
                        let status = status_of(&stored).as_u16();
                        BatchResult { status, stored: Some(stored), problem: None }
                    }
                    Err(error) => {
                        let problem = Problem::of(&error, ToolName::Store.as_str(), &caller.request_id);
                        BatchResult { status: problem.status, stored: None, problem: Some(problem) }
                    }
                });
            }
            Ok(results)
        })
        .await?;
    Ok(answer(StatusCode::OK, &BatchAnswer { results }))
}

/// List memories
///
/// By time of storing, page by page.
#[utoipa::path(get, path = "/v1/memories", tag = "memories", params(ListArgs),
    responses((status = 200, description = "A page", body = ListAnswer),
              (status = 304, description = "What If-None-Match names is the page still"),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn list(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    given: Given,
) -> std::result::Result<Response, Response> {
    let run = async |engine: &crate::engine::Engine, args| engine.list(&caller, args).await;
    let listed: ListAnswer = rest.call(&caller, ToolName::List, Ok(given), run).await?;
    Ok(tagged(&headers, &listed))
}

/// Get a memory
///
/// Whatever its state; superseded ones say by what.
#[utoipa::path(get, path = "/v1/memories/{id}", tag = "memories",
    params(("id" = uuid::Uuid, Path, description = "The memory's id"), GetArgs),
    responses((status = 200, description = "The memory", body = MemoryView),
              (status = 304, description = "What If-None-Match names is the memory still"),
              (status = 404, description = "No such memory in this scope", body = Problem, content_type = "application/problem+json"),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn get(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Given,
) -> std::result::Result<Response, Response> {
    let memory = rest
        .call(&caller, ToolName::List, Ok(given), async |engine, args: GetArgs| {
            let args =
                ListArgs { scope: args.scope, actor: args.actor, memory_id: Some(id), ..ListArgs::default() };
            engine.list(&caller, args).await?.memories.pop().ok_or(Error::NotFound)
        })
        .await?;
    Ok(tagged(&headers, &memory))
}

/// Forget a memory
#[utoipa::path(delete, path = "/v1/memories/{id}", tag = "memories",
    params(("id" = uuid::Uuid, Path, description = "The memory's id"), ForgetOneArgs),
    responses((status = 200, description = "What was forgotten", body = ForgetAnswer),
              (status = 404, description = "No such memory in this scope", body = Problem, content_type = "application/problem+json"),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn forget_one(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    given: Given,
) -> std::result::Result<Response, Response> {
    let until = rest.half_time();
    let forgotten = rest
        .call(&caller, ToolName::Forget, Ok(given), async |engine, args: ForgetOneArgs| {
            let ForgetOneArgs { scope, erase, actor } = args;
            let args = ForgetArgs { scope, erase, actor, memory_id: Some(id), ..ForgetArgs::default() };
            engine.forget(&caller, args, until).await
        })
        .await?;
    Ok(answer(StatusCode::OK, &forgotten))
}

/// Recall memories
///
/// What the scope holds about a question, best first.
#[utoipa::path(post, path = "/v1/recall", tag = "memories", request_body = RecallArgs,
    responses((status = 200, description = "What was found, best first", body = RecallAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn recall(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> std::result::Result<Response, Response> {
    let run = async |engine: &crate::engine::Engine, args| engine.recall(&caller, args).await;
    let recalled: RecallAnswer = rest.call(&caller, ToolName::Recall, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &recalled))
}

/// Forget memories
///
/// By tier, by tags, by id, or all of a scope's. Where `complete` is false, the same request again goes on.
#[utoipa::path(post, path = "/v1/forget", tag = "memories", request_body = ForgetArgs,
    responses((status = 200, description = "What was forgotten", body = ForgetAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn forget(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> std::result::Result<Response, Response> {
    let until = rest.half_time();
    let run = async |engine: &crate::engine::Engine, args| engine.forget(&caller, args, until).await;
    let forgotten: ForgetAnswer = rest.call(&caller, ToolName::Forget, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &forgotten))
}

/// 201 where there is a new durable memory to be found.
fn status_of(stored: &StoreAnswer) -> StatusCode {
    match stored.outcome {
        StoreOutcome::Duplicate => StatusCode::OK,
        StoreOutcome::Stored | StoreOutcome::Superseded | StoreOutcome::Flagged => StatusCode::CREATED,
    }
}

fn check_batch(args: &BatchArgs) -> Result<()> {
    if (1..=BATCH_MAX).contains(&args.memories.len()) {
        return Ok(());
    }
    let message = format!("memories has {} entries", args.memories.len());
    Err(Error::invalid("memories", message, format!("From 1 to {BATCH_MAX}.")))
}

/// The arguments with the header's key, which may stand in only one place.
fn keyed(given: Given, headers: &HeaderMap) -> Result<Given> {
    match key_of(headers)? {
        Some(key) => given.with("idempotency_key", &key),
        None => Ok(given),
    }
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(key), None) => Ok(Some(key.to_owned())),
        _ => Err(Error::invalid(
            "Idempotency-Key",
            "Idempotency-Key is given twice, or not in ASCII",
            "Give one key of printable ASCII, or none.",
        )),
    }
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
