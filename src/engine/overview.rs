//! How sweeps are: for administrators, the command line and `/metrics`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::Engine;
use super::sweep::{Sweep, TRIES, next_due};
use crate::api::{JobView, JobsAnswer, JobsArgs, ParkedView, RunView};
use crate::auth::Caller;
use crate::db::job;
use crate::error::{Error, Result};
use crate::model::{Action, Scope, check_label};

/// The runs of a job that are shown.
const RUNS: i64 = 10;

/// What `/metrics` tells of sweeps.
#[derive(Clone, Debug)]
pub struct SweepMetrics {
    /// How each sweep is.
    pub sweeps: Vec<SweepState>,
    /// Scopes that are parked.
    pub parked: usize,
}

/// How a sweep is.
#[derive(Clone, Copy, Debug)]
pub struct SweepState {
    /// Which one.
    pub sweep: Sweep,
    /// How often it is to run; none where it runs only when it is asked for.
    pub interval: Option<Duration>,
    /// Whether a replica runs it.
    pub is_running: bool,
    /// When it last ended well, if it ever did.
    pub last_success: Option<DateTime<Utc>>,
}

impl Engine {
    /// How every job is. Scopes are named as far as the caller administers them.
    ///
    /// # Errors
    /// `invalid_argument` with the field; `unavailable`.
    pub async fn jobs(&self, caller: &Caller, args: JobsArgs) -> Result<JobsAnswer> {
        let result = async {
            let actor = check_label("actor", args.actor)?;
            let jobs = self.overview(|scope| caller.authorise(scope, Action::Admin).is_ok()).await?;
            Ok((actor, jobs))
        };
        let result = result.await;
        let (outcome, actor) = match &result {
            Ok((actor, _)) => ("ok", actor.clone()),
            Err(error) => (Error::code(error), None),
        };
        self.audit_unscoped(
            caller,
            "list_jobs",
            actor,
            outcome,
            usize::from(result.is_ok()) * Sweep::ALL.len(),
        );
        result.map(|(_, jobs)| jobs)
    }

    /// How every job is, with every scope: for whoever has the database anyway.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn all_jobs(&self) -> Result<JobsAnswer> {
        self.overview(|_| true).await
    }

    async fn overview(&self, may_see: impl Fn(&Scope) -> bool) -> Result<JobsAnswer> {
        let (now, sweeps) = (self.clock.now(), &self.settings.sweeps);
        let mut jobs = Vec::new();
        for sweep in Sweep::ALL {
            let standing = job::standing(&self.db, sweep.name(), sweep.lock_key()).await?;
            let runs = job::runs(&self.db, sweep.name(), RUNS).await?.into_iter();
            let interval = sweep.interval(sweeps);
            jobs.push(JobView {
                name: sweep.name(),
                purpose: sweep.purpose(),
                interval_seconds: interval.map(|interval| interval.as_secs_f64()),
                next_at: interval.map(|interval| next_due(standing.last_start, now, interval)),
                running: standing.is_running,
                runs: runs
                    .map(|run| RunView {
                        started_at: run.started_at,
                        finished_at: run.finished_at,
                        outcome: run.outcome,
                        detail: visible(run.detail, &may_see),
                    })
                    .collect(),
            });
        }
        let parked = job::failures(&self.db, TRIES).await?.into_iter();
        Ok(JobsAnswer {
            scheduled_here: sweeps.enabled,
            jobs,
            parked: parked
                .filter(|failure| failure.retry_at > now && may_see(&failure.scope))
                .map(|failure| ParkedView {
                    scope: failure.scope.as_str().to_owned(),
                    tries: failure.tries,
                    reason: failure.reason,
                    failed_at: failure.failed_at,
                    retry_at: failure.retry_at,
                })
                .collect(),
        })
    }

    /// What `/metrics` tells of sweeps.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn sweep_metrics(&self) -> Result<SweepMetrics> {
        let mut sweeps = Vec::new();
        for sweep in Sweep::ALL {
            let standing = job::standing(&self.db, sweep.name(), sweep.lock_key()).await?;
            sweeps.push(SweepState {
                sweep,
                interval: sweep.interval(self.sweeps()),
                is_running: standing.is_running,
                last_success: job::last_success(&self.db, sweep.name()).await?,
            });
        }
        let (now, failures) = (self.clock.now(), job::failures(&self.db, TRIES).await?);
        let parked = failures.iter().filter(|failure| failure.retry_at > now).count();
        Ok(SweepMetrics { sweeps, parked })
    }
}

/// A run's detail without the scopes that are not to be seen.
fn visible(mut detail: Value, may_see: impl Fn(&Scope) -> bool) -> Value {
    if let Some(failed) = detail.get_mut("failed").and_then(Value::as_array_mut) {
        failed.retain(|failed| {
            let scope = failed.get("scope").and_then(Value::as_str).map(Scope::parse);
            scope.is_some_and(|scope| scope.is_ok_and(|scope| may_see(&scope)))
        });
    }
    detail
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_scope_that_is_not_to_be_seen_is_counted_and_not_named() {
        let detail = json!({ "changed": 1, "failed_scopes": 2, "failed": [
            { "scope": "user:1", "reason": "timeout" }, { "scope": "user:2", "reason": "timeout" },
        ] });
        let seen = visible(detail, |scope| scope.as_str() == "user:2");
        assert_eq!(
            seen,
            json!({ "changed": 1, "failed_scopes": 2, "failed": [{ "scope": "user:2", "reason": "timeout" }] })
        );
    }
}
