//! When sweeps run and what they go by.

use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::TimeDelta;

use super::key::{Group, Kind, key};
use super::source::Source;
use crate::engine::decay::DecayRule;
use crate::engine::sweep::{Retention, Sweeps};

pub(super) const SWEEPS: Group = Group {
    title: "Sweeps",
    keys: &[
        key(
            "ENABLE_SCHEDULER",
            Kind::Switch,
            "Whether this replica runs sweeps. At least one has to: pending embeddings are filled in by a sweep.",
        )
        .default("true"),
        key(
            "CONSOLIDATION_INTERVAL_MINUTES",
            Kind::Number(0.0, 525_600.0),
            "Between two consolidations; `0` for none but those that are asked for.",
        )
        .default("60"),
        key(
            "CONSOLIDATION_MIN_EPISODIC",
            Kind::Whole(2, 1_000_000),
            "A scope with fewer memories to consolidate waits.",
        )
        .default("50"),
        key(
            "CONSOLIDATION_TIMEOUT_SECONDS",
            Kind::Whole(1, 86_400),
            "How long one scope may take in one run. What it finished by then stays.",
        )
        .default("600"),
        key(
            "DECAY_INTERVAL_MINUTES",
            Kind::Number(0.0, 525_600.0),
            "Between two decays; `0` for none but those that are asked for. How much is lost does not depend on it.",
        )
        .default("1440"),
        key(
            "DECAY_AFTER_DAYS",
            Kind::Whole(1, 36_500),
            "Episodic memories that were not stored, stated again or recalled for so long start to lose confidence.",
        )
        .default("30"),
        key("DECAY_HALF_LIFE_DAYS", Kind::Number(0.01, 36_500.0), "In how long they lose half of it.")
            .default("90"),
        key("DECAY_FLOOR", Kind::Number(0.0, 1.0), "No confidence decays below.").default("0.1"),
        key("DECAY_PROTECTED_TAGS", Kind::List, "Memories with any of these tags do not decay.")
            .default("pinned"),
        key(
            "SNAPSHOT_RETENTION_DAYS",
            Kind::Whole(0, 36_500),
            "How long the last copy of a forgotten memory is kept in the database. 0 drops it within minutes.",
        )
        .default("30"),
        key(
            "AUDIT_RETENTION_DAYS",
            Kind::Whole(1, 36_500),
            "How long rows of the audit log are kept. A log that is to be a proof is exported before.",
        )
        .unset("kept for ever"),
        key(
            "JOB_RUNS_RETENTION_DAYS",
            Kind::Whole(1, 36_500),
            "How long rows about what sweeps did are kept. The last run of each, and the last that ended well, stay.",
        )
        .default("90"),
    ],
    introduction: "Two more sweeps have fixed intervals: pending embeddings every 15 seconds, pruning of what has \
                   expired every\n10 minutes. See [sweeps](sweeps.md).\n",
};

pub(super) fn sweeps(source: &Source) -> anyhow::Result<Sweeps> {
    Ok(Sweeps {
        enabled: source.set("ENABLE_SCHEDULER")?,
        consolidation_interval: interval(source, "CONSOLIDATION_INTERVAL_MINUTES")?,
        consolidation_min_episodic: source.set("CONSOLIDATION_MIN_EPISODIC")?,
        consolidation_timeout: Duration::from_secs(source.set("CONSOLIDATION_TIMEOUT_SECONDS")?),
        decay_interval: interval(source, "DECAY_INTERVAL_MINUTES")?,
        decay: DecayRule {
            after: days(source, "DECAY_AFTER_DAYS")?,
            half_life: days(source, "DECAY_HALF_LIFE_DAYS")?,
            floor: source.set("DECAY_FLOOR")?,
            protected: source.list("DECAY_PROTECTED_TAGS"),
        },
        retention: Retention {
            snapshots: days(source, "SNAPSHOT_RETENTION_DAYS")?,
            audit: source.maybe::<i64>("AUDIT_RETENTION_DAYS")?.map(TimeDelta::days),
            job_runs: days(source, "JOB_RUNS_RETENTION_DAYS")?,
        },
    })
}

/// Minutes, of which 0 means never. A cron cannot ring more often than once a second.
fn interval(source: &Source, name: &str) -> anyhow::Result<Option<Duration>> {
    let interval = Duration::from_secs_f64(source.set::<f64>(name)? * 60.0);
    if interval.is_zero() {
        return Ok(None);
    }
    ensure!(interval >= Duration::from_secs(1), "{name}: 0 for never, or at least a second: 0.02");
    Ok(Some(interval))
}

fn days(source: &Source, name: &str) -> anyhow::Result<TimeDelta> {
    let days = Duration::from_secs_f64(source.set::<f64>(name)? * 86_400.0);
    TimeDelta::from_std(days).with_context(|| format!("{name} is too long"))
}
