//! One request id, one log line and one span per request.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::trace::{self, MessageTrace};
use crate::clock::Clock;
use crate::metrics::{Metrics, method_name};
use crate::telemetry::{self, TraceParent};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_MAX_CHARS: usize = 64;

/// The id of a request: the client's own where it is short and plain, else a new one.
#[derive(Clone, Debug)]
pub(super) struct RequestId(pub(super) String);

/// Whose token a request carried; left on the response for the log.
#[derive(Clone, Debug)]
pub(super) struct Subject(pub(super) String);

/// Gives the request its id and logs its outcome: never a query string, a token or a body.
pub(super) async fn record(
    State((clock, metrics)): State<(Clock, Metrics)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = sent_id(request.headers()).unwrap_or_else(|| clock.new_id().to_string());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (sent_trace, message_trace) = (trace::of_headers(request.headers()), MessageTrace::default());
    let span = span(&method, route.as_ref(), &id, sent_trace.as_ref());
    request.extensions_mut().insert(RequestId(id.clone()));
    request.extensions_mut().insert(message_trace.clone());
    // For what is spawned on the way, which does not know whose work it is.
    request.extensions_mut().insert(span.clone());
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let subject = response.extensions().get::<Subject>().map(|subject| subject.0.as_str());
    let (status, took) = (response.status().as_u16(), started.elapsed());
    metrics.request(&method, route.as_ref().map(MatchedPath::as_str), status, took);
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    // Signed, because the layer of traces sends other numbers as text.
    span.record("http.response.status_code", i64::from(status));
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    let header_trace = || sent_trace.as_ref().map(TraceParent::trace_id);
    let trace_id = message_trace.trace_id().or_else(header_trace).or_else(|| telemetry::trace_id(&span));
    tracing::info!(%method, path, status, duration_ms, subject, request_id = id, trace_id, "request");
    response
}

/// The span of a request, named as OpenTelemetry names one. Its trace is the client's where the client has one.
fn span(method: &Method, route: Option<&MatchedPath>, id: &str, parent: Option<&TraceParent>) -> Span {
    let (method, route) = (method_name(method), route.map(MatchedPath::as_str));
    let span = info_span!(
        "request",
        otel.name = format!("{method} {}", route.unwrap_or("none")),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        request_id = id,
    );
    if let Some(parent) = parent {
        parent.adopt(&span);
    }
    span
}

fn sent_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    ((1..=REQUEST_ID_MAX_CHARS).contains(&id.len()) && plain).then(|| id.to_owned())
}
