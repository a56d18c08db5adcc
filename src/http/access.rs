//! One request id and one log line per request.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::trace::{self, MessageTrace};
use crate::clock::Clock;
use crate::metrics::Metrics;

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
    request.extensions_mut().insert(RequestId(id.clone()));
    request.extensions_mut().insert(message_trace.clone());
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let subject = response.extensions().get::<Subject>().map(|subject| subject.0.as_str());
    let (status, took) = (response.status().as_u16(), started.elapsed());
    metrics.request(&method, route.as_ref().map(MatchedPath::as_str), status, took);
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let trace_id = message_trace.or_header(sent_trace);
    tracing::info!(%method, path, status, duration_ms, subject, request_id = id, trace_id, "request");
    response
}

fn sent_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    ((1..=REQUEST_ID_MAX_CHARS).contains(&id.len()) && plain).then(|| id.to_owned())
}
