//! The trace that a call is part of, as its client says (W3C Trace Context): for the log alone. It may be anything that a
//! client made up, so that nothing is decided by it. `tracestate` is for those who send traces on, which memser does not.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use serde_json::Value;

const TRACEPARENT: &str = "traceparent";

/// Where the layer that reads a message leaves its trace for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageTrace(Arc<OnceLock<String>>);

impl MessageTrace {
    /// Takes the trace from the message's `_meta`, if it names one.
    pub(super) fn read(&self, message: &Value) {
        let traceparent = message.pointer("/params/_meta/traceparent").and_then(Value::as_str);
        if let Some(id) = traceparent.and_then(trace_id) {
            // A request has one message.
            let _ = self.0.set(id.to_owned());
        }
    }

    /// The message's trace: it is closer to the call than the header, which may be a proxy's.
    pub(super) fn or_header(&self, headers: Option<String>) -> Option<String> {
        self.0.get().cloned().or(headers)
    }
}

/// The trace that the request's header names, where there is one such header.
pub(super) fn of_headers(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    trace_id(only.to_str().ok()?).map(str::to_owned)
}

/// The trace id of a `traceparent`: version, trace, parent and flags in lower-case hexadecimal, neither id all zero. Later
/// versions may go on after that (<https://www.w3.org/TR/trace-context/#versioning-of-traceparent>).
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let mut hex = |digits: usize| {
        let part = parts.next()?;
        let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == digits && is_hex).then_some(part)
    };
    let (version, trace, parent, _flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_whole = parts.next().is_none() || version != "00";
    let is_set = |id: &str| id.bytes().any(|byte| byte != b'0');
    (version != "ff" && is_whole && is_set(trace) && is_set(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_has_a_trace() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(&good), Some(trace));
        assert_eq!(trace_id(&format!("cc{}-more", &good[2..])), Some(trace));
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
            assert_eq!(trace_id(&bad), None, "{bad:?}");
        }
    }
}
