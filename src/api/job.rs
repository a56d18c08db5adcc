//! How sweeps are, as an operator sees them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How to ask for the jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobsArgs {
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// The answer of `GET /v1/jobs`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobsAnswer {
    /// Whether the replica that answers runs sweeps by itself.
    pub scheduled_here: bool,
    /// Every job.
    pub jobs: Vec<JobView>,
    /// Scopes that failed so often in a row that they are left alone for a while. Only those that the token administers.
    pub parked: Vec<ParkedView>,
}

/// One job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct JobView {
    /// Its name, as `memser jobs run` takes it.
    pub name: &'static str,
    /// What it changes.
    pub purpose: &'static str,
    /// Between two runs; left out where it runs only when it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub interval_seconds: Option<f64>,
    /// When it is due; now for one that should run already.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub next_at: Option<DateTime<Utc>>,
    /// Whether a replica runs it now.
    pub running: bool,
    /// Its last runs, latest first.
    pub runs: Vec<RunView>,
}

/// One run of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunView {
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it ended; left out while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub finished_at: Option<DateTime<Utc>>,
    /// `running`, `done`, `failed`, `stopped` by a shutdown or a lost lock, or `lost` with its process.
    pub outcome: String,
    /// `changed`: how many memories it made or changed; `failed_scopes` and the first of them in `failed`, as far as the
    /// token administers them; `error`.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub detail: Value,
}

/// A scope that consolidation leaves alone for a while.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ParkedView {
    /// The scope.
    pub scope: String,
    /// How often it failed in a row.
    pub tries: i32,
    /// The last error's code and words.
    pub reason: String,
    /// When it failed last.
    pub failed_at: DateTime<Utc>,
    /// When it is tried again.
    pub retry_at: DateTime<Utc>,
}
