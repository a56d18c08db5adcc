//! A memser that serves nobody: it runs a job or looks at them, or carries memories out and in.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::core::Core;
use super::keeper::{Keeper, share};
use crate::api::JobsAnswer;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::Result;
use crate::jobs::{Jobs, Ran, Sweep};

/// The parts that this needs.
#[derive(Debug)]
pub struct Worker {
    core: Core,
    keeper: Keeper,
}

impl Worker {
    /// Builds the parts, on the private Postgres of a memser that runs where there is one.
    ///
    /// # Errors
    /// When a part does not start; the message says what to do.
    pub async fn start(config: &Config, clock: Clock) -> anyhow::Result<Self> {
        let (keeper, database) = share(config).await?;
        match Core::start(config, clock, database).await {
            Ok(core) => Ok(Self { core, keeper }),
            Err(error) => {
                keeper.stop().await?;
                Err(error)
            }
        }
    }

    /// Runs a sweep now, due or not, unless a replica does. Once `stop` resolves, the sweep is stopped.
    pub async fn run(&self, sweep: Sweep, stop: impl Future<Output = ()>) -> Ran {
        let jobs: &Jobs = &self.core.jobs;
        let mut run = Box::pin(jobs.run(sweep));
        tokio::select! {
            ran = &mut run => return ran,
            () = stop => jobs.shutdown.cancel(),
        }
        run.await
    }

    /// Gives every parked scope another chance; answers how many scopes had failed.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn unpark(&self) -> Result<u64> {
        self.core.engine.unpark().await
    }

    /// Lets consolidation look at every memory again; answers how many there are.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn look_again(&self) -> Result<u64> {
        self.core.engine.look_again().await
    }

    /// The engine that does the work.
    pub(super) const fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }

    /// Now.
    pub(super) fn now(&self) -> DateTime<Utc> {
        self.core.jobs.clock.now()
    }

    /// How every job is.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn overview(&self) -> Result<JobsAnswer> {
        self.core.engine.all_jobs().await
    }

    /// Stops every part that was started.
    ///
    /// # Errors
    /// When the private Postgres does not stop.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.core.stop().await;
        self.keeper.stop().await
    }
}
