//! What sweeps do beside consolidation: decay, pending vectors, pruning. Plain functions; when they run is `jobs`'s
//! business.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use uuid::Uuid;

use super::Engine;
use super::models::Model;
use crate::db::consolidation::{Decay, decay};
use crate::db::space::State;
use crate::db::{self, ScopeId, idempotency};
use crate::error::Result;
use crate::model::Scope;

/// Rows changed in one transaction: short enough that no recall waits for it.
const CHUNK: u32 = 1_000;
/// Texts embedded in one request.
const EMBED_CHUNK: i64 = 64;
/// How long the vectors of a retired space are kept, for a change back.
const RETIRED_KEPT: TimeDelta = TimeDelta::days(7);
/// What one decay step leaves of a confidence.
const DECAY_FACTOR: f32 = 0.95;
/// No confidence decays below.
const DECAY_FLOOR: f32 = 0.1;

/// How far the filling of a space is: it goes over all memories, and again until it finds no more to fill.
#[derive(Debug, Default)]
pub struct Pass {
    after: Option<(ScopeId, Uuid)>,
    filled: u64,
}

impl Engine {
    /// The scopes with at least `min` memories to consolidate, fullest first.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn scopes_to_consolidate(&self, min: u32) -> Result<Vec<Scope>> {
        db::scope::to_consolidate(&self.db, i64::from(min)).await
    }

    /// Lets a chunk of untouched memories lose confidence; answers how many did. Call it until it answers 0.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn decay_chunk(&self, after_days: u32, every: Duration) -> Result<u64> {
        let now = self.clock.now();
        let step = Decay {
            now,
            untouched_since: now - TimeDelta::days(i64::from(after_days)),
            last_before: now - TimeDelta::from_std(every).unwrap_or(TimeDelta::days(1)),
            factor: DECAY_FACTOR,
            floor: DECAY_FLOOR,
        };
        decay(&self.db, step, i64::from(CHUNK)).await
    }

    /// The models whose spaces this memser fills: that of the active space, and its own while that is building. Follows
    /// what other replicas did meanwhile.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn models_to_fill(&self) -> Result<Vec<Arc<Model>>> {
        let own = self.models.own();
        let (active, state) = db::space::states(&self.db, own.space).await?;
        self.models.note_active(active);
        let current = self.models.is_whole().then(|| self.models.current());
        let building = (state == State::Building).then_some(own);
        Ok(current.into_iter().chain(building).cloned().collect())
    }

    /// Embeds the next memories of a pass and answers how many; `None` after a pass that found no more. A text that the
    /// embedder refuses stays without a vector and holds up nobody.
    ///
    /// # Errors
    /// `unavailable`, also when the embedder is down.
    pub async fn fill_chunk(&self, model: &Model, pass: &mut Pass) -> Result<Option<u64>> {
        let pending = db::embedding::pending(&self.db, model.space, pass.after, EMBED_CHUNK).await?;
        let Some(last) = pending.last() else {
            // What was stored meanwhile can lie behind: look once more.
            let more = (pass.filled > 0).then_some(0);
            *pass = Pass::default();
            return Ok(more);
        };
        pass.after = Some((last.scope, last.id));
        let (vectors, failed) = model.vectors_of(&pending).await;
        let filled = vectors.len() as u64;
        db::embedding::fill(&self.db, model.space, vectors).await?;
        pass.filled += filled;
        failed.map_or(Ok(Some(filled)), |error| Err(error.into()))
    }

    /// Makes a full space the active one, if it was building. Answers whether it was.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn take_into_use(&self, model: &Model) -> Result<bool> {
        let activated = db::space::activate(&self.db, model.space, self.clock.now()).await?;
        if activated {
            self.models.note_active(model.space.id);
        }
        Ok(activated)
    }

    /// Drops a chunk of what has expired: working memories, idempotency keys, snapshots of what was forgotten, vectors of
    /// spaces retired long ago; answers
    /// how many.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn prune_chunk(&self) -> Result<u64> {
        let now = self.clock.now();
        let vectors = db::space::prune(&self.db, now - RETIRED_KEPT, i64::from(CHUNK)).await?;
        let kept = TimeDelta::days(i64::from(self.settings.snapshot_retention_days));
        let snapshots = db::forget::prune_snapshots(&self.db, now - kept, i64::from(CHUNK)).await?;
        let answers = idempotency::prune(&self.db, now).await?;
        Ok(self.working.prune(now, CHUNK).await? + answers + snapshots + vectors)
    }
}
