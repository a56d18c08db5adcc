//! What sweeps do beside consolidation: decay, pending vectors, pruning. Plain functions; when they run is `jobs`'s
//! business.

use std::time::Duration;

use chrono::TimeDelta;

use super::Engine;
use crate::db::consolidation::{Decay, decay};
use crate::db::{self, idempotency};
use crate::error::Result;
use crate::model::Scope;

/// Rows changed in one transaction: short enough that no recall waits for it.
const CHUNK: u32 = 1_000;
/// Texts embedded in one request.
const EMBED_CHUNK: i64 = 64;
/// What one decay step leaves of a confidence.
const DECAY_FACTOR: f32 = 0.95;
/// No confidence decays below.
const DECAY_FLOOR: f32 = 0.1;

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

    /// Embeds a chunk of the memories that wait for it; answers how many. When none is left the space is active.
    ///
    /// # Errors
    /// `unavailable`, also when the embedder is still down.
    pub async fn embed_chunk(&self) -> Result<u64> {
        let pending = db::embedding::pending(&self.db, self.space, EMBED_CHUNK).await?;
        if pending.is_empty() {
            db::space::activate(&self.db, self.space).await?;
            return Ok(0);
        }
        let texts: Vec<String> = pending.iter().map(|memory| memory.content.clone()).collect();
        let (mut done, mut failed) = (0, None);
        for (memory, vector) in pending.iter().zip(self.embedder.embed_each(&texts).await) {
            match vector {
                Ok(vector) => {
                    db::embedding::fill(&self.db, self.space, memory.scope, memory.id, &vector).await?;
                    done += 1;
                }
                Err(error) => failed = Some(error),
            }
        }
        // Those that failed are the first of the next chunk.
        failed.filter(|_| done == 0).map_or(Ok(done), |error| Err(error.into()))
    }

    /// Drops a chunk of what has expired: working memories and idempotency keys; answers how many.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn prune_chunk(&self) -> Result<u64> {
        let now = self.clock.now();
        Ok(self.working.prune(now, CHUNK).await? + idempotency::prune(&self.db, now).await?)
    }
}
