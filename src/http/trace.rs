//! The trace that a call is part of, as its client says: in the message's `_meta`, or else in a header.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use serde_json::Value;

use crate::telemetry::TraceParent;

const TRACEPARENT: &str = "traceparent";

/// Where the layer that reads a message leaves its trace for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageTrace(Arc<OnceLock<TraceParent>>);

impl MessageTrace {
    /// Takes the trace from the message's `_meta`, if it names one.
    pub(super) fn read(&self, message: &Value) {
        let traceparent = message.pointer("/params/_meta/traceparent").and_then(Value::as_str);
        if let Some(parent) = traceparent.and_then(TraceParent::parse) {
            // A request has one message.
            let _ = self.0.set(parent);
        }
    }

    /// The message's trace: it is closer to the call than the header, which may be a proxy's.
    pub(super) fn trace_id(&self) -> Option<String> {
        self.0.get().map(TraceParent::trace_id)
    }
}

/// What the request's header says, where there is one such header.
pub(super) fn of_headers(headers: &HeaderMap) -> Option<TraceParent> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    TraceParent::parse(only.to_str().ok()?)
}
