//! Which embedding model calls use, also while it changes.
//!
//! A memser that is started with another model goes on with the one before, where it still has it, until every memory
//! has a vector of the new one. All replicas follow the database, which says what is active: recall reads it in each
//! call, and the embed sweep whenever it rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use uuid::Uuid;

use super::score::Weights;
use crate::db::ScopeId;
use crate::db::embedding::Pending;
use crate::db::space::{Known, Space};
use crate::provider::embed::{EmbedError, Embedder, Thresholds};

/// What was measured for an embedder, under what the operator set.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// From which likeness on memories are judged.
    pub thresholds: Thresholds,
    /// What counts how much in recall.
    pub weights: Weights,
    /// How alike memories of one cluster are.
    pub cluster_similarity: f32,
}

/// An embedder and the space of its vectors.
#[derive(Debug)]
pub struct Model {
    /// Makes the vectors.
    pub embedder: Embedder,
    /// Where they are.
    pub space: Space,
    /// What suits them.
    pub tuning: Tuning,
}

/// The model that this memser is configured for, and the one that was active when it started.
#[derive(Debug)]
pub struct Models {
    own: Arc<Model>,
    /// Absent where the own one is active, or where the configuration has no way to the other.
    previous: Option<Arc<Model>>,
    /// The active space as last seen.
    active: AtomicI32,
}

impl Model {
    /// An embedder with its space.
    #[must_use]
    pub const fn new(embedder: Embedder, space: Space, tuning: Tuning) -> Self {
        Self { embedder, space, tuning }
    }

    /// What a person knows it by.
    fn name(&self) -> String {
        format!("{} ({} dimensions)", self.embedder.model(), self.space.dimensions)
    }

    /// The vector of a text, or `None` when the embedder is down: every caller has an answer without one.
    pub(super) async fn embed(&self, text: &str) -> Option<Vec<f32>> {
        let vector = self.embedder.embed(text).await.inspect_err(|error| {
            // That it is left alone was told when that began.
            if *error != EmbedError::LeftAlone {
                tracing::warn!(error = %error, "the embedder failed; going on without a vector");
            }
        });
        vector.ok()
    }

    /// The vectors of memories without those of texts that the embedder refuses, and what kept it from giving more.
    pub(super) async fn vectors_of(
        &self,
        memories: &[Pending],
    ) -> (Vec<(ScopeId, Uuid, Vec<f32>)>, Option<EmbedError>) {
        let texts: Vec<String> = memories.iter().map(|memory| memory.content.clone()).collect();
        let (mut made, mut failed) = (Vec::new(), None);
        for (memory, vector) in memories.iter().zip(self.embedder.embed_each(&texts).await) {
            match vector {
                Ok(vector) => made.push((memory.scope, memory.id, vector)),
                Err(EmbedError::Refused) => {
                    tracing::debug!(memory_id = %memory.id, "a memory stays without a vector");
                }
                Err(error) => failed = Some(error),
            }
        }
        (made, failed)
    }
}

impl Models {
    /// The own model, and the one of the active space where that is another and can still be used.
    #[must_use]
    pub fn new(own: Model, active: &Known, previous: Option<Model>) -> Self {
        Self { own: Arc::new(own), previous: previous.map(Arc::new), active: AtomicI32::new(active.space.id) }
    }

    /// The configured model, for people.
    #[must_use]
    pub fn name(&self) -> String {
        self.own.name()
    }

    /// The model that calls use: that of the active space, or the own one where this memser has no other.
    pub(super) fn current(&self) -> &Arc<Model> {
        match &self.previous {
            Some(previous) if previous.space.id == self.active() => previous,
            _ => &self.own,
        }
    }

    /// The model that this memser is configured for.
    pub(super) const fn own(&self) -> &Arc<Model> {
        &self.own
    }

    /// Whether every memory that other replicas store gets its vector where [`current`](Self::current) looks.
    pub(super) fn is_whole(&self) -> bool {
        self.current().space.id == self.active()
    }

    /// The number of the active space. A memory without a vector there is pending.
    pub(super) fn active(&self) -> i32 {
        self.active.load(Ordering::Relaxed)
    }

    /// Notes which space the database says is active.
    pub(super) fn note_active(&self, space: i32) {
        if self.active.swap(space, Ordering::Relaxed) == space {
            return;
        }
        let own = self.own.name();
        if space == self.own.space.id {
            tracing::info!(
                model = own,
                "every memory has its vector of the new model, which is used from now on"
            );
        } else if self.is_whole() {
            tracing::info!("another memser changed the embedding model back");
        } else {
            tracing::warn!(
                model = own,
                "another memser has changed the embedding model, for which this one is not configured: it finds new \
                 memories by their words alone, and what it stores waits until the other embeds it; give all replicas \
                 the same settings"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: i32) -> Model {
        let embedder = Embedder::hash(8);
        let defaults = embedder.defaults();
        let tuning = Tuning {
            thresholds: defaults.thresholds,
            weights: Weights::default(),
            cluster_similarity: defaults.cluster_similarity,
        };
        Model::new(embedder, Space { id, dimensions: 8 }, tuning)
    }

    fn known(id: i32) -> Known {
        Known { space: Space { id, dimensions: 8 }, provider: "hash".to_owned(), model: "hash".to_owned() }
    }

    #[test]
    fn the_previous_model_is_used_until_the_own_space_is_active() {
        let models = Models::new(model(2), &known(1), Some(model(1)));
        assert_eq!((models.current().space.id, models.is_whole()), (1, true));
        models.note_active(2);
        assert_eq!((models.current().space.id, models.is_whole()), (2, true));
        models.note_active(1);
        assert_eq!((models.current().space.id, models.is_whole()), (1, true));
    }

    #[test]
    fn without_the_active_model_the_own_one_is_used_and_known_to_be_partial() {
        let models = Models::new(model(2), &known(1), None);
        assert_eq!((models.current().space.id, models.is_whole()), (2, false));
        models.note_active(2);
        assert!(models.is_whole());
        models.note_active(3);
        assert_eq!((models.current().space.id, models.is_whole()), (2, false));
    }
}
