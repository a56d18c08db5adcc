//! Refusals as problem details (RFC 9457), with the code, the hint and the field that the tools' errors have.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

const CONTENT_TYPE: &str = "application/problem+json";
/// The longest refusal of another layer that is read again.
const REFUSAL_MAX_BYTES: usize = 16 * 1024;

/// Why a request was refused, and what to do about it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// Always `about:blank`: `code` tells problems apart.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: String,
    /// The HTTP status.
    pub(super) status: u16,
    /// What is wrong with this request.
    detail: String,
    /// What kind of problem, as a stable name.
    code: String,
    /// What to do about it.
    hint: String,
    /// The argument at fault, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    field: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &str, detail: String, hint: String) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused").to_owned();
        Self {
            kind: "about:blank",
            title,
            status: status.as_u16(),
            detail,
            code: code.to_owned(),
            hint,
            field: None,
        }
    }

    /// An error of the engine as the caller sees it; the cause of a fault goes to the log.
    pub(super) fn of(error: &Error, action: &'static str, request_id: &str) -> Self {
        match error {
            Error::Internal(cause) => tracing::error!(action, request_id, "internal error: {cause:#}"),
            Error::Unavailable { part, source } => {
                tracing::warn!(action, request_id, part, "unavailable: {source:#}");
            }
            Error::Timeout { .. } => tracing::warn!(action, request_id, "{error}"),
            _ => {}
        }
        let problem = Self::new(status_of(error), error.code(), error.to_string(), error.hint());
        Self { field: error.field().map(str::to_owned), ..problem }
    }
}

const fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::Invalid { .. } => StatusCode::BAD_REQUEST,
        Error::ScopeNotGranted { .. }
        | Error::ActionNotGranted { .. }
        | Error::LimitExceeded { field: None, .. } => StatusCode::FORBIDDEN,
        Error::NotFound => StatusCode::NOT_FOUND,
        Error::Conflict { .. } => StatusCode::CONFLICT,
        // As draft-ietf-httpapi-idempotency-key-header has it.
        Error::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Error::LimitExceeded { field: Some(_), .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Error::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Unavailable { .. } | Error::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Error::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Makes problems of what the layers that MCP shares refuse: with the status and the headers that they gave it.
pub(super) async fn speak(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if status.as_u16() < 400 || kind == Some(CONTENT_TYPE) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, REFUSAL_MAX_BYTES).await.unwrap_or_default();
    let refusal = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let text = |name| refusal["error"][name].as_str().map(str::to_owned);
    let problem = Problem::new(
        status,
        text("code").as_deref().unwrap_or("refused"),
        text("message").unwrap_or_else(|| "the request was refused".to_owned()),
        text("hint").unwrap_or_else(|| "See /openapi.json for what is served.".to_owned()),
    );
    let told = problem.into_response();
    parts.headers.remove(header::CONTENT_LENGTH);
    for (name, value) in told.headers() {
        // A time to wait that the layer knows is better than ours.
        if name != header::RETRY_AFTER || !parts.headers.contains_key(name) {
            parts.headers.insert(name, value.clone());
        }
    }
    Response::from_parts(parts, Body::new(told.into_body()))
}
