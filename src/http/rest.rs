//! `/v1`: the tools' calls and the lists beside them for programs without an MCP client.
//!
//! The engine decides, as for MCP; here requests are read, answers get their status, and errors become problems.

mod call;
mod memories;
mod openapi;
mod problem;
mod review;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use self::call::{Rest, tagged};
use self::openapi::Document;
use self::problem::Problem;
use super::auth::{self, Gate};
use crate::engine::Engine;

/// The paths below `/v1`, behind the gate, and `/openapi.json`, which tells nothing that the source does not.
pub(super) fn router(
    engine: Arc<Engine>,
    gate: Arc<Gate>,
    max_body_bytes: usize,
    call_timeout: Duration,
    stop: CancellationToken,
) -> Router {
    let rest = Rest { engine, challenge: gate.challenge.clone(), max_body_bytes, call_timeout, stop };
    let (paths, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(memories::router())
        .merge(review::router())
        .split_for_parts();
    let document = Arc::new(document);
    let show = move |headers: HeaderMap| std::future::ready(tagged(&headers, document.as_ref()));
    paths
        .with_state(rest)
        .method_not_allowed_fallback(wrong_method)
        .route_layer(from_fn_with_state(gate, auth::identify))
        .route_layer(from_fn(problem::speak))
        .route("/openapi.json", get(show))
}

/// 405; axum adds what is allowed.
async fn wrong_method() -> impl IntoResponse {
    let detail = "this path is not served for this method".to_owned();
    let hint = "Allow names the methods; /openapi.json describes them.".to_owned();
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail, hint)
}

/// 404 for a path below `/v1` that is not served.
pub(super) fn not_found() -> Response {
    let hint = "/openapi.json describes what is served.".to_owned();
    Problem::new(StatusCode::NOT_FOUND, "not_found", "no such path".to_owned(), hint).into_response()
}
