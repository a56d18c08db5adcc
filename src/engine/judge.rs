//! What a new memory is to one that is already stored: the decision, not its consequences.

use schemars::JsonSchema;
use serde::Deserialize;

use super::guard::{self, Comparison, Difference, Wording};

pub use crate::provider::embed::Thresholds;

/// What the new text is to the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It says the same.
    Duplicate,
    /// It says what cannot hold beside the old one.
    Conflict,
    /// It says something else, or more.
    Distinct,
}

/// What makes a conflict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ConflictRule {
    /// Similarity and a value in place of another, as seen by the [guard].
    #[default]
    Guarded,
    /// Similarity alone: every near text that is no duplicate is superseded.
    Similarity,
}

/// Judges a pair by the cosine of its embeddings and by its words.
///
/// Never [`Verdict::Duplicate`] across a [difference](guard::difference) in meaning, and always
/// [`Verdict::Distinct`] when one text [contains](guard::is_containment) the other or the similarity is NaN:
/// hiding a memory that still holds is worse than keeping one twice. Symmetric in the two texts.
///
/// Texts of the [same words](Wording::Same) in another order or grammar repeat each other as soon as they may speak about
/// the same; texts that differ in a word or two need the greater likeness; and with more words of its own a text is never
/// a repeat.
#[must_use]
pub fn judge(rule: ConflictRule, thresholds: Thresholds, similarity: f32, old: &str, new: &str) -> Verdict {
    let (may_repeat, may_conflict) = (similarity >= thresholds.duplicate, similarity >= thresholds.conflict);
    if !(may_repeat || may_conflict) || guard::is_containment(old, new) {
        return Verdict::Distinct;
    }
    let Comparison { difference, wording } = guard::compare(old, new);
    match (difference, wording) {
        (Difference::None, Wording::Same) => Verdict::Duplicate,
        (Difference::None, Wording::Near) if may_repeat => Verdict::Duplicate,
        (Difference::Replacement, _) if may_conflict => Verdict::Conflict,
        _ if may_conflict && rule == ConflictRule::Similarity => Verdict::Conflict,
        _ => Verdict::Distinct,
    }
}

/// Whether a pair is left to whoever knows the meaning of words, where somebody does: it is near, no text contains the
/// other, and the rules find neither the same words nor a value in place of another.
#[must_use]
pub fn is_borderline(thresholds: Thresholds, similarity: f32, old: &str, new: &str) -> bool {
    let is_near = similarity >= thresholds.duplicate.min(thresholds.conflict);
    if !is_near || guard::is_containment(old, new) {
        return false;
    }
    let Comparison { difference, wording } = guard::compare(old, new);
    match difference {
        Difference::None => wording != Wording::Same,
        Difference::Other => true,
        Difference::Replacement => false,
    }
}

/// The verdict on a [borderline](is_borderline) pair once an opinion on it is there.
///
/// An opinion that the texts say the same does not count across a difference that carries meaning: hiding a memory that
/// still holds is worse than keeping one twice.
#[must_use]
pub fn settle(opinion: Verdict, old: &str, new: &str) -> Verdict {
    if opinion == Verdict::Duplicate && guard::difference(old, new) != Difference::None {
        return Verdict::Distinct;
    }
    opinion
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THRESHOLDS: Thresholds = Thresholds { duplicate: 0.95, conflict: 0.8 };

    fn guarded(similarity: f32, old: &str, new: &str) -> Verdict {
        judge(ConflictRule::Guarded, THRESHOLDS, similarity, old, new)
    }

    fn by_similarity(similarity: f32, old: &str, new: &str) -> Verdict {
        judge(ConflictRule::Similarity, THRESHOLDS, similarity, old, new)
    }

    #[test]
    fn thresholds_are_inclusive_and_nan_is_distinct() {
        assert_eq!(guarded(0.95, "I like to drink tea", "I like tea"), Verdict::Duplicate);
        assert_eq!(guarded(0.949, "I like to drink tea", "I like tea"), Verdict::Distinct);
        assert_eq!(guarded(f32::NAN, "I like tea", "I like tea"), Verdict::Distinct);
        assert_eq!(by_similarity(f32::NAN, "I like tea", "I like tea"), Verdict::Distinct);
    }

    #[test]
    fn a_replaced_value_conflicts_however_similar() {
        for similarity in [0.8, 0.99, 1.0] {
            assert_eq!(guarded(similarity, "The port is 8080", "The port is 8081"), Verdict::Conflict);
            assert_eq!(guarded(similarity, "My name is liguoyu", "My name is liguosong"), Verdict::Conflict);
        }
        assert_eq!(guarded(0.79, "The port is 8080", "The port is 8081"), Verdict::Distinct);
    }

    #[test]
    fn the_same_words_need_no_more_than_to_be_about_the_same() {
        for (old, new) in [
            ("A cook slices the onion", "An onion is being sliced by the cook"),
            ("We ship the release on Friday", "On Friday we ship the release"),
        ] {
            assert_eq!(guarded(0.8, old, new), Verdict::Duplicate, "{old} / {new}");
            assert_eq!(guarded(0.799, old, new), Verdict::Distinct, "{old} / {new}");
        }
    }

    #[test]
    fn a_text_that_says_much_else_is_no_repeat() {
        let (old, new) = ("Anna waters plants, feeds cats", "Anna feeds cats, cleans floors, bakes bread");
        assert_eq!(guarded(0.99, old, new), Verdict::Distinct);
    }

    #[test]
    fn additions_are_distinct() {
        assert_eq!(guarded(0.9, "I like tea", "I like tea but prefer coffee"), Verdict::Distinct);
        assert_eq!(guarded(0.99, "I like tea", "I like tea but prefer coffee"), Verdict::Distinct);
        assert_eq!(guarded(0.99, "I like tea", "I like tea but no sugar"), Verdict::Distinct);
        assert_eq!(
            guarded(0.9, "The dog is called Rex", "The dog is called Rex and is 5 years old"),
            Verdict::Distinct
        );
    }

    #[test]
    fn the_rule_by_similarity_supersedes_all_that_is_near() {
        assert_eq!(by_similarity(0.85, "I like tea", "I like the coffee"), Verdict::Conflict);
        assert_eq!(by_similarity(0.97, "The port is 8080", "The port is 8081"), Verdict::Conflict);
        assert_eq!(by_similarity(0.97, "I like tea", "i like TEA"), Verdict::Duplicate);
    }

    proptest! {
        #[test]
        fn symmetric(similarity in 0_f32..1.0, a in "[a-zA-Z0-9 ,.]{0,40}", b in "[a-zA-Z0-9 ,.]{0,40}") {
            prop_assert_eq!(guarded(similarity, &a, &b), guarded(similarity, &b, &a));
            prop_assert_eq!(by_similarity(similarity, &a, &b), by_similarity(similarity, &b, &a));
        }

        #[test]
        fn no_opinion_makes_a_duplicate_of_a_difference(a in "[a-zA-Z0-9 ,.]{0,40}", b in "[a-zA-Z0-9 ,.]{0,40}") {
            if guard::difference(&a, &b) != Difference::None {
                prop_assert_ne!(settle(Verdict::Duplicate, &a, &b), Verdict::Duplicate);
            }
            prop_assert_eq!(settle(Verdict::Conflict, &a, &b), Verdict::Conflict);
            prop_assert_eq!(settle(Verdict::Distinct, &a, &b), Verdict::Distinct);
            for similarity in [f32::NAN, 0.0, 0.79] {
                prop_assert!(!is_borderline(THRESHOLDS, similarity, &a, &b));
            }
        }

        #[test]
        fn a_changed_number_is_no_duplicate(words in prop::collection::vec("[a-z]{1,8}", 0..6), a in 0_u32.., b in 0_u32..) {
            prop_assume!(a != b);
            let text = |n: u32| format!("{} {n}", words.join(" "));
            prop_assert_ne!(guarded(1.0, &text(a), &text(b)), Verdict::Duplicate);
        }

        #[test]
        fn a_repeat_in_capitals_is_a_duplicate(words in prop::collection::vec("[a-z]{1,8}|[0-9]{1,4}", 1..8)) {
            let text = words.join(" ");
            prop_assert_eq!(guarded(1.0, &text, &text.to_uppercase()), Verdict::Duplicate);
        }
    }
}
