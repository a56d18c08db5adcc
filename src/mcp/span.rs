//! The spans of calls, for traces.

use rmcp::service::{RequestContext, RoleServer};
use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::{ToolName, extension};
use crate::metrics::Via;
use crate::telemetry::TraceParent;

/// The span of a tool's call. The message's own trace is closer to it than that of its request, to which it is linked then.
pub(super) fn of_tool(context: &RequestContext<RoleServer>, tool: ToolName) -> Span {
    let request = extension::<Span>(context).cloned().unwrap_or_else(|_| Span::none());
    let span = of_call(tool.as_str(), Via::Mcp, &request);
    if let Some(parent) = context.meta.get_traceparent().and_then(TraceParent::parse) {
        parent.adopt(&span);
        span.follows_from(&request);
    }
    span
}

/// The span of a call within that of its request; [`ended`] notes how it ended.
pub(crate) fn of_call(name: &'static str, via: Via, request: &Span) -> Span {
    debug_span!(
        parent: request,
        "call",
        otel.name = name,
        otel.status_code = Empty,
        via = via.name(),
        outcome = Empty,
    )
}

/// Notes how a call ended: `ok`, or its error's code. An error is of memser where it is not of the caller.
pub(crate) fn ended(span: &Span, outcome: &'static str) {
    span.record("outcome", outcome);
    if matches!(outcome, "internal" | "unavailable" | "timeout") {
        span.record("otel.status_code", "ERROR");
    }
}
