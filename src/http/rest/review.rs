//! What reviewers, administrators and programs that keep order do.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tokio::sync::mpsc::unbounded_channel;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::call::{Given, Operation, Rest, answer, tagged};
use super::problem::Problem;
use crate::api::{
    AuditAnswer, AuditArgs, ConflictsAnswer, ConflictsArgs, ConsolidateAnswer, ConsolidateArgs, JobsAnswer,
    JobsArgs, ResolveAnswer, ResolveArgs, ScopesAnswer, ScopesArgs,
};
use crate::auth::Caller;
use crate::engine::Engine;
use crate::mcp::ToolName;
use crate::model::Action;

const LIST_CONFLICTS: Operation = Operation { name: "list_conflicts", action: Action::Read };
const LIST_SCOPES: Operation = Operation { name: "list_scopes", action: Action::Read };
const LIST_JOBS: Operation = Operation { name: "list_jobs", action: Action::Admin };
const READ_AUDIT: Operation = Operation { name: "read_audit", action: Action::Admin };

pub(super) fn router() -> OpenApiRouter<Rest> {
    OpenApiRouter::new()
        .routes(routes!(consolidate))
        .routes(routes!(conflicts))
        .routes(routes!(resolve))
        .routes(routes!(scopes))
        .routes(routes!(audit))
        .routes(routes!(jobs))
}

/// Consolidate memories
///
/// Memories of one thing become one fact; the originals stay as its history.
#[utoipa::path(post, path = "/v1/consolidate", tag = "review", request_body = ConsolidateArgs,
    responses((status = 200, description = "What was brought together", body = ConsolidateAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn consolidate(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> Result<Response, Response> {
    let (until, (steps, _)) = (rest.half_time(), unbounded_channel());
    let run = async |engine: &Engine, args| engine.consolidate(&caller, args, until, steps).await;
    let done: ConsolidateAnswer = rest.call(&caller, ToolName::Consolidate, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &done))
}

/// List open conflicts
///
/// Pairs of active memories that contradict each other, oldest first.
#[utoipa::path(get, path = "/v1/conflicts", tag = "review", params(ConflictsArgs),
    responses((status = 200, description = "A page", body = ConflictsAnswer),
              (status = 304, description = "What If-None-Match names is the page still"),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn conflicts(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    given: Given,
) -> Result<Response, Response> {
    let run = async |engine: &Engine, args| engine.conflicts(&caller, args).await;
    let listed: ConflictsAnswer = rest.call(&caller, LIST_CONFLICTS, Ok(given), run).await?;
    Ok(tagged(&headers, &listed))
}

/// Resolve a conflict
///
/// Or make a superseded memory active again. Needs the review grant.
#[utoipa::path(post, path = "/v1/conflicts/resolve", tag = "review", request_body = ResolveArgs,
    responses((status = 200, description = "What changed", body = ResolveAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn resolve(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> Result<Response, Response> {
    let run = async |engine: &Engine, args| engine.resolve(&caller, args).await;
    let resolved: ResolveAnswer = rest.call(&caller, ToolName::Resolve, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &resolved))
}

/// List scopes
///
/// Those that the token may read and that something was stored in, by name.
#[utoipa::path(get, path = "/v1/scopes", tag = "review", params(ScopesArgs),
    responses((status = 200, description = "A page", body = ScopesAnswer),
              (status = 304, description = "What If-None-Match names is the page still"),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn scopes(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    given: Given,
) -> Result<Response, Response> {
    let run = async |engine: &Engine, args| engine.scopes(&caller, args).await;
    let listed: ScopesAnswer = rest.call(&caller, LIST_SCOPES, Ok(given), run).await?;
    Ok(tagged(&headers, &listed))
}

/// Read the audit log
///
/// Calls, allowed or refused, newest first; those of the last second may be missing. Needs the admin grant.
#[utoipa::path(get, path = "/v1/audit", tag = "admin", params(AuditArgs),
    responses((status = 200, description = "A page", body = AuditAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn audit(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> Result<Response, Response> {
    let run = async |engine: &Engine, args| engine.audit_log(&caller, args).await;
    let calls: AuditAnswer = rest.call(&caller, READ_AUDIT, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &calls))
}

/// List jobs
///
/// Each sweep with its last runs, and the scopes that consolidation leaves alone for a while. Needs the admin grant;
/// only scopes that the token administers are named.
#[utoipa::path(get, path = "/v1/jobs", tag = "admin", params(JobsArgs),
    responses((status = 200, description = "The jobs", body = JobsAnswer),
              (status = "default", description = "Refused", body = Problem, content_type = "application/problem+json")))]
async fn jobs(
    State(rest): State<Rest>,
    Extension(caller): Extension<Caller>,
    given: Given,
) -> Result<Response, Response> {
    let run = async |engine: &Engine, args| engine.jobs(&caller, args).await;
    let jobs: JobsAnswer = rest.call(&caller, LIST_JOBS, Ok(given), run).await?;
    Ok(answer(StatusCode::OK, &jobs))
}
