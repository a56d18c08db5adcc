//! What becomes of the memories that a new one contradicts: the policy, as a pure function.

use chrono::{DateTime, Utc};

use super::judgement::Contradicted;
use crate::api::Likeness;
use crate::model::ConflictPolicy;

/// What to do about a new memory's contradictions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settlement {
    /// These are superseded by the new memory.
    pub(super) superseded: Vec<Likeness>,
    /// These stay active, and wait for review.
    pub(super) flagged: Vec<Likeness>,
    /// These stay active, and nobody has to look at them.
    pub(super) kept: Vec<Likeness>,
    /// The new memory is history already: this one, which holds from then on, superseded it.
    pub(super) superseded_by: Option<Contradicted>,
}

/// Applies the policy.
///
/// `occurred_at` is what the caller said, not the time of storing: a memory without it is the newest of all. Under
/// `newest_wins` one that arrives late supersedes only what is older than itself. A correction that names what it
/// replaces stays active in any case; what is newer is flagged against it.
pub(super) fn settle(
    policy: ConflictPolicy,
    occurred_at: Option<DateTime<Utc>>,
    corrects: bool,
    contradicts: Vec<Contradicted>,
) -> Settlement {
    let likeness = |others: Vec<Contradicted>| others.into_iter().map(|other| other.likeness).collect();
    match policy {
        ConflictPolicy::KeepBoth => Settlement { kept: likeness(contradicts), ..Settlement::default() },
        ConflictPolicy::Flag => Settlement { flagged: likeness(contradicts), ..Settlement::default() },
        ConflictPolicy::NewestWins => {
            let is_newer = |other: &Contradicted| occurred_at.is_some_and(|at| other.valid_from > at);
            let (newer, older): (Vec<_>, Vec<_>) = contradicts.into_iter().partition(is_newer);
            let superseded = likeness(older);
            if corrects {
                return Settlement { superseded, flagged: likeness(newer), ..Settlement::default() };
            }
            let superseded_by = newer.into_iter().min_by_key(|other| other.valid_from);
            Settlement { superseded, superseded_by, ..Settlement::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;

    /// A memory that holds from that day on, with the day as its id.
    fn from_day(day: u8) -> Contradicted {
        let likeness = Likeness { id: Uuid::from_u128(day.into()), similarity: 0.9 };
        Contradicted { likeness, valid_from: day_of(day) }
    }

    fn day_of(day: u8) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(day.into())
    }

    fn settled(policy: ConflictPolicy, day: Option<u8>, corrects: bool) -> Settlement {
        settle(policy, day.map(day_of), corrects, vec![from_day(1), from_day(5), from_day(3)])
    }

    fn days(others: &[Likeness]) -> Vec<u128> {
        others.iter().map(|other| other.id.as_u128()).collect()
    }

    #[test]
    fn the_newest_wins_by_when_it_happened() {
        let now = settled(ConflictPolicy::NewestWins, None, false);
        assert_eq!((days(&now.superseded), now.superseded_by), (vec![1, 5, 3], None));
        let late = settled(ConflictPolicy::NewestWins, Some(2), false);
        assert_eq!(days(&late.superseded), [1]);
        assert_eq!(late.superseded_by, Some(from_day(3)));
        assert_eq!(settled(ConflictPolicy::NewestWins, Some(5), false).superseded_by, None);
    }

    #[test]
    fn a_correction_stays_active_beside_what_is_newer() {
        let correction = settled(ConflictPolicy::NewestWins, Some(2), true);
        assert_eq!((days(&correction.superseded), days(&correction.flagged)), (vec![1], vec![5, 3]));
        assert_eq!(correction.superseded_by, None);
    }

    #[test]
    fn the_other_policies_supersede_nothing() {
        for day in [None, Some(0), Some(9)] {
            let flagged = settled(ConflictPolicy::Flag, day, false);
            assert_eq!(
                (days(&flagged.flagged), flagged.superseded, flagged.superseded_by),
                (vec![1, 5, 3], vec![], None)
            );
            let kept = settled(ConflictPolicy::KeepBoth, day, false);
            assert_eq!(
                (days(&kept.kept), kept.superseded, kept.superseded_by),
                (vec![1, 5, 3], vec![], None)
            );
        }
    }
}
