//! When sweeps run and what they go by.

use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::TimeDelta;

use super::source::Source;
use crate::engine::decay::DecayRule;
use crate::engine::sweep::Sweeps;

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
