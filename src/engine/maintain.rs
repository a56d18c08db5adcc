//! What sweeps do beside consolidation: decay, pending vectors, pruning. Plain functions; when they run is `jobs`'s
//! business.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::Engine;
use super::models::Model;
use super::sweep::{Sweeps, TRIES, rest_after};
use crate::db::decay::{self, Place, Which};
use crate::db::space::State;
use crate::db::{self, ScopeId, Tx, consolidation, idempotency, job};
use crate::error::Result;
use crate::model::Scope;

/// What parking goes by where consolidation has no interval.
const PARKED_BY: Duration = Duration::from_hours(1);
/// Rows changed in one transaction: short enough that no recall waits for it.
const CHUNK: u32 = 1_000;
/// Memories that decay in one transaction: work for a few milliseconds.
const DECAY_CHUNK: i64 = 200;
/// Texts embedded in one request.
const EMBED_CHUNK: i64 = 64;
/// How long the vectors of a retired space are kept, for a change back.
const RETIRED_KEPT: TimeDelta = TimeDelta::days(7);

/// How far the filling of a space is: it goes over all memories, and again until it finds no more to fill.
#[derive(Debug, Default)]
pub struct Pass {
    after: Option<(ScopeId, Uuid)>,
    filled: u64,
}

impl Engine {
    /// What the operator set of sweeps.
    #[must_use]
    pub const fn sweeps(&self) -> &Sweeps {
        &self.settings.sweeps
    }

    /// The scopes with enough memories to consolidate, fullest first, without those that are parked.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn scopes_to_consolidate(&self) -> Result<Vec<Scope>> {
        let enough = i64::from(self.settings.sweeps.consolidation_min_episodic);
        db::scope::to_consolidate(&self.db, enough, TRIES, self.clock.now()).await
    }

    /// Counts a failure of consolidation in a scope, which is parked after [`TRIES`] in a row without a new fact; answers
    /// how many there were and until when it rests.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn consolidation_failed(&self, scope: &Scope, reason: &str) -> Result<(i32, DateTime<Utc>)> {
        let now = self.clock.now();
        let Some(id) = self.scope_id(scope).await? else {
            return Ok((0, now));
        };
        let interval = self.settings.sweeps.consolidation_interval.unwrap_or(PARKED_BY);
        let mut tx = Tx::for_scope(&self.db, id).await?;
        let tries = job::count_failure(&mut tx, id, reason, now).await?;
        let until = now + rest_after(tries, interval);
        job::rest_until(&mut tx, id, until).await?;
        tx.commit().await?;
        Ok((tries, until))
    }

    /// Forgets what went wrong in a scope before.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn consolidation_succeeded(&self, scope: &Scope) -> Result<()> {
        let Some(id) = self.scope_id(scope).await? else {
            return Ok(());
        };
        let mut tx = Tx::for_scope(&self.db, id).await?;
        job::clear_failures(&mut tx, id).await?;
        tx.commit().await
    }

    /// Gives every parked scope another chance; answers how many scopes had failed.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn unpark(&self) -> Result<u64> {
        job::clear_all_failures(&self.db).await
    }

    /// Lets consolidation look at every memory again, and not only at those that are new or near a new one: after a change
    /// of what counts as alike. Answers how many there are to look at. Scope by scope, each in a transaction of its own.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn look_again(&self) -> Result<u64> {
        let (mut last, mut memories) = (ScopeId(i64::MIN), 0);
        loop {
            let scopes = db::scope::after(&self.db, last, i64::from(CHUNK)).await?;
            for scope in &scopes {
                let mut tx = Tx::for_scope(&self.db, *scope).await?;
                tx.lock_scope(*scope).await?;
                memories += consolidation::look_again(&mut tx, *scope).await?;
                tx.commit().await?;
            }
            match scopes.last() {
                Some(scope) => last = *scope,
                None => return Ok(memories),
            }
        }
    }

    /// Lets the next untouched memories lose confidence; answers how many did, `None` after the last. A memory that
    /// somebody else has locked is left for the next sweep.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn decay_chunk(&self, after: &mut Option<Place>) -> Result<Option<u64>> {
        let (now, rule) = (self.clock.now(), &self.settings.sweeps.decay);
        let decayed_before = now - rule.step();
        let which = Which {
            touched_before: decayed_before - rule.after,
            decayed_before,
            floor: rule.floor,
            protected: &rule.protected,
        };
        let mut tx = Tx::all_scopes(&self.db).await?;
        let untouched = decay::lock(&mut tx, which, *after, DECAY_CHUNK).await?;
        let Some(last) = untouched.last() else {
            return Ok(None);
        };
        *after = Some(last.place);
        let decayed: Vec<(Place, f32)> = untouched
            .iter()
            .map(|of| (of.place, rule.decayed(of.confidence, of.touched_at, of.decayed_at, now)))
            .collect();
        decay::write(&mut tx, &decayed, now).await?;
        tx.commit().await?;
        Ok(Some(decayed.len() as u64))
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

    /// Drops a chunk of each kind of what has expired: working memories, idempotency keys, snapshots of what was forgotten,
    /// rows of the audit log and of runs, vectors of spaces retired long ago; answers how many.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn prune_chunk(&self) -> Result<u64> {
        let now = self.clock.now();
        let vectors = db::space::prune(&self.db, now - RETIRED_KEPT, i64::from(CHUNK)).await?;
        let retention = self.settings.sweeps.retention;
        let snapshots =
            db::forget::prune_snapshots(&self.db, now - retention.snapshots, i64::from(CHUNK)).await?;
        let calls = match retention.audit {
            Some(kept) => db::audit::prune(&self.db, now - kept, i64::from(CHUNK)).await?,
            None => 0,
        };
        let runs = job::prune_runs(&self.db, now - retention.job_runs, i64::from(CHUNK)).await?;
        let answers = idempotency::prune(&self.db, now).await?;
        Ok(self.working.prune(now, CHUNK).await? + answers + calls + runs + snapshots + vectors)
    }
}
