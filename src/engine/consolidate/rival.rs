//! Whether two near texts can be told in one breath: what contradicts must not become one fact.

use std::collections::BTreeSet;

use crate::engine::guard::{Difference, Reading};
use crate::text;

/// Words by which something ends that another text may tell of as going on, folded. A pair of words stands side by side.
#[rustfmt::skip]
const ENDS: &[&str] = &[
    "left", "leaves", "leaving", "quit", "quits", "resigned", "stopped", "ended", "cancelled", "canceled", "sold", "former",
    "formerly", "retired", "fired", "divorced", "abandoned", "discontinued", "deprecated", "closed", "moved", "no longer",
    "used to", "anymore", "not any more", // en
    "gekündigt", "verlassen", "aufgehört", "beendet", "verkauft", "ehemalig", "ehemaliger", "ehemalige", "nicht mehr", // de
    "quitté", "arrêté", "vendu", "ancien", "ancienne", "ne plus", // fr
    "dejó", "renunció", "vendió", "ya no", "ha lasciato", "non più", "deixou", "não mais", // es, it, pt
    "уволился", "уволилась", "ушёл", "ушла", "бросил", "бросила", "больше не", // ru
];

/// Two texts of which one tells an end speak of the same thing when they share this part of the shorter one's words.
const SAME_THING: f32 = 0.5;

/// Why two texts cannot both hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contradiction {
    /// One seems to tell the end of what the other tells as going on.
    End,
    /// A value stands in place of another.
    Value,
}

/// A text as it is held against others, read once.
pub(super) struct Claim {
    text: String,
    reading: Reading,
    ends: bool,
}

impl Claim {
    /// Reads a text.
    pub(super) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), reading: Reading::of(text), ends: ends(text) }
    }

    /// Why two texts that are near each other cannot both hold, where they cannot. Symmetric.
    pub(super) fn contradiction(&self, other: &Self) -> Option<Contradiction> {
        if self.reading.compare(&other.reading).difference == Difference::Replacement {
            return Some(Contradiction::Value);
        }
        (self.ends != other.ends && self.is_same_thing(other)).then_some(Contradiction::End)
    }

    #[expect(clippy::cast_precision_loss, reason = "words of one text")]
    fn is_same_thing(&self, other: &Self) -> bool {
        // Only for the few pairs of which one text tells an end.
        let terms = |claim: &Self| -> BTreeSet<String> {
            text::analyse(&claim.text).terms.into_iter().map(|(term, _)| term).collect()
        };
        let (own, others) = (terms(self), terms(other));
        let shorter = own.len().min(others.len());
        shorter > 0 && own.intersection(&others).count() as f32 >= SAME_THING * shorter as f32
    }
}

fn ends(text: &str) -> bool {
    let words: Vec<String> = text::normalise(text)
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    ENDS.iter().any(|end| {
        let end: Vec<&str> = end.split(' ').collect();
        words.windows(end.len()).any(|window| window == end)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contradiction(a: &str, b: &str) -> Option<Contradiction> {
        Claim::of(a).contradiction(&Claim::of(b))
    }

    fn contradicts(a: &str, b: &str) -> bool {
        contradiction(a, b).is_some()
    }

    #[test]
    fn values_and_ends_contradict() {
        for (a, b) in [
            ("The staging server listens on port 8080", "The staging server listens on port 8081"),
            ("Anna works at Initech as an engineer", "Anna left Initech in May"),
            ("Anna works at Initech", "Anna no longer works at Initech"),
            ("Anna arbeitet bei Initech", "Anna arbeitet nicht mehr bei Initech"),
        ] {
            assert!(contradicts(a, b) && contradicts(b, a), "{a} / {b}");
        }
    }

    #[test]
    fn what_adds_does_not_contradict() {
        for (a, b) in [
            ("Anna works at Initech as an engineer", "Anna works at Initech since March"),
            ("Anna works at Initech", "Ben left for the airport at noon"),
            ("Anna left Initech in May", "Anna left Initech after three years"),
        ] {
            assert!(!contradicts(a, b) && !contradicts(b, a), "{a} / {b}");
        }
    }

    proptest! {
        #[test]
        fn symmetric(a in "[a-zA-Z0-9 ,.]{0,40}( left)?", b in "[a-zA-Z0-9 ,.]{0,40}( left)?") {
            prop_assert_eq!(contradiction(&a, &b), contradiction(&b, &a));
        }
    }
}
