//! Which trace a call is part of, in the words of W3C Trace Context.
//!
//! What a client says may be anything that it made up, so that nothing is decided by it. `tracestate` is not passed on.

use http::HeaderValue;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Where a call is in its client's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace: TraceId,
    parent: SpanId,
    flags: TraceFlags,
}

impl TraceParent {
    /// Reads a `traceparent`: version, trace, parent and flags in lower-case hexadecimal, neither id all zero. Later
    /// versions may go on after that (<https://www.w3.org/TR/trace-context/#versioning-of-traceparent>).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (part.len() == digits && is_hex).then_some(part)
        };
        let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let is_whole = parts.next().is_none() || version != "00";
        let trace = TraceId::from_hex(trace).ok().filter(|id| *id != TraceId::INVALID)?;
        let parent = SpanId::from_hex(parent).ok().filter(|id| *id != SpanId::INVALID)?;
        let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
        (version != "ff" && is_whole).then_some(Self { trace, parent, flags })
    }

    /// The trace's id in hexadecimal.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.trace.to_string()
    }

    /// Makes a span that was not yet entered part of this trace. Where no traces are sent on, that means nothing.
    pub fn adopt(&self, span: &Span) {
        let told = SpanContext::new(self.trace, self.parent, self.flags, true, TraceState::NONE);
        // It fails where there is no layer of traces.
        let _ = span.set_parent(Context::new().with_remote_span_context(told));
    }
}

/// The id of the trace that a span is part of, where traces are sent on.
#[must_use]
pub fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let told = context.span().span_context().clone();
    told.is_valid().then(|| told.trace_id().to_string())
}

/// The `traceparent` by which another service goes on with the trace that is being written here, where one is.
#[must_use]
pub fn current_traceparent() -> Option<HeaderValue> {
    let context = Span::current().context();
    let here = context.span().span_context().clone();
    let flags = (here.trace_flags() & TraceFlags::SAMPLED).to_u8();
    let text = format!("00-{}-{}-{flags:02x}", here.trace_id(), here.span_id());
    HeaderValue::from_str(&text).ok().filter(|_| here.is_valid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_has_a_trace() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        let id = |text: &str| TraceParent::parse(text).map(|parent| parent.trace_id());
        assert_eq!(id(&good).as_deref(), Some(trace));
        assert_eq!(id(&format!("cc{}-more", &good[2..])).as_deref(), Some(trace));
        // The flags of later levels say nothing here, and take nothing away.
        let sampled = |text: &str| TraceParent::parse(text).unwrap().flags.is_sampled();
        assert_eq!(
            [&good, &good.replace("-01", "-03"), &good.replace("-01", "-02")].map(|text| sampled(text)),
            [true, true, false]
        );
        for bad in [
            String::new(),
            trace.to_owned(),
            format!("{good}-more"),
            format!("{good}0"),
            good.to_uppercase(),
            good.replace("00-4", "ff-4"),
            good.replace(trace, &"0".repeat(32)),
            good.replace("00f067aa0ba902b7", "0000000000000000"),
            good.replace(trace, &trace[1..]),
            good.replace("4bf9", "4b\n9"),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad:?}");
        }
    }
}
