//! Which sweeps there are, and when one is due. Pure: no I/O, no clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::decay::DecayRule;

/// How often pending memories are embedded: the longest that one stays unfound by meaning after its embedder is back.
const EMBED_EVERY: Duration = Duration::from_secs(15);
/// How often what has expired is dropped; reads do not see it anyway.
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// A scope that failed so often in a row is parked.
pub const TRIES: i32 = 3;
/// The longest that a scope is parked between two tries, unless consolidation itself rests longer.
const PARKED_AT_MOST: Duration = Duration::from_hours(24);

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

/// What an operator can set of sweeps.
#[derive(Clone, Debug)]
pub struct Sweeps {
    /// Whether this replica runs any by itself.
    pub enabled: bool,
    /// Between two consolidations; never by itself without one.
    pub consolidation_interval: Option<Duration>,
    /// A scope with fewer memories to consolidate waits.
    pub consolidation_min_episodic: u32,
    /// How long one scope may take in one run.
    pub consolidation_timeout: Duration,
    /// Between two decays; never by itself without one.
    pub decay_interval: Option<Duration>,
    /// How confidence decays.
    pub decay: DecayRule,
    /// What is kept for how long.
    pub retention: Retention,
}

/// How long what is no memory is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Last copies of forgotten memories.
    pub snapshots: TimeDelta,
    /// Rows of the audit log; for ever without one.
    pub audit: Option<TimeDelta>,
    /// Rows about runs of sweeps.
    pub job_runs: TimeDelta,
}

impl Sweep {
    /// Every sweep.
    pub const ALL: [Self; 4] = [Self::Consolidate, Self::Decay, Self::Embed, Self::Prune];

    /// The name in `job_runs`, on the command line and in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consolidate => "consolidate",
            Self::Decay => "decay",
            Self::Embed => "embed",
            Self::Prune => "prune",
        }
    }

    /// What it changes, in a few words.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Consolidate => "makes facts of alike memories; the originals stay as history",
            Self::Decay => "lets untouched memories lose confidence",
            Self::Embed => "embeds memories that wait for their vector",
            Self::Prune => "drops what has expired",
        }
    }

    /// The key of its lock in the database. Negative, because positive keys lock scopes.
    #[must_use]
    pub const fn lock_key(self) -> i64 {
        match self {
            Self::Consolidate => -1,
            Self::Decay => -2,
            Self::Embed => -3,
            Self::Prune => -4,
        }
    }

    /// How often it runs by itself; `None` where an operator switched that off.
    #[must_use]
    pub const fn interval(self, sweeps: &Sweeps) -> Option<Duration> {
        match self {
            Self::Consolidate => sweeps.consolidation_interval,
            Self::Decay => sweeps.decay_interval,
            Self::Embed => Some(EMBED_EVERY),
            Self::Prune => Some(PRUNE_EVERY),
        }
    }

    /// Whether a run that finds nothing takes the place of the one before that found nothing: those that run every few
    /// minutes would fill the table otherwise.
    #[must_use]
    pub const fn is_frequent(self) -> bool {
        matches!(self, Self::Embed | Self::Prune)
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|sweep| sweep.name() == name)
            .ok_or_else(|| format!("there is no such job; the jobs are {}", names()))
    }
}

/// Whether a sweep whose last run started at `last` is due: whether that was in an earlier tick.
///
/// Time is cut into ticks of one interval each, counted from the epoch, the same for all replicas. So each tick has one
/// run, whenever replicas start and ring, and a run that was missed is made up for at once.
#[must_use]
pub fn is_due(last: Option<DateTime<Utc>>, now: DateTime<Utc>, interval: Duration) -> bool {
    last.is_none_or(|last| tick(last, interval) < tick(now, interval))
}

/// When a sweep is due next: now where it is due, else when the next tick begins.
#[must_use]
pub fn next_due(last: Option<DateTime<Utc>>, now: DateTime<Utc>, interval: Duration) -> DateTime<Utc> {
    if is_due(last, now, interval) {
        return now;
    }
    let begins = (tick(last.unwrap_or(now), interval) + 1).saturating_mul(micros(interval));
    DateTime::from_timestamp_micros(begins).unwrap_or(now)
}

fn tick(at: DateTime<Utc>, interval: Duration) -> i64 {
    at.timestamp_micros().div_euclid(micros(interval))
}

fn micros(interval: Duration) -> i64 {
    i64::try_from(interval.as_micros()).unwrap_or(i64::MAX).max(1)
}

/// How long a scope rests after its latest failure in a row: until the next run at first; from [`TRIES`] on it is parked,
/// for four intervals, then twice as long after each further failure, up to a day.
#[must_use]
pub fn rest_after(tries: i32, interval: Duration) -> TimeDelta {
    if tries < TRIES {
        return TimeDelta::zero();
    }
    let doublings = u32::try_from(tries - TRIES).unwrap_or(0).min(20);
    let rest = interval.saturating_mul(4 << doublings).min(PARKED_AT_MOST.max(interval));
    TimeDelta::from_std(rest).unwrap_or(TimeDelta::days(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap()
    }

    #[test]
    fn a_sweep_that_never_ran_is_due_and_one_that_ran_in_this_tick_is_not() {
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let noon = time("2026-03-01T12:00:00Z");
        assert!(is_due(None, noon, HOUR));
        assert!(!is_due(Some(noon), time("2026-03-01T12:59:59Z"), HOUR));
        assert!(is_due(Some(time("2026-03-01T12:59:59Z")), time("2026-03-01T13:00:00Z"), HOUR));
        // The clock of the replica that ran it is ahead.
        assert!(!is_due(Some(time("2026-03-01T13:00:00Z")), time("2026-03-01T12:59:59Z"), HOUR));
        assert_eq!(next_due(Some(noon), time("2026-03-01T12:20:00Z"), HOUR), time("2026-03-01T13:00:00Z"));
        assert_eq!(next_due(None, noon, HOUR), noon);
    }

    #[test]
    fn a_scope_that_keeps_failing_rests_longer_and_longer_up_to_a_day() {
        let hours: Vec<i64> = (1..=8).map(|tries| rest_after(tries, HOUR).num_hours()).collect();
        assert_eq!(hours, [0, 0, 4, 8, 16, 24, 24, 24]);
        assert_eq!(rest_after(9, HOUR * 100).num_hours(), 100);
        assert_eq!(rest_after(i32::MAX, HOUR).num_hours(), 24);
    }

    #[test]
    fn names_are_known_and_others_are_refused_with_the_list() {
        for sweep in Sweep::ALL {
            assert_eq!(sweep.name().parse(), Ok(sweep));
        }
        let refusal = "compact".parse::<Sweep>().unwrap_err();
        assert!(refusal.contains("consolidate, decay, embed, prune"), "{refusal}");
    }

    proptest! {
        /// Replicas ring when they like; whoever rings while the sweep is due runs it.
        #[test]
        fn each_tick_that_somebody_rings_in_has_exactly_one_run(
            interval in 1_000_000_i64..5_000_000,
            mut rings in prop::collection::vec(0_i64..60_000_000, 1..200),
        ) {
            rings.sort_unstable();
            let every = Duration::from_micros(interval.unsigned_abs());
            let (mut last, mut runs) = (None, Vec::new());
            for ring in &rings {
                prop_assert!(next_due(last, at(*ring), every) >= at(*ring));
                if is_due(last, at(*ring), every) {
                    last = Some(at(*ring));
                    runs.push(ring / interval);
                }
            }
            let mut ticks: Vec<i64> = rings.iter().map(|ring| ring / interval).collect();
            ticks.dedup();
            prop_assert_eq!(runs, ticks);
        }
    }
}
