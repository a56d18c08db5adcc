//! When sweeps run, and which replica runs them.
//!
//! The cron only rings, on every replica. A sweep that is due takes its lock on a connection of its own and skips where
//! another replica has it; it works in chunks, looks at its lock between two of them, and is dropped at the shutdown.
//! Its `job_runs` row is there from its start on, so that no other replica runs it again in the same tick.

mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use tokio_cron_scheduler::{Job, JobScheduler};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug_span};

use crate::clock::Clock;
use crate::db::lock::SweepLock;
use crate::db::{Db, job};
use crate::engine::Engine;
pub use crate::engine::sweep::Sweep;
use crate::engine::sweep::is_due;
use crate::error::{Error, Result, with_causes};

/// The cron rings so often in each interval, so that a replica that died is soon replaced, but no more often than every
/// second and no more seldom than every ten.
const RINGS: u32 = 4;
const RING_LEAST: Duration = Duration::from_secs(1);
const RING_MOST: Duration = Duration::from_secs(10);
/// The most failed scopes that a run names.
const NAMED: usize = 50;

/// What became of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It worked to the end.
    Done,
    /// Another replica has the lock, or the sweep is not due.
    Skipped,
    /// The shutdown or a lost lock stopped it; what was done stays done.
    Stopped,
    /// It failed, or some of it; the next run tries again.
    Failed,
}

impl Ran {
    /// As `job_runs` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// What a run did, as far as it came.
#[derive(Debug, Default)]
struct Tally {
    /// Memories made, changed, filled or dropped.
    changed: u64,
    /// Scopes that failed, and the first of them as `job_runs` shows them.
    failed_scopes: u64,
    failed: Vec<Value>,
}

impl Tally {
    fn detail(&self) -> Value {
        let mut detail = json!({ "changed": self.changed });
        if self.failed_scopes > 0 {
            detail["failed_scopes"] = self.failed_scopes.into();
            detail["failed"] = self.failed.clone().into();
        }
        detail
    }

    fn scope_failed(&mut self, scope: &str, reason: &str, tries: i32, parked_until: Option<DateTime<Utc>>) {
        self.failed_scopes += 1;
        if self.failed.len() < NAMED {
            let mut failed = json!({ "scope": scope, "reason": reason, "tries": tries });
            if let Some(until) = parked_until {
                failed["parked_until"] = json!(until);
            }
            self.failed.push(failed);
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
    /// How a lock's own connection is made, past any pooler.
    pub connect: PgConnectOptions,
    /// Time.
    pub clock: Clock,
    /// Stops sweeps.
    pub shutdown: CancellationToken,
    /// The sweeps under way.
    pub under_way: TaskTracker,
}

impl Jobs {
    /// Rings every sweep that has an interval, until the scheduler is shut down; says so in the log.
    ///
    /// # Errors
    /// When the scheduler does not start.
    pub async fn schedule(&self) -> anyhow::Result<JobScheduler> {
        let scheduler = JobScheduler::new().await.context("the scheduler does not start")?;
        for sweep in Sweep::ALL {
            let Some(interval) = sweep.interval(self.engine.sweeps()) else {
                tracing::info!(job = sweep.name(), "this sweep runs only when it is asked for");
                continue;
            };
            let jobs = self.clone();
            let job =
                Job::new_repeated_async((interval / RINGS).clamp(RING_LEAST, RING_MOST), move |_, _| {
                    let jobs = jobs.clone();
                    Box::pin(async move {
                        let ring = jobs.under_way.track_future(jobs.ring(sweep));
                        ring.await;
                    })
                })?;
            scheduler.add(job).await?;
            tracing::info!(
                job = sweep.name(),
                every_seconds = interval.as_secs_f64(),
                "this sweep {} (docs/sweeps.md)",
                sweep.purpose()
            );
        }
        scheduler.start().await?;
        Ok(scheduler)
    }

    /// Runs a sweep if it is due and no other replica runs it.
    pub async fn ring(&self, sweep: Sweep) -> Ran {
        let Some(interval) = sweep.interval(self.engine.sweeps()) else {
            return Ran::Skipped;
        };
        // Most rings end here, at the price of one statement.
        match job::standing(&self.db, sweep.name(), sweep.lock_key()).await {
            Ok(standing) if standing.is_running => Ran::Skipped,
            Ok(standing) if is_due(standing.last_start, self.clock.now(), interval) => {
                self.run_if_due(sweep, Some(interval)).await
            }
            Ok(_) => Ran::Skipped,
            Err(error) => {
                tracing::debug!(
                    job = sweep.name(),
                    error = with_causes(&error),
                    "nobody can say whether a sweep is due"
                );
                Ran::Failed
            }
        }
    }

    /// Runs a sweep now, due or not, unless another replica does.
    pub async fn run(&self, sweep: Sweep) -> Ran {
        self.under_way.track_future(self.run_if_due(sweep, None)).await
    }

    async fn run_if_due(&self, sweep: Sweep, interval: Option<Duration>) -> Ran {
        let span = debug_span!("sweep", otel.name = format!("sweep {}", sweep.name()), job = sweep.name());
        match self.run_locked(sweep, interval).instrument(span).await {
            Ok(ran) => ran,
            Err(error) => {
                tracing::warn!(job = sweep.name(), error = with_causes(&error), "a sweep could not start");
                Ran::Failed
            }
        }
    }

    async fn run_locked(&self, sweep: Sweep, interval: Option<Duration>) -> Result<Ran> {
        let Some(mut lock) = SweepLock::try_take(&self.connect, sweep.lock_key()).await? else {
            return Ok(Ran::Skipped);
        };
        if let Some(interval) = interval {
            // Another replica may have run it between the look and the lock.
            let standing = job::standing(&self.db, sweep.name(), sweep.lock_key()).await?;
            if !is_due(standing.last_start, self.clock.now(), interval) {
                lock.free().await;
                return Ok(Ran::Skipped);
            }
        }
        let started = Instant::now();
        let run = job::start_run(&self.db, sweep.name(), self.clock.now(), sweep.is_frequent()).await?;
        let mut tally = Tally::default();
        let worked = tokio::select! {
            worked = self.work(sweep, &mut lock, &mut tally) => worked,
            // Whatever transaction it is in is rolled back.
            () = self.shutdown.cancelled() => Ok(Ran::Stopped),
        };
        let mut detail = tally.detail();
        let ran = worked.unwrap_or_else(|error| {
            report(sweep, &error);
            detail["error"] = error.code().into();
            Ran::Failed
        });
        if let Err(error) = job::finish_run(&self.db, run, self.clock.now(), ran.name(), &detail).await {
            tracing::warn!(
                job = sweep.name(),
                error = with_causes(&error),
                "a sweep's end could not be noted"
            );
        }
        self.engine.metrics().run(sweep.name(), ran.name(), started.elapsed());
        if tally.changed > 0 || ran != Ran::Done {
            tracing::info!(
                job = sweep.name(),
                outcome = ran.name(),
                changed = tally.changed,
                failed_scopes = tally.failed_scopes,
                "a sweep ended"
            );
        }
        lock.free().await;
        Ok(ran)
    }
}

/// The cause of an internal error is in the log alone.
fn report(sweep: Sweep, error: &Error) {
    if let Error::Internal(cause) = error {
        tracing::error!(job = sweep.name(), "a sweep failed: {cause:#}");
    } else {
        tracing::warn!(
            job = sweep.name(),
            error = with_causes(error),
            "a sweep failed; the next run tries again"
        );
    }
}
