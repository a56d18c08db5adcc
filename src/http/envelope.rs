//! What stands between HTTP and rmcp: the message is read and judged here, so that every client gets an answer of the
//! protocol where rmcp would say 406 or 415 in plain text.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;

use super::auth::Challenge;
use super::body::{self, Unread, is_json};
use super::listen;
use super::reply::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, rpc_error};
use super::trace::MessageTrace;
use crate::auth::Caller;
use crate::engine::Engine;
use crate::mcp::ToolName;

/// The longest refusal in plain text that is passed on.
const REFUSAL_MAX_BYTES: usize = 1_024;

/// What this layer needs.
pub(super) struct Envelope {
    pub(super) engine: Arc<Engine>,
    pub(super) challenge: Challenge,
    pub(super) max_body_bytes: usize,
}

/// What the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// JSON alone, or it did not say.
    Json,
    /// An event stream alone.
    Events,
    /// Either.
    Both,
}

/// A request's id and what its client can read, for the layers behind.
#[derive(Clone, Debug)]
pub(super) struct Expects {
    pub(super) id: Value,
    pub(super) reads: Reads,
}

/// Passes on to rmcp what rmcp will understand.
pub(super) async fn open(State(envelope): State<Arc<Envelope>>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        let mut response = rpc_error(
            StatusCode::METHOD_NOT_ALLOWED,
            None,
            INVALID_REQUEST,
            "send messages by POST; there are no sessions and no standalone stream",
        );
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    if !is_json(request.headers()) {
        let message = "Content-Type must be application/json";
        return rpc_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, INVALID_REQUEST, message);
    }
    let (mut parts, body) = request.into_parts();
    let mut body = match body::read(&parts.headers, body, envelope.max_body_bytes).await {
        Ok(body) => body,
        Err(unread) => {
            let code = if unread == Unread::Broken { PARSE_ERROR } else { INVALID_REQUEST };
            return rpc_error(unread.status(), None, code, &unread.message());
        }
    };
    let mut message = match judge(&body) {
        Ok(message) => message,
        Err(response) => return *response,
    };
    if let Some(trace) = parts.extensions.get::<MessageTrace>() {
        trace.read(&message);
    }
    if let Some(caller) = parts.extensions.get::<Caller>().cloned() {
        if let Some(refused) = envelope.refuse(&caller, &message) {
            return refused;
        }
        if message["method"] == listen::METHOD {
            match listen::ready(&envelope.engine, &caller, &mut message).await {
                Ok(subscription) => parts.extensions.insert(subscription),
                Err(refused) => return *refused,
            };
            body = message.to_string().into();
        }
    }
    let reads = reads(&parts.headers);
    // Progress comes in an event stream, which this client cannot read.
    let body = if reads == Reads::Json && drop_progress_token(&mut message) {
        message.to_string().into()
    } else {
        body
    };
    if let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) {
        parts.extensions.insert(Expects { id: id.clone(), reads });
    }
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    parts.headers.insert(header::ACCEPT, both);
    let id = message.get("id").cloned();
    // Many times the size of the body: not to be held while the call runs.
    drop(message);
    speak_json(next.run(Request::from_parts(parts, Body::from(body))).await, id).await
}

impl Envelope {
    /// Refuses the call of a tool that the token may use nowhere. Where it may, the engine looks at the scope.
    fn refuse(&self, caller: &Caller, message: &Value) -> Option<Response> {
        let tool = message.pointer("/params/name").filter(|_| message["method"] == "tools/call");
        let tool = ToolName::parse(tool?.as_str()?)?;
        if caller.may_somewhere(tool.action()) {
            return None;
        }
        let scope = message.pointer("/params/arguments/scope").and_then(Value::as_str);
        self.engine.deny(caller, tool.as_str(), "action_not_granted", scope);
        Some(self.challenge.insufficient(tool.action()))
    }
}

/// Takes one well-formed JSON-RPC message.
fn judge(body: &[u8]) -> Result<Value, Box<Response>> {
    let refuse = |id, code, message| Err(Box::new(rpc_error(StatusCode::BAD_REQUEST, id, code, message)));
    let Ok(message) = serde_json::from_slice::<Value>(body) else {
        return refuse(None, PARSE_ERROR, "the body is not valid JSON");
    };
    if message.is_array() {
        return refuse(None, INVALID_REQUEST, "batches are not supported; send one message a request");
    }
    let Some(fields) = message.as_object() else {
        return refuse(None, INVALID_REQUEST, "the body is no JSON-RPC message");
    };
    let id = match fields.get("id") {
        None => None,
        Some(id) if id.is_string() || id.is_i64() || id.is_u64() => Some(id.clone()),
        Some(_) => return refuse(None, INVALID_REQUEST, "id must be a string or an integer"),
    };
    if message["jsonrpc"] != "2.0" {
        return refuse(id, INVALID_REQUEST, "jsonrpc must be \"2.0\"");
    }
    let is_answer = id.is_some() && (fields.contains_key("result") || fields.contains_key("error"));
    if !(message["method"].is_string() || is_answer && !fields.contains_key("method")) {
        return refuse(id, INVALID_REQUEST, "method must be a string");
    }
    if message["method"] == "tools/call" {
        let arguments = message.pointer("/params/arguments").unwrap_or(&Value::Null);
        if !message["params"]["name"].is_string() {
            return refuse(id, INVALID_PARAMS, "params.name must be the name of a tool");
        }
        if !(arguments.is_object() || arguments.is_null()) {
            return refuse(id, INVALID_PARAMS, "params.arguments must be an object");
        }
    }
    Ok(message)
}

/// Takes the wish for progress out of a request; answers whether there was one.
fn drop_progress_token(message: &mut Value) -> bool {
    let meta = message.pointer_mut("/params/_meta").and_then(Value::as_object_mut);
    meta.is_some_and(|meta| meta.remove("progressToken").is_some())
}

fn reads(headers: &HeaderMap) -> Reads {
    let accepts = |kind: &str| {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|entry| entry.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(kind))
    };
    let json = accepts("application/json") || accepts("application/*") || accepts("*/*");
    match (json, accepts("text/event-stream")) {
        (true, true) => Reads::Both,
        (false, true) => Reads::Events,
        _ => Reads::Json,
    }
}

/// Gives a refusal that rmcp wrote as plain text the shape of the protocol, in rmcp's words.
async fn speak_json(response: Response, id: Option<Value>) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let plain = kind.is_none_or(|kind| kind.starts_with("text/plain"));
    let status = response.status();
    if status.as_u16() < 400 || !plain {
        return response;
    }
    let words = to_bytes(response.into_body(), REFUSAL_MAX_BYTES).await.unwrap_or_default();
    match (status, std::str::from_utf8(&words).unwrap_or_default().trim()) {
        // What rmcp says of every message that it cannot read; the type was right.
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, _) => {
            rpc_error(StatusCode::BAD_REQUEST, id, INVALID_REQUEST, "the message does not fit the protocol")
        }
        (_, "") => rpc_error(status, id, INVALID_REQUEST, status.canonical_reason().unwrap_or("refused")),
        (_, words) => rpc_error(status, id, INVALID_REQUEST, words),
    }
}
