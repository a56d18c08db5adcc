//! The JSON-RPC envelope, before rmcp sees it: clients get JSON-RPC errors for what is no JSON-RPC, and headers that
//! real clients send wrongly are put right.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::Value;

use super::keepalive::AcceptsStream;
use super::{Context, problem};
use crate::auth::Caller;
use crate::mcp::required_action;

/// The codes of JSON-RPC 2.0.
const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;

pub(super) async fn layer(State(context): State<Context>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    if !says_json(&parts.headers) {
        let message = "Content-Type must be application/json";
        return problem::rpc(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            INVALID_REQUEST,
            message,
            &Value::Null,
        );
    }
    let limit = context.settings.max_body_bytes;
    let Ok(bytes) = to_bytes(body, limit).await else {
        let message = format!("The request body is longer than {limit} bytes or was cut off");
        return problem::rpc(
            StatusCode::PAYLOAD_TOO_LARGE,
            INVALID_REQUEST,
            &message,
            &Value::Null,
        );
    };
    let message = match serde_json::from_slice::<Value>(&bytes) {
        Ok(message @ Value::Object(_)) => message,
        Ok(Value::Array(_)) => {
            let message = "JSON-RPC batches are not supported: send one message a request";
            return problem::rpc(StatusCode::BAD_REQUEST, INVALID_REQUEST, message, &Value::Null);
        }
        Ok(_) => {
            let message = "A JSON-RPC message is an object";
            return problem::rpc(StatusCode::BAD_REQUEST, INVALID_REQUEST, message, &Value::Null);
        }
        // The parser's message may repeat what was sent.
        Err(_) => {
            let message = "The request body is not valid JSON";
            return problem::rpc(StatusCode::BAD_REQUEST, PARSE_ERROR, message, &Value::Null);
        }
    };
    if let Some(refusal) = lacks_action(&context, &parts.extensions, &message) {
        return refusal;
    }
    if accepts_stream(&parts.headers) {
        parts.extensions.insert(AcceptsStream);
    }
    // rmcp demands both types although it will answer with JSON whenever it can.
    parts.headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    parts
        .headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

/// Absent counts as JSON: what else would be posted here?
fn says_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let essence = kind
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json")
}

/// Whether the client named event streams or everything; one that named only JSON gets only JSON.
fn accepts_stream(headers: &HeaderMap) -> bool {
    let mut accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .peekable();
    accepted.peek().is_none()
        || accepted.any(|value| {
            value.contains("text/event-stream") || value.contains("*/*") || value.contains("text/*")
        })
}

/// A call of a tool that the token may use nowhere is refused by HTTP, so that OAuth clients ask for more. A scope
/// outside the grants is the tool's own answer: a 403 for it would send them in circles.
fn lacks_action(context: &Context, extensions: &http::Extensions, message: &Value) -> Option<Response> {
    if message.get("method").and_then(Value::as_str) != Some("tools/call") {
        return None;
    }
    let (tool, action) = required_action(message.pointer("/params/name")?.as_str()?)?;
    let caller = extensions.get::<Caller>()?;
    if caller.may_somewhere(action) {
        return None;
    }
    context.engine.deny(
        caller,
        tool,
        message.pointer("/params/arguments/scope").and_then(Value::as_str),
    );
    let scope = format!("error=\"insufficient_scope\", scope=\"memory:{action}\"");
    let text = format!("This token lacks the {action} grant on every scope.");
    let mut response = problem::rpc(
        StatusCode::FORBIDDEN,
        INVALID_REQUEST,
        &text,
        message.get("id").unwrap_or(&Value::Null),
    );
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, context.challenge(Some(&scope)));
    Some(response)
}
