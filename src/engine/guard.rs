//! The meaning guard: what two similar texts say differently.
//!
//! Embeddings hardly see a changed port, a negation or another name, so similarity alone would let a correction
//! pass as a repeat. The guard compares the facts that carry meaning in a word or a digit.

mod facts;
mod number;
mod record;
mod words;

use std::{collections::BTreeSet, iter::once};

use facts::Facts;
use number::Number;
use record::Record;

use crate::text;

/// Two values replace each other only in the same context: this share of the remaining words must be common.
const SAME_CONTEXT: f32 = 0.5;

/// More differing words than this are another statement, not a misspelt one.
const MAX_LOOK_ALIKES: usize = 8;

/// A correction changes a number or two; where more differ, it is another event that is told.
const MAX_REPLACED: usize = 2;

/// A repeat has at most so many content words that the other text lacks.
const MAX_OTHER_WORDS: usize = 2;

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

/// How much of the words two texts share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wording {
    /// All that say anything: only word order and grammar differ.
    Same,
    /// All but a few.
    Near,
    /// Too few for one to stand for the other.
    Far,
}

/// What two texts have in common and what not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// How what they state differs.
    pub difference: Difference,
    /// How they say it.
    pub wording: Wording,
}

/// A text as it is compared: read once where it is held against many.
#[derive(Debug)]
pub struct Reading {
    plain: String,
    facts: Facts,
}

impl Reading {
    /// Reads a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let plain = facts::plain(text);
        let facts = Facts::of(Record::of(&plain).unstamped);
        Self { plain, facts }
    }

    /// Compares what two texts state. Symmetric, blind to case (except that it makes names), white space, Unicode
    /// form and the script of digits.
    #[must_use]
    pub fn compare(&self, new: &Self) -> Comparison {
        let (old_record, new_record) = (Record::of(&self.plain), Record::of(&new.plain));
        let (old, new) = (&self.facts, &new.facts);
        let difference = framed(&old_record, &new_record, &stated(old, new));
        Comparison { difference, wording: wording(old, new) }
    }
}

/// [Compares](Reading::compare) what two texts state.
#[must_use]
pub fn compare(old: &str, new: &str) -> Comparison {
    Reading::of(old).compare(&Reading::of(new))
}

/// Only how what two texts state differs.
#[must_use]
pub fn difference(old: &str, new: &str) -> Difference {
    compare(old, new).difference
}

/// What the facts say.
struct Stated {
    found: Difference,
    /// Whether the texts speak of different people or things, so that nothing they say can contradict.
    is_other_subject: bool,
    /// Whether what is said around the values is the same.
    is_same_context: bool,
}

fn stated(old: &Facts, new: &Facts) -> Stated {
    let mut values = BTreeSet::new();
    let (numbers, is_other_number) = numbers(old, new);
    let (identifiers, is_other_identifier) = identifiers(old, new, &mut values);
    let found = [
        numbers,
        dates(old, new),
        identifiers,
        quotes(old, new, &mut values),
        negations(old, new),
        names(old, new, &mut values),
        opposites(old, new, &mut values),
        slot(old, new, &mut values),
        look_alikes(old, new),
        roles(old, new),
        contrasts(old, new),
    ];
    let rest = |facts: &Facts| -> BTreeSet<String> {
        let rest = facts.content().filter(|word| !values.contains(*word));
        rest.map(|word| text::stem(word).into_owned()).collect()
    };
    Stated {
        found: found.into_iter().max().unwrap_or(Difference::None),
        is_other_subject: is_other_number || is_other_identifier || is_other_subject(old, new),
        is_same_context: jaccard(&rest(old), &rest(new)) >= SAME_CONTEXT,
    }
}

/// What follows once it counts who says it when, under which heading, and whether it is said or asked.
fn framed(old: &Record<'_>, new: &Record<'_>, stated: &Stated) -> Difference {
    let differs = record::is_other_speaker(old, new) || old.asks() != new.asks();
    let (old_value, new_value) = (old.value(), new.value());
    let (mut is_refined, mut is_other_value) = (false, false);
    if let (true, Some(old), Some(new)) = (record::is_same_heading(old, new), old_value, new_value) {
        is_refined = record::refines(&old, &new);
        is_other_value = old != new;
    }
    // A question states nothing that could be corrected.
    let may_replace = !(differs || stated.is_other_subject || old.only_asks() || new.only_asks());
    let replaces = is_refined || (stated.found == Difference::Replacement && stated.is_same_context);
    // Another stamp is another event, or the same view held at another time: both are worth knowing.
    let is_other_time = old.stamp.map(text::fold) != new.stamp.map(text::fold);
    if replaces && may_replace {
        Difference::Replacement
    } else if stated.found == Difference::None && !(differs || is_other_value || is_other_time) {
        Difference::None
    } else {
        Difference::Other
    }
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

/// Numbers are compared as multisets with their units; the same numbers in another order may have changed roles. Says
/// also whether the numbers that differ name different things.
fn numbers(old: &Facts, new: &Facts) -> (Difference, bool) {
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
        return (Difference::Other, true);
    }
    // "one" may be a pronoun: it is a number only where the other text has a number in its place.
    let one = |facts: &Facts, other: &Facts| usize::from(facts.has_word("one") && !other.has_word("one"));
    let found = match (only_old.len(), only_new.len()) {
        (0, 0) if old.numbers != new.numbers => Difference::Other,
        (0, changed) if changed > 0 => sides(one(old, new), changed),
        (changed, 0) if changed > 0 => sides(changed, one(new, old)),
        (0, 0) => Difference::None,
        (a, b) if a.min(b) > MAX_REPLACED => Difference::Other,
        _ if only_old.iter().any(|a| only_new.iter().any(|b| a.is_comparable(b))) => Difference::Replacement,
        _ => Difference::Other,
    };
    (found, false)
}

/// Dates of one kind replace each other.
fn dates(old: &Facts, new: &Facts) -> Difference {
    let only = |facts: &Facts, other: &Facts| -> Vec<usize> {
        facts.dates.difference(&other.dates).map(|date| words::date_kind(date)).collect()
    };
    let (only_old, only_new) = (only(old, new), only(new, old));
    if only_old.iter().any(|kind| only_new.contains(kind)) {
        return Difference::Replacement;
    }
    if only_old.is_empty() && only_new.is_empty() { Difference::None } else { Difference::Other }
}

/// Says also whether the identifiers that differ are numbered names of different things: `doc_17` and `doc_18`.
fn identifiers(old: &Facts, new: &Facts, values: &mut BTreeSet<String>) -> (Difference, bool) {
    let only = |facts: &Facts, other: &Facts| -> Vec<String> {
        facts.identifiers.difference(&other.identifiers).cloned().collect()
    };
    let (only_old, only_new) = (only(old, new), only(new, old));
    values.extend(only_old.iter().chain(&only_new).flat_map(|identifier| facts::words_of(identifier)));
    let is_numbered = |old: &String| {
        let stem = number::numbered(old);
        stem.is_some() && only_new.iter().any(|new| number::numbered(new) == stem)
    };
    (sides(only_old.len(), only_new.len()), only_old.iter().any(is_numbered))
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

/// The same words with two of them in each other's place: who does it to whom has changed, unless the sentence was turned
/// into the passive at the same time.
fn roles(old: &Facts, new: &Facts) -> Difference {
    let (a, b) = (&old.sequence, &new.sequence);
    if a.len() != b.len() {
        return Difference::None;
    }
    let moved: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    let is_swapped = match *moved.as_slice() {
        [i, j] => j > i + 1 && a[i] == b[j] && a[j] == b[i],
        _ => false,
    };
    let is_turned = old.is_passive != new.is_passive;
    if (is_swapped && !is_turned) || (moved.is_empty() && is_turned) {
        Difference::Other
    } else {
        Difference::None
    }
}

/// "But" in only one of the texts brings something that the other does not say.
fn contrasts(old: &Facts, new: &Facts) -> Difference {
    let has = |facts: &Facts| words::CONTRASTS.iter().any(|word| facts.has_word(word));
    if has(old) == has(new) { Difference::None } else { Difference::Other }
}

fn wording(old: &Facts, new: &Facts) -> Wording {
    if old.wording == new.wording {
        return Wording::Same;
    }
    let (only_old, only_new) = (only_content(old, new).len(), only_content(new, old).len());
    if only_old.max(only_new) <= MAX_OTHER_WORDS { Wording::Near } else { Wording::Far }
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
