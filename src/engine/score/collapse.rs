//! One answer for what is said many times.

use std::collections::{BTreeSet, HashSet};

use uuid::Uuid;

use crate::engine::guard::{self, Difference, jaccard};
use crate::text;

/// Two texts that share this part of their terms are near-identical, if nothing in meaning differs.
const NEAR_IDENTICAL: f32 = 0.9;

/// Keeps the first, that is the best ranked, of all near-identical texts.
///
/// Near-identical are texts with the same [normal form](text::normalise), and texts whose terms have a Jaccard
/// index of at least .9 and between which the [guard] sees no difference. The number of comparisons is quadratic
/// in the number of kept items: meant for the answer of one query, not for a store.
pub fn collapse_near_identical<'a>(items: impl Iterator<Item = (Uuid, &'a str)>) -> Vec<Uuid> {
    let mut forms = HashSet::new();
    let mut kept: Vec<(Uuid, &str, BTreeSet<String>)> = Vec::new();
    for (id, content) in items {
        if !forms.insert(text::normalise(content)) {
            continue;
        }
        let terms: BTreeSet<String> =
            text::analyse(content).terms.into_iter().map(|(term, _)| term).collect();
        let is_repeat = kept.iter().any(|(_, other, other_terms)| {
            // Two texts without a single term have nothing in common but that.
            !terms.is_empty()
                && jaccard(&terms, other_terms) >= NEAR_IDENTICAL
                && guard::difference(content, other) == Difference::None
        });
        if !is_repeat {
            kept.push((id, content, terms));
        }
    }
    kept.into_iter().map(|(id, ..)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(texts: &[&str]) -> Vec<u128> {
        let items = texts.iter().zip(0..).map(|(text, n)| (Uuid::from_u128(n), *text));
        collapse_near_identical(items).iter().map(Uuid::as_u128).collect()
    }

    #[test]
    fn repeats_collapse_into_the_first() {
        assert_eq!(kept(&["I like tea", "i LIKE tea!", "I liked the tea", "I like coffee"]), [0, 3]);
    }

    #[test]
    fn a_difference_in_meaning_keeps_both() {
        assert_eq!(kept(&["The port is 8080", "The port is 8081"]), [0, 1]);
        assert_eq!(kept(&["I like tea", "I do not like tea"]), [0, 1]);
        assert_eq!(kept(&["🙂", "🙁"]), [0, 1]);
    }
}
