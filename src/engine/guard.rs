//! The meaning guard: what two similar texts say differently.
//!
//! Embeddings hardly see a changed port, a negation or another name, so similarity alone would let a correction
//! pass as a repeat. The guard compares the facts that carry meaning in a word or a digit.

mod facts;
mod number;
mod words;

use std::{collections::BTreeSet, iter::once};

use facts::Facts;
use number::Number;

use crate::text;

/// Two values replace each other only in the same context: this share of the remaining words must be common.
const SAME_CONTEXT: f32 = 0.5;

/// More differing words than this are another statement, not a misspelt one.
const MAX_LOOK_ALIKES: usize = 8;

/// How the facts of two texts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// No fact differs: they may say the same.
    None,
    /// A fact is added, dropped, moved or looks different: not the same, but no contradiction either.
    Other,
    /// In the same context one value stands in place of another, or one text negates: both cannot hold at once.
    Replacement,
}

/// Compares what two texts state. Symmetric, blind to case (except that it makes names), white space, Unicode
/// form and the script of digits.
#[must_use]
pub fn difference(old: &str, new: &str) -> Difference {
    let (old, new) = (Facts::of(old), Facts::of(new));
    let mut values = BTreeSet::new();
    let found = [
        numbers(&old, &new),
        sides(old.dates.difference(&new.dates).count(), new.dates.difference(&old.dates).count()),
        identifiers(&old, &new, &mut values),
        quotes(&old, &new, &mut values),
        negations(&old, &new),
        names(&old, &new, &mut values),
        opposites(&old, &new, &mut values),
        slot(&old, &new, &mut values),
        look_alikes(&old, &new),
    ];
    let found = found.into_iter().max().unwrap_or(Difference::None);
    if found == Difference::Replacement {
        let rest = |facts: &Facts| -> BTreeSet<String> {
            let rest = facts.content().filter(|word| !values.contains(*word));
            rest.map(|word| text::stem(word).into_owned()).collect()
        };
        if is_other_subject(&old, &new) || jaccard(&rest(&old), &rest(&new)) < SAME_CONTEXT {
            return Difference::Other;
        }
    }
    found
}

/// Whether one text holds at least twice as many content words as the other: it then says more than a repeat or
/// a correction would, and neither may disappear behind the other.
#[must_use]
pub fn is_containment(old: &str, new: &str) -> bool {
    let (old, new) = (text::analyse(old).tokens, text::analyse(new).tokens);
    old != new && old.max(new) >= 2 * old.min(new)
}

/// What follows from the counts of facts that only one of the texts states.
fn sides(only_old: usize, only_new: usize) -> Difference {
    match (only_old, only_new) {
        (0, 0) => Difference::None,
        (0, _) | (_, 0) => Difference::Other,
        _ => Difference::Replacement,
    }
}

/// Numbers are compared as multisets with their units; the same numbers in another order may have changed roles.
fn numbers(old: &Facts, new: &Facts) -> Difference {
    let (mut only_old, mut only_new) = (old.numbers.clone(), new.numbers.clone());
    for number in &new.numbers {
        if let Some(at) = only_old.iter().position(|other| other == number) {
            only_old.remove(at);
        }
    }
    for number in &old.numbers {
        if let Some(at) = only_new.iter().position(|other| other == number) {
            only_new.remove(at);
        }
    }
    // Another label names another thing.
    if only_old.iter().chain(&only_new).any(Number::is_label) {
        return Difference::Other;
    }
    // "one" may be a pronoun: it is a number only where the other text has a number in its place.
    let one = |facts: &Facts, other: &Facts| usize::from(facts.has_word("one") && !other.has_word("one"));
    match (only_old.len(), only_new.len()) {
        (0, 0) if old.numbers != new.numbers => Difference::Other,
        (0, changed) if changed > 0 => sides(one(old, new), changed),
        (changed, 0) if changed > 0 => sides(changed, one(new, old)),
        (changed_old, changed_new) => sides(changed_old, changed_new),
    }
}

fn identifiers(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> Difference {
    let mut only = |facts: &Facts, other: &Facts| {
        let only: Vec<&String> = facts.identifiers.difference(&other.identifiers).collect();
        values.extend(only.iter().flat_map(|identifier| facts::words_of(identifier)));
        only.len()
    };
    sides(only(old, new), only(new, old))
}

/// A quotation counts as common when the other text holds its words, quoted or not.
fn quotes(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> Difference {
    let mut only = |facts: &Facts, other: &Facts| {
        let is_common = |quote: &str| other.quotes.contains(quote) || other.normalised.contains(quote);
        let only: Vec<&String> = facts.quotes.iter().filter(|quote| !is_common(quote)).collect();
        values.extend(only.iter().flat_map(|quote| facts::words_of(quote)));
        only.len()
    };
    sides(only(old, new), only(new, old))
}

/// A negation contradicts when only one text negates and what it negates is said in the other.
fn negations(old: &Facts, new: &Facts) -> Difference {
    let contradicts = |negating: &Facts, other: &Facts| {
        negating.negated.is_empty() || negating.negated.iter().any(|word| other.has_stem(word))
    };
    match (old.negations, new.negations) {
        (a, b) if a == b => Difference::None,
        (0, _) if contradicts(new, old) => Difference::Replacement,
        (_, 0) if contradicts(old, new) => Difference::Replacement,
        _ => Difference::Other,
    }
}

/// Another name is another fact, except where only one value can hold. The capital that opens a sentence makes a
/// name only if both texts open with such a word.
fn names(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> Difference {
    let (only_old, only_new) = (only_names(&old.names, new), only_names(&new.names, old));
    let found = sides(only_old.len(), only_new.len());
    values.extend(only_old.into_iter().chain(only_new).map(str::to_owned));
    match found {
        Difference::None if opens_differently(old, new) => Difference::Other,
        Difference::Replacement if !shares_cue(old, new) => Difference::Other,
        found => found,
    }
}

/// Whether the texts speak of different people or things, so that nothing they say can contradict.
fn is_other_subject(old: &Facts, new: &Facts) -> bool {
    let differs = !only_names(&old.names, new).is_empty() && !only_names(&new.names, old).is_empty();
    (differs && !shares_cue(old, new)) || opens_differently(old, new)
}

fn opens_differently(old: &Facts, new: &Facts) -> bool {
    !only_names(&old.openers, new).is_empty() && !only_names(&new.openers, old).is_empty()
}

fn only_names<'a>(names: &'a BTreeSet<String>, other: &Facts) -> Vec<&'a str> {
    names.iter().map(String::as_str).filter(|name| !other.has_stem(name)).collect()
}

/// Words of a closed list of which only one holds at a time, one on each side.
fn opposites(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> Difference {
    let has = |facts: &Facts, other: &Facts, word: &str| facts.has_stem(word) && !other.has_stem(word);
    let Some((a, b)) = words::OPPOSITES
        .iter()
        .find(|(a, b)| (has(old, new, a) && has(new, old, b)) || (has(old, new, b) && has(new, old, a)))
    else {
        return Difference::None;
    };
    let stems = [text::stem(a), text::stem(b)];
    let is_value = |word: &&str| stems.contains(&text::stem(word));
    values.extend(old.content().chain(new.content()).filter(is_value).map(str::to_owned));
    Difference::Replacement
}

/// One word in place of one other where an attribute has a single value: `my name is liguoyu` | `liguosong`.
fn slot(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> Difference {
    let (only_old, only_new) = (only_content(old, new), only_content(new, old));
    let ([a], [b]) = (only_old.as_slice(), only_new.as_slice()) else {
        return Difference::None;
    };
    if !shares_cue(old, new) {
        return Difference::None;
    }
    values.extend(once(*a).chain(once(*b)).map(str::to_owned));
    Difference::Replacement
}

/// Names are often written in lower case, so words that differ by one letter never count as the same.
fn look_alikes(old: &Facts, new: &Facts) -> Difference {
    let (only_old, only_new) = (only_content(old, new), only_content(new, old));
    if only_old.len() > MAX_LOOK_ALIKES || only_new.len() > MAX_LOOK_ALIKES {
        return Difference::None;
    }
    let alike = only_old.iter().any(|a| only_new.iter().any(|b| is_look_alike(a, b)));
    if alike { Difference::Other } else { Difference::None }
}

fn only_content<'a>(facts: &'a Facts, other: &Facts) -> Vec<&'a str> {
    facts.content().filter(|word| !other.has_stem(word)).collect()
}

fn shares_cue(old: &Facts, new: &Facts) -> bool {
    words::SINGLE_VALUED.iter().any(|cue| old.has_word(cue) && new.has_stem(cue))
}

/// One letter changed, missing, added or swapped; British and American spellings are the same word.
fn is_look_alike(a: &str, b: &str) -> bool {
    let american =
        |word: &str| word.replace("our", "or").replace("is", "iz").replace("ys", "yz").replace("ll", "l");
    if a.len().min(b.len()) < 3 || american(a) == american(b) {
        return false;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([_], [_] | []) | ([], [_]) => true,
        ([a1, a2], [b1, b2]) => a1 == b2 && a2 == b1,
        _ => false,
    }
}

/// Shared share of two sets; two empty sets are equal.
pub(super) fn jaccard<T: Ord>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> f32 {
    let common = a.intersection(b).count();
    let all = a.len() + b.len() - common;
    if all == 0 { 1.0 } else { ratio(common, all) }
}

#[expect(clippy::cast_precision_loss, reason = "counts of words in one text are far below 2^24")]
fn ratio(part: usize, whole: usize) -> f32 {
    part as f32 / whole as f32
}

#[cfg(test)]
mod tests;
