//! Time and ids are inputs: everything that needs either asks the [`Clock`], so that tests can fix both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use uuid::{ContextV7, Timestamp, Uuid};

/// Where time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that moves only when told to.
    Fixed(FixedClock),
}

impl Clock {
    /// Now, in whole microseconds: what Postgres can hold, so that a time survives its round trip.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        let now = match self {
            Self::System => DateTime::from(SystemTime::now()),
            Self::Fixed(clock) => clock.now(),
        };
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }

    /// A new UUID v7: ids made later by the same process sort later, also within one millisecond.
    #[must_use]
    pub fn new_id(&self) -> Uuid {
        static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let context = CONTEXT.lock().unwrap_or_else(PoisonError::into_inner);
        Uuid::new_v7(Timestamp::from_unix(&*context, seconds, now.timestamp_subsec_nanos()))
    }
}

/// A clock for tests. Clones share the time.
#[derive(Clone, Debug)]
pub struct FixedClock(Arc<Mutex<DateTime<Utc>>>);

impl FixedClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn at(start: DateTime<Utc>) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    /// Moves the clock, and every clone of it, forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
    }

    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_instant_sort_in_the_order_they_were_made() {
        let clock = Clock::Fixed(FixedClock::at(DateTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
        let ids: Vec<Uuid> = (0..100).map(|_| clock.new_id()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn a_fixed_clock_moves_only_when_told() {
        let fixed = FixedClock::at(DateTime::UNIX_EPOCH);
        let clock = Clock::Fixed(fixed.clone());
        assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
        fixed.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), DateTime::UNIX_EPOCH + Duration::from_secs(5));
    }
}
