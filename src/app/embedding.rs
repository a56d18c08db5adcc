//! The embedding models of a start: the configured one and, while the database still uses another, that one as well.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::clock::Clock;
use crate::config::{Alternatives, Config, Decisions, EmbedderSettings};
use crate::db::Db;
use crate::db::space::{self, INDEXED_UP_TO, Known};
use crate::engine::judge::Thresholds;
use crate::engine::models::{Model, Models, Tuning};
use crate::engine::score::Weights;
use crate::metrics::Metrics;
use crate::provider::embed::Embedder;
use crate::provider::local::{self, Local, LocalSettings, identify};
use crate::provider::openai::{OpenAi, OpenAiSettings, native_dimensions};

/// Starts the configured embedder and opens its space; says so where that means a change of model.
pub(super) async fn models(
    config: &Config,
    db: &Db,
    clock: &Clock,
    metrics: &Metrics,
) -> anyhow::Result<Models> {
    let cache_bytes = config.embedding_cache_bytes;
    let embedder = start(&config.embedder, cache_bytes, clock).await?.counted_in(metrics.clone());
    let (provider, model) = (embedder.provider(), embedder.model().to_owned());
    let dimensions = i32::try_from(embedder.dimensions()).context("EMBEDDING_DIMENSIONS")?;
    let (space, active) = space::open(db, provider, &model, dimensions, clock.now()).await?;
    if !space.is_indexed() {
        tracing::warn!(
            "vectors of {dimensions} dimensions are too wide for an index, which takes {INDEXED_UP_TO}: recall by \
             meaning scans all of a scope"
        );
    }
    let own = tuned(&config.decisions, embedder, space);
    if active.space == space {
        return Ok(Models::new(own, &active, None));
    }
    let previous = previous(&config.alternatives, &active, cache_bytes, clock);
    let from = format!("{} {} ({} dimensions)", active.provider, active.model, active.space.dimensions);
    let to = format!("{provider} {model} ({dimensions} dimensions)");
    if previous.is_some() {
        tracing::warn!(
            "the embedding model changes from {from} to {to}: a sweep embeds every memory anew, and recall goes on with \
             the old vectors until it is done; see its progress with: memser doctor"
        );
    } else {
        tracing::warn!(
            "the embedding model changes from {from} to {to}, and the settings have no way to the old one: a sweep \
             embeds every memory anew, and until it is done recall finds by meaning what has a new vector, and the rest \
             by its words; see its progress with: memser doctor"
        );
    }
    let previous =
        previous.map(|embedder| tuned(&config.decisions, embedder.counted_in(metrics.clone()), active.space));
    Ok(Models::new(own, &active, previous))
}

async fn start(settings: &EmbedderSettings, cache_bytes: u64, clock: &Clock) -> anyhow::Result<Embedder> {
    Ok(match settings {
        EmbedderSettings::OpenAi(settings) => {
            Embedder::openai(OpenAi::new(settings, clock.clone())?, cache_bytes)
        }
        EmbedderSettings::Local { dir, fetch } => {
            if let Some((hub, name)) = fetch {
                tracing::info!("fetching the model {name} from {hub} into {}, this once", dir.display());
                local::fetch(hub, name, dir).await.context("EMBEDDING_HUB_MODEL")?;
            }
            Embedder::local(Local::start(&LocalSettings::new(dir))?, cache_bytes)
        }
        EmbedderSettings::Hash { dimensions } => Embedder::hash(*dimensions),
    })
}

/// The model with what the operator set, over what was measured for its embedder.
fn tuned(decisions: &Decisions, embedder: Embedder, space: space::Space) -> Model {
    let defaults = embedder.defaults();
    let tuning = Tuning {
        thresholds: Thresholds {
            duplicate: decisions.duplicate_threshold.unwrap_or(defaults.thresholds.duplicate),
            conflict: decisions.conflict_threshold.unwrap_or(defaults.thresholds.conflict),
        },
        weights: decisions.weights.over(Weights {
            vector: defaults.weight_vector,
            lexical: defaults.weight_lexical,
            ..Weights::default()
        }),
        cluster_similarity: decisions.consolidation_similarity.unwrap_or(defaults.cluster_similarity),
    };
    Model::new(embedder, space, tuning)
}

/// The embedder of the active space, where the settings still have a way to it: the endpoint that they name, with the
/// old model; a folder beside the new model's; feature hashing always.
fn previous(
    alternatives: &Alternatives,
    active: &Known,
    cache_bytes: u64,
    clock: &Clock,
) -> Option<Embedder> {
    let dimensions = usize::try_from(active.space.dimensions).ok()?;
    let embedder = match active.provider.as_str() {
        "hash" => Embedder::hash(dimensions),
        "openai" => {
            let settings = OpenAiSettings {
                model: active.model.clone(),
                // Sent to the endpoint, which not every model takes: only where it was needed before as well.
                dimensions: Some(dimensions).filter(|_| native_dimensions(&active.model) != Some(dimensions)),
                ..alternatives.endpoint.clone()?
            };
            Embedder::openai(OpenAi::new(&settings, clock.clone()).ok()?, cache_bytes)
        }
        "local" => {
            let dir = folders(alternatives)
                .into_iter()
                .find(|dir| identify(dir).as_ref() == Some(&active.model))?;
            Embedder::local(Local::start(&LocalSettings::new(dir)).ok()?, cache_bytes)
        }
        _ => return None,
    };
    (embedder.model() == active.model && embedder.dimensions() == dimensions).then_some(embedder)
}

/// Where the model before may be: in the named folder, or beside it.
fn folders(alternatives: &Alternatives) -> Vec<PathBuf> {
    let Some(named) = &alternatives.model_dir else {
        return Vec::new();
    };
    let beside = named.parent().and_then(|parent| fs::read_dir(parent).ok()).into_iter().flatten().flatten();
    std::iter::once(named.clone())
        .chain(beside.map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect()
}
