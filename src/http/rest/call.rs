//! One request: its arguments are read, the engine is called within its time, and what comes of it is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::problem::Problem;
use crate::args;
use crate::auth::Caller;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::http::auth::Challenge;
use crate::http::body;
use crate::mcp::{ToolName, contain, span};
use crate::metrics::Via;
use crate::model::Action;

/// What every handler needs.
#[derive(Clone)]
pub(super) struct Rest {
    pub(super) engine: Arc<Engine>,
    pub(super) challenge: Challenge,
    pub(super) max_body_bytes: usize,
    pub(super) call_timeout: Duration,
    /// Cancelled, it stops the calls that still run.
    pub(super) stop: CancellationToken,
}

/// What a call is in the audit log, and what it needs.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    pub(super) action: Action,
}

impl From<ToolName> for Operation {
    fn from(tool: ToolName) -> Self {
        Self { name: tool.as_str(), action: tool.action() }
    }
}

/// The arguments as they came: a JSON object in the body of a POST, the query string of everything else.
pub(super) enum Given {
    Body(Map<String, Value>),
    Query(Vec<(String, String)>),
}

impl FromRequest<Rest> for Given {
    type Rejection = Problem;

    async fn from_request(request: Request, rest: &Rest) -> std::result::Result<Self, Problem> {
        let refuse = |status, detail: String, hint: &str| {
            Problem::new(status, "invalid_argument", detail, hint.to_owned())
        };
        let query = request.uri().query().unwrap_or_default();
        if request.method() != Method::POST {
            // Read with replacements, two texts would become one.
            if percent_decode_str(query).decode_utf8().is_err() {
                let detail = "the query string is not UTF-8".to_owned();
                return Err(refuse(StatusCode::BAD_REQUEST, detail, "Percent-encode the bytes of UTF-8."));
            }
            return Ok(Self::Query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()));
        }
        if !query.is_empty() {
            let detail = "a query string has no meaning here".to_owned();
            return Err(refuse(StatusCode::BAD_REQUEST, detail, "Send the arguments in the body."));
        }
        if !body::is_json(request.headers()) {
            let detail = "Content-Type must be application/json".to_owned();
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail, "Send the arguments as JSON."));
        }
        let (parts, body) = request.into_parts();
        let bytes = body::read(&parts.headers, body, rest.max_body_bytes).await.map_err(|unread| {
            refuse(unread.status(), unread.message(), "Send less at once, or the whole of it.")
        })?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(arguments)) => Ok(Self::Body(arguments)),
            _ => Err(refuse(
                StatusCode::BAD_REQUEST,
                "the body is no JSON object".to_owned(),
                "Send one JSON object.",
            )),
        }
    }
}

impl Given {
    /// Adds an argument that stands elsewhere in the request; given twice, it is refused.
    pub(super) fn with(mut self, name: &str, value: &str) -> Result<Self> {
        let is_there = match &mut self {
            Self::Body(arguments) => arguments.insert(name.to_owned(), Value::from(value)).is_some(),
            Self::Query(pairs) => {
                let is_there = pairs.iter().any(|(known, _)| known == name);
                pairs.push((name.to_owned(), value.to_owned()));
                is_there
            }
        };
        if is_there {
            return Err(Error::invalid(name, format!("{name} is given twice"), "Give it once."));
        }
        Ok(self)
    }

    fn read<T: DeserializeOwned + JsonSchema>(self) -> Result<T> {
        match self {
            Self::Body(arguments) => args::parse_exact(arguments),
            Self::Query(pairs) => args::parse_query(pairs),
        }
    }
}

impl Rest {
    /// Until when a call that works in chunks may go on, so that it answers in time.
    pub(super) fn half_time(&self) -> Instant {
        Instant::now() + self.call_timeout / 2
    }

    /// Reads the arguments and runs the call to its end, or until its time or the shutdown ends it. What never reaches
    /// the engine, or never comes back from it, is audited here.
    pub(super) async fn call<T, A>(
        &self,
        caller: &Caller,
        operation: impl Into<Operation>,
        given: Result<Given>,
        run: impl AsyncFnOnce(&Engine, T) -> Result<A>,
    ) -> std::result::Result<A, Response>
    where
        T: DeserializeOwned + JsonSchema,
    {
        let Operation { name, action } = operation.into();
        if !caller.may_somewhere(action) {
            self.engine.deny(caller, name, "action_not_granted", None);
            return Err(self.challenge.insufficient(action));
        }
        let refuse = |error: &Error| Problem::of(error, name, &caller.request_id).into_response();
        let span = span::of_call(name, Via::Rest, &Span::current());
        let mut call = Unfinished::new(&self.engine, caller, name, span.clone());
        let args = given.and_then(Given::read).map_err(|error| {
            call.outcome = error.code();
            refuse(&error)
        })?;
        let ended = tokio::select! {
            ended = contain(Box::pin(run(&self.engine, args)), self.call_timeout).instrument(span) => ended,
            () = self.stop.cancelled() => {
                Err(Error::Unavailable { part: "memser", source: anyhow::anyhow!("shutting down") })
            }
        };
        call.reached_its_end = ended.is_ok();
        let ended = ended.and_then(|answer| answer);
        call.outcome = ended.as_ref().err().map_or("ok", Error::code);
        drop(call);
        ended.map_err(|error| refuse(&error))
    }
}

/// Counts a call when it is dropped, and audits one that the engine did not end. A client that goes away drops it, too.
struct Unfinished<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    name: &'static str,
    started: Instant,
    outcome: &'static str,
    reached_its_end: bool,
    span: Span,
}

impl<'a> Unfinished<'a> {
    fn new(engine: &'a Engine, caller: &'a Caller, name: &'static str, span: Span) -> Self {
        let outcome = Error::Cancelled.code();
        Self { engine, caller, name, started: Instant::now(), outcome, reached_its_end: false, span }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.reached_its_end {
            self.engine.deny(self.caller, self.name, self.outcome, None);
        }
        span::ended(&self.span, self.outcome);
        self.engine.metrics().call(self.name, Via::Rest, self.outcome, self.started.elapsed());
    }
}

/// An answer that nobody may keep.
pub(super) fn answer(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// An answer that the client may keep and ask about: its tag is a hash of it, and who has it already gets none.
pub(super) fn tagged(headers: &HeaderMap, body: &impl Serialize) -> Response {
    let mut response = answer(StatusCode::OK, body);
    let Ok(bytes) = serde_json::to_vec(body) else {
        return response;
    };
    let tag = format!("\"{}\"", hex::encode(&Sha256::digest(&bytes)[..16]));
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',')).map(str::trim);
    if known.any(|known| known == "*" || known.trim_start_matches("W/") == tag) {
        response = StatusCode::NOT_MODIFIED.into_response();
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}
