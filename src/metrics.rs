//! What a process counts while it works, for `/metrics`. Labels come from closed sets: never a scope, an id or a text.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets in seconds: from a lookup in memory to the longest that a call may take by default.
const SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The counts of one process since its start. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Durations<Request>,
    calls: Durations<Called>,
    questions: Durations<Question>,
    stores: Family<Outcome, Counter>,
    degraded: Family<Part, Counter>,
    runs: Durations<Run>,
    dropped: Counter,
}

/// By which way a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A tool of MCP.
    Mcp,
    /// An operation of `/v1`.
    Rest,
}

/// The method of a request, where it is one that is served; a client can make up any.
#[must_use]
pub fn method_name(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

impl Via {
    /// Its name in metrics and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Rest => "rest",
        }
    }
}

/// Whom memser asks over the network or with much work of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What makes vectors of texts.
    Embedder,
    /// The language model.
    Llm,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Called {
    call: &'static str,
    via: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Question {
    provider: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Part {
    part: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Run {
    sweep: &'static str,
    outcome: &'static str,
}

fn durations<L>() -> Durations<L>
where
    L: Clone + std::hash::Hash + Eq,
{
    Family::new_with_constructor(|| Histogram::new(SECONDS))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: durations(),
            calls: durations(),
            questions: durations(),
            stores: Family::default(),
            degraded: Family::default(),
            runs: durations(),
            dropped: Counter::default(),
        }
    }
}

impl Metrics {
    /// An HTTP request was answered. `route` is the path as the router spells it, or none of its paths.
    pub fn request(&self, method: &http::Method, route: Option<&str>, status: u16, took: Duration) {
        let labels =
            Request { method: method_name(method), route: route.unwrap_or("none").to_owned(), status };
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A call ended; `outcome` is `ok` or the code of its error.
    pub fn call(&self, call: &'static str, via: Via, outcome: &'static str, took: Duration) {
        let labels = Called { call, via: via.name(), outcome };
        self.calls.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A provider was asked and answered, or not.
    pub fn asked(&self, asked: Asked, answered: bool, took: Duration) {
        let provider = match asked {
            Asked::Embedder => "embedder",
            Asked::Llm => "llm",
        };
        let outcome = if answered { "ok" } else { "failed" };
        self.questions.get_or_create(&Question { provider, outcome }).observe(took.as_secs_f64());
    }

    /// A store was answered with this outcome.
    pub fn stored(&self, outcome: &'static str) {
        self.stores.get_or_create(&Outcome { outcome }).inc();
    }

    /// A call was answered without these parts.
    pub fn degraded(&self, parts: &[String]) {
        for part in parts {
            self.degraded.get_or_create(&Part { part: part.clone() }).inc();
        }
    }

    /// A sweep of this process ended.
    pub fn run(&self, sweep: &'static str, outcome: &'static str, took: Duration) {
        self.runs.get_or_create(&Run { sweep, outcome }).observe(took.as_secs_f64());
    }

    /// An audit row or an access count was dropped.
    pub fn dropped(&self) {
        self.dropped.inc();
    }

    /// Shows everything that was counted.
    pub fn register(&self, registry: &mut Registry) {
        let help = "HTTP requests by route, as far as their head was answered";
        registry.register("http_request_duration_seconds", help, self.requests.clone());
        registry.register("call_duration_seconds", "Tool calls and operations of /v1", self.calls.clone());
        let help = "Questions to the embedder and the language model";
        registry.register("provider_duration_seconds", help, self.questions.clone());
        registry.register("stores", "Stores by what became of the memory", self.stores.clone());
        registry.register("degraded_answers", "Answers given without a part", self.degraded.clone());
        registry.register("sweep_duration_seconds", "Sweeps that this process ran", self.runs.clone());
        let help = "Audit rows and access counts that were dropped, because too many waited";
        registry.register("journal_dropped_entries", help, self.dropped.clone());
    }
}
