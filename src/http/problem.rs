//! Errors outside the tools: plain JSON, or JSON-RPC where a client waits for that.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

/// An error of the HTTP layer.
pub(super) fn answer(status: StatusCode, code: &'static str, message: &str) -> Response {
    (
        status,
        Json(json!({ "error": { "code": code, "message": message } })),
    )
        .into_response()
}

/// An error of the JSON-RPC layer, with the id of the request where it could be read.
pub(super) fn rpc(status: StatusCode, code: i32, message: &str, id: &Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } });
    (status, Json(body)).into_response()
}
