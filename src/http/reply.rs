//! The bodies of refusals: JSON-RPC errors for what the protocol defines, the tools' error shape for the rest.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Error;

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const INTERNAL_ERROR: i32 = -32603;

/// A JSON-RPC error with an HTTP status.
pub(super) fn rpc_error(status: StatusCode, id: Option<Value>, code: i32, message: &str) -> Response {
    let id = id.unwrap_or(Value::Null);
    (status, Json(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })))
        .into_response()
}

/// A refusal outside the protocol, in the shape of the tools' errors.
pub(super) fn refusal(status: StatusCode, code: &str, message: &str, hint: &str) -> Response {
    (status, Json(json!({ "error": { "code": code, "message": message, "hint": hint } }))).into_response()
}

/// 429 with the time to wait.
pub(super) fn rate_limited(error: &Error, seconds: u64) -> Response {
    let mut response =
        refusal(StatusCode::TOO_MANY_REQUESTS, error.code(), &error.to_string(), &error.hint());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// 500; the cause goes to the log alone.
pub(super) fn fault(error: &Error) -> Response {
    if let Error::Internal(cause) = error {
        tracing::error!("internal error: {cause:#}");
    }
    refusal(StatusCode::INTERNAL_SERVER_ERROR, error.code(), &error.to_string(), &error.hint())
}

/// 404 for a path that is not served.
pub(super) fn not_found() -> Response {
    refusal(StatusCode::NOT_FOUND, "not_found", "no such path", "The MCP endpoint is /mcp.")
}

/// 405 for a method that a path has not; the router says in `Allow` which it has.
pub(super) async fn method_not_allowed() -> Response {
    let hint = "The header Allow names the methods of this path.";
    refusal(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path has no such method", hint)
}
