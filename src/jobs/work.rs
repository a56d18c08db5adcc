//! What each sweep does: chunk by chunk, until there is nothing left to do.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Jobs, Ran, Sweep, Tally, report};
use crate::db::lock::SweepLock;
use crate::db::space::{build_index, drop_retired_indexes};
use crate::engine::maintain::Pass;
use crate::engine::models::Model;
use crate::engine::sweep::TRIES;
use crate::error::{Error, Result, with_causes};
use crate::model::Scope;

/// How long a chunk of anything but consolidation may take: it hangs, and must not keep the lock for ever.
const CHUNK_LIMIT: Duration = Duration::from_mins(5);

impl Jobs {
    pub(super) async fn work(&self, sweep: Sweep, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        match sweep {
            Sweep::Consolidate => Box::pin(self.consolidate(lock, tally)).await,
            Sweep::Decay => self.decay(lock, tally).await,
            Sweep::Embed => self.embed(lock, tally).await,
            Sweep::Prune => self.prune(lock, tally).await,
        }
    }

    /// One scope after the other; one that fails does not keep the others from their turn.
    async fn consolidate(&self, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        let mut ran = Ran::Done;
        for scope in self.engine.scopes_to_consolidate().await? {
            match self.consolidate_scope(&scope, lock, tally).await {
                Ok(Ran::Stopped) => return Ok(Ran::Stopped),
                Ok(Ran::Failed) => ran = Ran::Failed,
                Ok(_) => {}
                // That is no scope's fault, and would befall the others too.
                Err(error @ Error::Unavailable { part: "postgres", .. }) => return Err(error),
                Err(error @ Error::Unavailable { part: "llm", .. })
                    if !self.engine.is_summariser_up().await =>
                {
                    return Err(error);
                }
                Err(error) => {
                    ran = Ran::Failed;
                    report(Sweep::Consolidate, &error);
                    self.scope_failed(&scope, &error, tally).await?;
                }
            }
        }
        Ok(ran)
    }

    /// Turn by turn, until everything was looked at. What the language model made no summary of is looked at again by a
    /// later run.
    async fn consolidate_scope(&self, scope: &Scope, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        let limit = self.engine.sweeps().consolidation_timeout;
        loop {
            if !lock.is_held().await {
                return Ok(Ran::Stopped);
            }
            let answer = within(limit, self.engine.consolidate_for_sweep(scope.clone())).await?;
            tally.changed += (answer.created.len() + answer.updated.len()) as u64;
            if answer.degraded.iter().any(|part| part == "llm") {
                if answer.created.is_empty() && answer.updated.is_empty() {
                    let source = anyhow::anyhow!("it gave no summary that can be used");
                    return Err(Error::Unavailable { part: "llm", source });
                }
                return Ok(Ran::Failed);
            }
            if answer.complete {
                self.engine.consolidation_succeeded(scope).await?;
                return Ok(Ran::Done);
            }
        }
    }

    async fn scope_failed(&self, scope: &Scope, error: &Error, tally: &mut Tally) -> Result<()> {
        let reason = format!("{}: {error}", error.code());
        let (tries, until) = self.engine.consolidation_failed(scope, &reason).await?;
        let parked_until = (tries >= TRIES).then_some(until);
        if parked_until.is_some() {
            tracing::warn!(tries, "a scope is parked: see GET /v1/jobs");
        }
        tally.scope_failed(scope.as_str(), &reason, tries, parked_until);
        Ok(())
    }

    /// It has all day: after each chunk it rests as long as that took, and leaves the database to recalls.
    async fn decay(&self, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        let mut after = None;
        while lock.is_held().await {
            let started = Instant::now();
            match within(CHUNK_LIMIT, self.engine.decay_chunk(&mut after)).await? {
                Some(decayed) => tally.changed += decayed,
                None => return Ok(Ran::Done),
            }
            tokio::time::sleep(started.elapsed()).await;
        }
        Ok(Ran::Stopped)
    }

    /// Rests as decay does: after a retention was set or shortened there may be millions of rows.
    async fn prune(&self, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        while lock.is_held().await {
            let started = Instant::now();
            match within(CHUNK_LIMIT, self.engine.prune_chunk()).await? {
                0 => return Ok(Ran::Done),
                dropped => tally.changed += dropped,
            }
            tokio::time::sleep(started.elapsed()).await;
        }
        Ok(Ran::Stopped)
    }

    /// Fills the spaces that this memser has the models of; one whose embedder is down does not keep the other from being
    /// filled. A building space that is full gets its index and is used from then on.
    async fn embed(&self, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        let mut ran = Ran::Done;
        for model in self.engine.models_to_fill().await? {
            match self.complete(&model, lock, tally).await {
                Ok(Ran::Stopped) => return Ok(Ran::Stopped),
                Ok(_) => {}
                Err(error) => {
                    ran = Ran::Failed;
                    let (provider, name) = (model.embedder.provider(), model.embedder.model());
                    tracing::warn!(
                        provider,
                        model = name,
                        error = with_causes(&error),
                        "memories still wait for their vectors"
                    );
                }
            }
        }
        Ok(ran)
    }

    async fn complete(&self, model: &Model, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        if self.fill(model, lock, tally).await? == Ran::Stopped {
            return Ok(Ran::Stopped);
        }
        // As long as it takes: an index of millions of vectors takes hours.
        let built = build_index(lock.connection(), model.space).await?;
        // What was stored while the index was made.
        if built && self.fill(model, lock, tally).await? == Ran::Stopped {
            return Ok(Ran::Stopped);
        }
        if self.engine.take_into_use(model).await? {
            drop_retired_indexes(lock.connection()).await?;
            // What was stored in the moment before.
            return self.fill(model, lock, tally).await;
        }
        Ok(Ran::Done)
    }

    async fn fill(&self, model: &Model, lock: &mut SweepLock, tally: &mut Tally) -> Result<Ran> {
        let mut pass = Pass::default();
        while lock.is_held().await {
            match within(CHUNK_LIMIT, self.engine.fill_chunk(model, &mut pass)).await? {
                Some(filled) => tally.changed += filled,
                None => return Ok(Ran::Done),
            }
        }
        Ok(Ran::Stopped)
    }
}

/// What takes longer is dropped, and its transaction rolled back.
async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(limit, work).await.unwrap_or(Err(Error::Timeout { limit }))
}
