//! The spans of questions to models, for traces: with neither what is asked nor what is answered.

use tracing::field::Empty;
use tracing::{Span, debug_span};

/// A question to a model; [`ended`] notes how it ended. The names are OpenTelemetry's.
pub(super) fn of_question(operation: &'static str, model: &str) -> Span {
    debug_span!(
        "question",
        otel.name = format!("{operation} {model}"),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = operation,
        gen_ai.request.model = model,
    )
}

/// Notes whether there was an answer.
pub(super) fn ended(span: &Span, is_answered: bool) {
    if !is_answered {
        span.record("otel.status_code", "ERROR");
    }
}
