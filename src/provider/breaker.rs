//! When an endpoint that fails is left alone: a circuit breaker.
//!
//! ```text
//! closed --3 failures in a row, or "come back later"--> open --its wait is over--> probing --success--> closed
//!                                                        ^------------failure------------|
//! ```
//!
//! While it is open nobody asks the endpoint, so that a call which can do without a vector does not wait for one. Then
//! one request goes ahead, and the others fail at once until its answer is there. The rules are pure: time and answers
//! are their inputs. Each process has its own breaker.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// So many failures in a row are no chance: a call's first try, its second, and memser's own text.
const FAILURES_MAX: u32 = 3;
/// The first wait; each failed probe doubles it.
const WAIT_MIN: Duration = Duration::from_secs(5);
/// However long an endpoint is down or asks to wait, it is looked for this often.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Whether the endpoint may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breaker {
    /// It may, and so many requests have failed since the last success.
    Closed { failures: u32 },
    /// Not for `wait` from `since` on.
    Open { since: DateTime<Utc>, wait: Duration },
    /// One request is under way; the wait after it, should it fail.
    Probing { wait: Duration },
}

/// Leave to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// As one of many.
    Free,
    /// As the one whose answer decides.
    Probe,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It was answered as it should be.
    Success,
    /// The endpoint works, but not for this request: it says that the text is at fault, or that it is busy.
    Refusal,
    /// The endpoint does not work.
    Failure,
    /// Nobody waited for the answer.
    Abandoned,
}

impl Breaker {
    pub(super) const CLOSED: Self = Self::Closed { failures: 0 };

    /// Whether the last answer says that the endpoint works.
    pub(super) const fn is_up(self) -> bool {
        matches!(self, Self::CLOSED)
    }

    /// Leave for one request, with the state from then on; without leave the state stays.
    pub(super) fn admit(self, now: DateTime<Utc>) -> Option<(Self, Pass)> {
        match self {
            Self::Closed { .. } => Some((self, Pass::Free)),
            Self::Open { since, wait } => {
                // A clock that was set back must not keep the endpoint away.
                let over = now < since || (now - since).to_std().is_ok_and(|waited| waited >= wait);
                over.then_some((Self::Probing { wait: longer(wait) }, Pass::Probe))
            }
            Self::Probing { .. } => None,
        }
    }

    /// The state after a request that had `pass`.
    pub(super) fn after(self, pass: Pass, event: Event, now: DateTime<Utc>) -> Self {
        match (self, event) {
            // Whoever got an answer, the endpoint is back.
            (_, Event::Success) => Self::CLOSED,
            (Self::Closed { failures }, Event::Failure) => {
                let failures = failures + 1;
                if failures < FAILURES_MAX {
                    Self::Closed { failures }
                } else {
                    Self::Open { since: now, wait: WAIT_MIN }
                }
            }
            (Self::Probing { wait }, Event::Failure) if pass == Pass::Probe => {
                Self::Open { since: now, wait }
            }
            // It may be asked, but nothing shows that it does what it is asked for.
            (Self::Probing { .. }, Event::Refusal) => Self::Closed { failures: 1 },
            (Self::Probing { .. }, Event::Abandoned) if pass == Pass::Probe => {
                Self::Open { since: now, wait: Duration::ZERO }
            }
            // Requests from before it opened tell nothing new.
            (state, _) => state,
        }
    }

    /// The state once a call gave up on an endpoint that has no time, or that said when to come back.
    pub(super) fn after_busy(self, asked: Option<Duration>, now: DateTime<Utc>) -> Self {
        let asked = asked.unwrap_or(WAIT_MIN).clamp(WAIT_MIN, WAIT_MAX);
        match self {
            Self::Closed { .. } => Self::Open { since: now, wait: asked },
            Self::Open { since, wait } => Self::Open { since, wait: wait.max(asked) },
            Self::Probing { .. } => self,
        }
    }
}

fn longer(wait: Duration) -> Duration {
    (wait * 2).clamp(WAIT_MIN, WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn failed(state: Breaker, pass: Pass, now: DateTime<Utc>) -> Breaker {
        state.after(pass, Event::Failure, now)
    }

    fn opened(now: DateTime<Utc>) -> Breaker {
        (0..FAILURES_MAX).fold(Breaker::CLOSED, |state, _| failed(state, Pass::Free, now))
    }

    /// One probe that fails; the wait after it.
    fn failed_probe(state: Breaker, now: DateTime<Utc>) -> Breaker {
        let (probing, pass) = state.admit(now).unwrap();
        assert_eq!(pass, Pass::Probe);
        failed(probing, pass, now)
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let now = at(100);
        let mut state = Breaker::CLOSED;
        for _ in 0..10 {
            for _ in 1..FAILURES_MAX {
                state = failed(state, Pass::Free, now);
                assert!(!state.is_up() && state.admit(now).is_some());
            }
            state = state.after(Pass::Free, Event::Success, now);
            assert!(state.is_up());
        }
        assert!(opened(now).admit(now).is_none());
    }

    #[test]
    fn after_the_wait_one_request_goes_ahead_and_its_success_lets_all_through() {
        let open = opened(at(100));
        assert_eq!(open.admit(at(104)), None);
        let (probing, pass) = open.admit(at(105)).unwrap();
        assert_eq!((pass, probing.admit(at(106)), probing.is_up()), (Pass::Probe, None, false));
        assert_eq!(probing.after(pass, Event::Success, at(106)), Breaker::CLOSED);
    }

    #[test]
    fn every_failed_probe_doubles_the_wait_up_to_a_minute() {
        let (mut state, mut now) = (opened(at(0)), at(0));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let Breaker::Open { wait, .. } = state else { panic!("{state:?}") };
            waits.push(wait.as_secs());
            now += wait;
            state = failed_probe(state, now);
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
    }

    #[test]
    fn a_probe_that_nobody_waits_for_frees_the_next_one() {
        let (probing, pass) = opened(at(0)).admit(at(5)).unwrap();
        let state = probing.after(pass, Event::Abandoned, at(6));
        assert!(matches!(state.admit(at(6)), Some((Breaker::Probing { .. }, Pass::Probe))));
    }

    #[test]
    fn late_answers_of_others_decide_no_probe() {
        let (probing, _) = opened(at(0)).admit(at(5)).unwrap();
        for event in [Event::Failure, Event::Abandoned] {
            assert_eq!(probing.after(Pass::Free, event, at(6)), probing);
            assert_eq!(opened(at(0)).after(Pass::Free, event, at(2)), opened(at(0)));
        }
    }

    #[test]
    fn a_refused_text_is_no_failure_and_no_proof_of_health() {
        let refused = |state: Breaker, pass| state.after(pass, Event::Refusal, at(5));
        assert_eq!(refused(Breaker::CLOSED, Pass::Free), Breaker::CLOSED);
        let shaken = Breaker::Closed { failures: 2 };
        assert_eq!(refused(shaken, Pass::Free), shaken);
        let (probing, pass) = opened(at(0)).admit(at(5)).unwrap();
        let state = refused(probing, pass);
        assert!(!state.is_up() && state.admit(at(5)).is_some());
    }

    #[test]
    fn a_busy_endpoint_gets_the_time_it_asks_for_within_bounds() {
        for (asked, wait) in [(None, 5), (Some(0), 5), (Some(30), 30), (Some(86_400), 60)] {
            let state = Breaker::CLOSED.after_busy(asked.map(Duration::from_secs), at(0));
            assert_eq!(state.admit(at(wait - 1)), None);
            assert!(state.admit(at(wait)).is_some(), "{asked:?}");
        }
        let longer = opened(at(0)).after_busy(Some(Duration::from_secs(30)), at(0));
        assert_eq!((longer.admit(at(29)), longer.admit(at(30)).is_some()), (None, true));
    }

    #[test]
    fn a_clock_set_back_does_not_keep_it_open() {
        assert!(opened(at(1_000)).admit(at(10)).is_some());
    }

    proptest! {
        #[test]
        fn whatever_happens_it_never_stays_open_for_more_than_a_minute(
            events in prop::collection::vec((0_u8..5, any::<bool>(), 0_u64..90), 0..40)
        ) {
            let (mut state, mut now) = (Breaker::CLOSED, at(0));
            for (event, probe, seconds) in events {
                now += Duration::from_secs(seconds);
                let mut pass = Pass::Free;
                if probe && let Some((next, given)) = state.admit(now) {
                    (state, pass) = (next, given);
                }
                state = match event {
                    0 => state.after(pass, Event::Success, now),
                    1 => state.after(pass, Event::Failure, now),
                    2 => state.after(pass, Event::Refusal, now),
                    3 => state.after(pass, Event::Abandoned, now),
                    _ => state.after_busy(Some(Duration::from_secs(seconds)), now),
                };
                // Whoever probes settles: otherwise nobody could ever ask again.
                if pass == Pass::Probe && matches!(state, Breaker::Probing { .. }) {
                    state = state.after(pass, Event::Abandoned, now);
                }
            }
            prop_assert!(state.admit(now + WAIT_MAX).is_some());
        }
    }
}
