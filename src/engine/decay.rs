//! How sure memser is of what nobody touches any more. Pure: no I/O, no clock.

use chrono::{DateTime, TimeDelta, Utc};

/// How confidence decays.
#[derive(Clone, Debug, PartialEq)]
pub struct DecayRule {
    /// How long a memory keeps its confidence after it was stored, stated again or recalled.
    pub after: TimeDelta,
    /// In which time it loses half of it from then on.
    pub half_life: TimeDelta,
    /// No confidence falls below; one that is lower already stays.
    pub floor: f32,
    /// Memories with any of these tags do not decay.
    pub protected: Vec<String>,
}

impl DecayRule {
    /// The shortest time worth a write: a confidence loses less than a thousandth in it.
    #[must_use]
    pub fn step(&self) -> TimeDelta {
        self.half_life / 1_000
    }

    /// The confidence at `now` of a memory last touched at `touched_at`, which has decayed until `decayed_at` already:
    /// `confidence * 2^(-t / half_life)`, where `t` is the time since then that lies past the time of grace.
    ///
    /// It depends on the time that went by and not on how often this was asked.
    #[must_use]
    pub fn decayed(
        &self,
        confidence: f32,
        touched_at: DateTime<Utc>,
        decayed_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> f32 {
        let starts = touched_at + self.after;
        let since = decayed_at.map_or(starts, |decayed_at| starts.max(decayed_at));
        let elapsed = (now - since).max(TimeDelta::zero()).as_seconds_f64();
        let left = (-elapsed / self.half_life.as_seconds_f64()).exp2();
        #[expect(clippy::cast_possible_truncation, reason = "a factor from 0 to 1")]
        let decayed = confidence * left as f32;
        decayed.max(self.floor.min(confidence))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule() -> DecayRule {
        DecayRule {
            after: TimeDelta::days(30),
            half_life: TimeDelta::days(90),
            floor: 0.1,
            protected: Vec::new(),
        }
    }

    fn at(day: f64) -> DateTime<Utc> {
        let time = std::time::Duration::from_secs_f64(day * 86_400.0);
        "2026-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap() + time
    }

    #[test]
    fn it_halves_with_every_half_life_past_the_time_of_grace() {
        for (day, expected) in
            [(0.0, 0.8), (30.0, 0.8), (120.0, 0.4), (210.0, 0.2), (300.0, 0.1), (3_000.0, 0.1)]
        {
            let decayed = rule().decayed(0.8, at(0.0), None, at(day));
            assert!((decayed - expected).abs() < 1e-6, "day {day}: {decayed}");
        }
        assert!((rule().decayed(0.05, at(0.0), None, at(999.0)) - 0.05).abs() < 1e-6, "below the floor");
    }

    proptest! {
        #[test]
        fn it_does_not_matter_when_and_how_often_it_is_asked(
            confidence in 0.0_f32..=1.0,
            mut days in prop::collection::vec(0.0_f64..400.0, 0..40),
        ) {
            days.sort_by(f64::total_cmp);
            let (mut step_by_step, mut decayed_at) = (confidence, None);
            for day in days {
                let now = at(day);
                step_by_step = rule().decayed(step_by_step, at(0.0), decayed_at, now);
                decayed_at = Some(now);
            }
            let step_by_step = rule().decayed(step_by_step, at(0.0), decayed_at, at(400.0));
            let at_once = rule().decayed(confidence, at(0.0), None, at(400.0));
            prop_assert!((step_by_step - at_once).abs() < 1e-5, "{step_by_step} {at_once}");
        }

        #[test]
        fn it_never_rises_and_never_crosses_the_floor(
            confidence in 0.0_f32..=1.0,
            touched in 0.0_f64..400.0,
            decayed in prop::option::of(0.0_f64..800.0),
            now in 0.0_f64..800.0,
        ) {
            let after = rule().decayed(confidence, at(touched), decayed.map(at), at(now));
            prop_assert!(after <= confidence && after >= confidence.min(0.1), "{confidence} {after}");
        }

        #[test]
        fn a_touch_stops_it_for_the_time_of_grace(
            confidence in 0.0_f32..=1.0, touched in 0.0_f64..800.0, later in 0.0_f64..30.0,
        ) {
            let after = rule().decayed(confidence, at(touched), Some(at(touched)), at(touched + later));
            prop_assert_eq!(after.to_bits(), confidence.to_bits());
        }
    }
}
