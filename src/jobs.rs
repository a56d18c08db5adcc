//! When sweeps run, and which replica runs them.
//!
//! The cron only rings. A sweep takes its lock on a connection of its own and skips when another replica has it; it
//! works in chunks, looks at its lock and at the shutdown between two of them, and leaves a `job_runs` row.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use tokio_cron_scheduler::{Job, JobScheduler};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Sweeps;
use crate::db::Db;
use crate::db::lock::{SweepLock, record_run};
use crate::db::space::{build_index, drop_retired_indexes};
use crate::engine::Engine;
use crate::engine::maintain::Pass;
use crate::engine::models::Model;
use crate::error::Result;

/// How often pending memories are embedded: the longest that one stays unfound by meaning after its embedder is back.
const EMBED_EVERY: Duration = Duration::from_secs(15);
/// How often what has expired is dropped; reads do not see it anyway.
const PRUNE_EVERY: Duration = Duration::from_mins(10);

/// A sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Makes facts of alike memories.
    Consolidate,
    /// Lets untouched memories lose confidence.
    Decay,
    /// Embeds what waits for it.
    Embed,
    /// Drops what has expired.
    Prune,
}

/// What became of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It worked to the end.
    Done,
    /// Another replica has the lock.
    Skipped,
    /// The shutdown or a lost lock stopped it between two chunks; what was done stays done.
    Stopped,
    /// It failed; the next ring tries again.
    Failed,
}

impl Sweep {
    /// Every sweep.
    pub const ALL: [Self; 4] = [Self::Consolidate, Self::Decay, Self::Embed, Self::Prune];

    /// The name in `job_runs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consolidate => "consolidate",
            Self::Decay => "decay",
            Self::Embed => "embed",
            Self::Prune => "prune",
        }
    }

    /// Negative, because positive keys lock scopes.
    const fn lock_key(self) -> i64 {
        match self {
            Self::Consolidate => -1,
            Self::Decay => -2,
            Self::Embed => -3,
            Self::Prune => -4,
        }
    }

    const fn interval(self, sweeps: &Sweeps) -> Duration {
        match self {
            Self::Consolidate => sweeps.consolidation_interval,
            Self::Decay => sweeps.decay_interval,
            Self::Embed => EMBED_EVERY,
            Self::Prune => PRUNE_EVERY,
        }
    }
}

/// Everything that sweeps work with.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// The decisions.
    pub engine: Arc<Engine>,
    /// Where runs are noted.
    pub db: Db,
    /// How a lock's own connection is made.
    pub connect: PgConnectOptions,
    /// Time.
    pub clock: Clock,
    /// The intervals.
    pub sweeps: Sweeps,
    /// Stops sweeps between two chunks.
    pub shutdown: CancellationToken,
}

impl Jobs {
    /// Rings every sweep at its interval, until the scheduler is shut down.
    ///
    /// # Errors
    /// When the scheduler does not start.
    pub async fn schedule(&self) -> anyhow::Result<JobScheduler> {
        let scheduler = JobScheduler::new().await.context("the scheduler does not start")?;
        for sweep in Sweep::ALL {
            let jobs = self.clone();
            let job = Job::new_repeated_async(sweep.interval(&self.sweeps), move |_, _| {
                let jobs = jobs.clone();
                Box::pin(async move {
                    jobs.run(sweep).await;
                })
            })?;
            scheduler.add(job).await?;
        }
        scheduler.start().await?;
        Ok(scheduler)
    }

    /// Runs one sweep now, unless another replica does.
    pub async fn run(&self, sweep: Sweep) -> Ran {
        let mut lock = match SweepLock::try_take(&self.connect, sweep.lock_key()).await {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ran::Skipped,
            Err(error) => {
                tracing::warn!(job = sweep.name(), error = %error, "a sweep could not take its lock");
                return Ran::Failed;
            }
        };
        let started_at = self.clock.now();
        let mut done = 0;
        let ran = self.work(sweep, &mut lock, &mut done).await;
        let (ran, detail) = match ran {
            Ok(ran) => (ran, json!({ "changed": done })),
            Err(error) => {
                tracing::warn!(job = sweep.name(), error = %error, "a sweep failed; the next ring tries again");
                (Ran::Failed, json!({ "changed": done, "error": error.code() }))
            }
        };
        // Sweeps that ring every few seconds and find nothing leave no row.
        let silent = ran == Ran::Done && done == 0 && matches!(sweep, Sweep::Embed | Sweep::Prune);
        if !silent {
            self.note(sweep, started_at, ran, &detail).await;
        }
        lock.free().await;
        ran
    }

    async fn note(&self, sweep: Sweep, started_at: chrono::DateTime<chrono::Utc>, ran: Ran, detail: &Value) {
        let outcome = match ran {
            Ran::Done | Ran::Skipped => "done",
            Ran::Stopped => "stopped",
            Ran::Failed => "failed",
        };
        let noted = record_run(&self.db, sweep.name(), started_at, self.clock.now(), outcome, detail).await;
        if let Err(error) = noted {
            tracing::warn!(job = sweep.name(), error = %error, "a sweep's run could not be noted");
        }
    }

    /// Chunk by chunk, until there is nothing left to do.
    async fn work(&self, sweep: Sweep, lock: &mut SweepLock, done: &mut u64) -> Result<Ran> {
        match sweep {
            Sweep::Consolidate => return self.consolidate(lock, done).await,
            Sweep::Embed => return self.embed(lock, done).await,
            Sweep::Decay | Sweep::Prune => {}
        }
        loop {
            if self.shutdown.is_cancelled() || !lock.is_held().await {
                return Ok(Ran::Stopped);
            }
            let changed = match sweep {
                Sweep::Decay => {
                    self.engine.decay_chunk(self.sweeps.decay_after_days, self.sweeps.decay_interval).await?
                }
                _ => self.engine.prune_chunk().await?,
            };
            if changed == 0 {
                return Ok(Ran::Done);
            }
            *done += changed;
        }
    }

    /// Fills the spaces that this memser has the models of; one whose embedder is down does not keep the other from being
    /// filled. A building space that is full gets its index and is used from then on.
    async fn embed(&self, lock: &mut SweepLock, done: &mut u64) -> Result<Ran> {
        let mut ran = Ran::Done;
        for model in self.engine.models_to_fill().await? {
            match self.complete(&model, lock, done).await {
                Ok(Ran::Stopped) => return Ok(Ran::Stopped),
                Ok(_) => {}
                Err(error) => {
                    ran = Ran::Failed;
                    let (provider, name) = (model.embedder.provider(), model.embedder.model());
                    tracing::warn!(provider, model = name, error = %error, "memories still wait for their vectors");
                }
            }
        }
        Ok(ran)
    }

    async fn complete(&self, model: &Model, lock: &mut SweepLock, done: &mut u64) -> Result<Ran> {
        if self.fill(model, lock, done).await? == Ran::Stopped {
            return Ok(Ran::Stopped);
        }
        let built = tokio::select! {
            built = build_index(lock.connection(), model.space) => built?,
            () = self.shutdown.cancelled() => return Ok(Ran::Stopped),
        };
        // What was stored while the index was made.
        if built && self.fill(model, lock, done).await? == Ran::Stopped {
            return Ok(Ran::Stopped);
        }
        if self.engine.take_into_use(model).await? {
            drop_retired_indexes(lock.connection()).await?;
            // What was stored in the moment before.
            return self.fill(model, lock, done).await;
        }
        Ok(Ran::Done)
    }

    async fn fill(&self, model: &Model, lock: &mut SweepLock, done: &mut u64) -> Result<Ran> {
        let mut pass = Pass::default();
        loop {
            if self.shutdown.is_cancelled() || !lock.is_held().await {
                return Ok(Ran::Stopped);
            }
            match self.engine.fill_chunk(model, &mut pass).await? {
                Some(filled) => *done += filled,
                None => return Ok(Ran::Done),
            }
        }
    }

    /// One scope after the other; one that fails does not keep the others from their turn.
    async fn consolidate(&self, lock: &mut SweepLock, done: &mut u64) -> Result<Ran> {
        let scopes = self.engine.scopes_to_consolidate(self.sweeps.consolidation_min_episodic).await?;
        let mut failed = false;
        for scope in scopes {
            if self.shutdown.is_cancelled() || !lock.is_held().await {
                return Ok(Ran::Stopped);
            }
            loop {
                match self.engine.consolidate_for_sweep(scope.clone()).await {
                    Ok(answer) => {
                        *done += answer.created.len() as u64;
                        // Where a part is down, more turns now would find the same.
                        if answer.complete || !answer.degraded.is_empty() {
                            break;
                        }
                    }
                    Err(error) => {
                        failed = true;
                        tracing::warn!(error = %error, "a scope could not be consolidated");
                        break;
                    }
                }
                if self.shutdown.is_cancelled() || !lock.is_held().await {
                    return Ok(Ran::Stopped);
                }
            }
        }
        Ok(if failed { Ran::Failed } else { Ran::Done })
    }
}
