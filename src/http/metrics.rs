//! `/metrics`, as Prometheus reads it. Labels come from closed sets: never a scope, an id or a text.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::auth::Challenge;
use crate::auth::Caller;
use crate::db::Connections;
use crate::engine::overview::SweepMetrics;
use crate::engine::{Engine, Readiness};
use crate::error::{Error, with_causes};
use crate::model::Action;

/// The media type of the text format.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Connection {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Tier {
    tier: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Space {
    provider: String,
    model: String,
    dimensions: i32,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Swept {
    sweep: &'static str,
}

/// Shows the metrics to callers that may do everything everywhere: they tell about all scopes together.
pub(super) async fn show(
    State((engine, challenge)): State<(Arc<Engine>, Challenge)>,
    Extension(caller): Extension<Caller>,
) -> Response {
    if !caller.may_everywhere(Action::Admin) {
        return challenge.insufficient(Action::Admin);
    }
    Box::pin(scrape(&engine)).await
}

/// `/metrics` without a token, for a listener that only the operator's network reaches.
pub fn listener(engine: Arc<Engine>) -> Router {
    let show = get(async |State(engine): State<Arc<Engine>>| Box::pin(scrape(&engine)).await);
    Router::new().route("/metrics", show).fallback(super::not_found).with_state(engine)
}

async fn scrape(engine: &Engine) -> Response {
    let (readiness, progress, sweeps) =
        tokio::join!(engine.readiness(), engine.embedding_progress(), engine.sweep_metrics());
    let mut registry = Registry::with_prefix("memser");
    registry.register("build", "This memser", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    engine.metrics().register(&mut registry);
    register_connections(&mut registry, engine.connections());
    register_parts(&mut registry, readiness);
    match progress {
        Ok(progress) => register_embeddings(&mut registry, &progress),
        Err(error) => tracing::warn!(error = with_causes(&error), "the metrics lack what the database knows"),
    }
    match sweeps {
        Ok(sweeps) => register_sweeps(&mut registry, &sweeps),
        Err(error) => tracing::warn!(error = with_causes(&error), "the metrics lack the sweeps"),
    }
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => super::reply::fault(&Error::Internal(error.into())),
    }
}

fn register_connections(registry: &mut Registry, connections: Connections) {
    let used = Family::<Connection, Gauge>::default();
    used.get_or_create(&Connection { state: "in_use" }).set(connections.in_use.into());
    used.get_or_create(&Connection { state: "idle" }).set(connections.idle.into());
    registry.register("postgres_connections", "Connections of the pool that all calls share", used);
    let most = Gauge::<i64>::default();
    most.set(connections.most.into());
    registry.register("postgres_connections_max", "DATABASE_MAX_CONNECTIONS", most);
}

fn register_parts(registry: &mut Registry, readiness: Readiness) {
    let up = Family::<Part, Gauge>::default();
    let parts =
        [("postgres", readiness.postgres), ("working", readiness.working), ("embedder", readiness.embedder)];
    for (part, is_up) in parts.into_iter().chain(readiness.llm.map(|is_up| ("llm", is_up))) {
        up.get_or_create(&Part { part }).set(i64::from(is_up));
    }
    registry.register("part_up", "Whether a part answers, as /readyz says", up);
}

fn register_embeddings(registry: &mut Registry, progress: &crate::db::space::Census) {
    let memories = Family::<Tier, Gauge>::default();
    memories.get_or_create(&Tier { tier: "episodic" }).set(progress.episodic);
    memories.get_or_create(&Tier { tier: "semantic" }).set(progress.semantic);
    registry.register("memories", "Durable memories of all scopes, superseded ones included", memories);
    let vectors = Family::<Space, Gauge>::default();
    for space in &progress.spaces {
        let labels = Space {
            provider: space.known.provider.clone(),
            model: space.known.model.clone(),
            dimensions: space.known.space.dimensions,
            state: space.state.name(),
        };
        vectors.get_or_create(&labels).set(space.vectors);
    }
    let help = "Memories that have a vector in an embedding space; a space that is building is done at the sum of memser_memories";
    registry.register("embedding_vectors", help, vectors);
}

fn register_sweeps(registry: &mut Registry, metrics: &SweepMetrics) {
    let (running, succeeded) = (Family::<Swept, Gauge>::default(), Family::<Swept, Gauge>::default());
    let intervals = Family::<Swept, Gauge<f64, AtomicU64>>::default();
    for state in &metrics.sweeps {
        let swept = Swept { sweep: state.sweep.name() };
        running.get_or_create(&swept).set(i64::from(state.is_running));
        if let Some(at) = state.last_success {
            succeeded.get_or_create(&swept).set(at.timestamp());
        }
        if let Some(interval) = state.interval {
            intervals.get_or_create(&swept).set(interval.as_secs_f64());
        }
    }
    registry.register("sweep_running", "Whether a replica runs the sweep now", running);
    registry.register("sweep_last_success_timestamp_seconds", "When the sweep last ended well", succeeded);
    let help = "How often the sweep is to run; none for one that runs only when it is asked for";
    registry.register("sweep_interval_seconds", help, intervals);
    let parked = Gauge::<i64>::default();
    parked.set(i64::try_from(metrics.parked).unwrap_or(i64::MAX));
    let help = "Scopes that consolidation leaves alone for a while, because they failed again and again";
    registry.register("consolidation_parked_scopes", help, parked);
}
