//! What a text is before it states anything: when and by whom it was said, under which heading it was noted, and whether
//! it states or asks.

use std::collections::BTreeSet;

use crate::text;

/// A stamp is no longer than this; what is longer in brackets is text.
const MAX_STAMP_CHARS: usize = 40;
/// A speaker has at most so many words.
const MAX_SPEAKER_WORDS: usize = 3;
/// A heading has at most so many words.
const MAX_HEADING_WORDS: usize = 8;
/// What is noted under a heading is a value up to so many words, and speech beyond.
const MAX_VALUE_WORDS: usize = 8;

/// Words that make a clause of what looks like a value.
#[rustfmt::skip]
const CLAUSE_WORDS: &[&str] = &[
    "i", "i'm", "i've", "i'll", "i'd", "you", "you're", "he", "she", "it", "it's", "we", "they", "is", "are", "was", "were",
    "am", "be", "do", "does", "did", "has", "have", "had", "will", "would", "can", "could", "should", "must", "may", "but",
    "ich", "du", "er", "sie", "wir", "ist", "sind", "war", "hat", "haben", "aber", // de
    "je", "tu", "il", "elle", "nous", "est", "sont", "était", "mais", // fr
    "yo", "él", "ella", "es", "son", "era", "pero", "io", "lui", "lei", "è", "sono", "ma", // es, it
];

/// A folded text with its frame set apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// A time in brackets before everything else: `[10:43 am on 4 February, 2023]`.
    pub(super) stamp: Option<&'a str>,
    /// What stands before the first colon: a speaker, a heading, a subject.
    pub(super) label: Option<&'a str>,
    /// Everything but the stamp.
    pub(super) unstamped: &'a str,
    /// What is said.
    pub(super) body: &'a str,
}

impl<'a> Record<'a> {
    /// Reads a text that is [cleaned](text::clean) and has single spaces.
    pub(super) fn of(text: &'a str) -> Self {
        let (stamp, rest) = stamp(text).map_or((None, text), |(stamp, rest)| (Some(stamp), rest));
        let (label, body) = label(rest).map_or((None, rest), |(label, body)| (Some(label), body));
        Self { stamp, label, unstamped: rest, body }
    }

    /// Whether everything that is said is a question.
    pub(super) fn only_asks(&self) -> bool {
        let sentences = text::sentences(self.body);
        !sentences.is_empty() && sentences.iter().all(|sentence| is_question(sentence))
    }

    /// Whether it closes with a question.
    pub(super) fn asks(&self) -> bool {
        is_question(self.body)
    }

    /// The content words of the value that is noted under a heading: `Books I like to read: Science fiction. I love it.`
    /// A label of a word or two that is spoken behind is somebody's name, and a clause is no value.
    pub(super) fn value(&self) -> Option<BTreeSet<String>> {
        let heading = self.label?;
        if !(2..=MAX_HEADING_WORDS).contains(&heading.split(' ').count()) {
            return None;
        }
        let value = text::sentences(self.body).into_iter().next()?;
        let folded = text::fold(value);
        let words: Vec<&str> =
            folded.split(' ').map(|word| word.trim_matches(|c: char| !c.is_alphanumeric())).collect();
        let is_value =
            words.len() <= MAX_VALUE_WORDS && !words.iter().any(|word| CLAUSE_WORDS.contains(word));
        is_value.then(|| text::term_sequence(value).into_iter().collect())
    }
}

/// Whether one of the values is the other with something added. Then they are versions of one entry.
pub(super) fn refines(old: &BTreeSet<String>, new: &BTreeSet<String>) -> bool {
    old != new && !old.is_empty() && !new.is_empty() && (old.is_subset(new) || new.is_subset(old))
}

fn is_question(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '!'))
        .ends_with(['?', '؟'])
}

fn stamp(text: &str) -> Option<(&str, &str)> {
    let close = match text.chars().next()? {
        '[' => ']',
        '(' => ')',
        _ => return None,
    };
    let (inner, rest) = text[1..].split_once(close)?;
    let is_stamp = inner.contains(|c: char| c.is_ascii_digit()) && inner.chars().count() <= MAX_STAMP_CHARS;
    (is_stamp && !rest.trim().is_empty()).then(|| (inner, rest.trim_start_matches([' ', ':', '-'])))
}

/// Letters up to a colon with a space behind it.
fn label(text: &str) -> Option<(&str, &str)> {
    let (label, body) = text.split_once(": ")?;
    let is_label = label.split(' ').count() <= MAX_HEADING_WORDS
        && !label.is_empty()
        && label.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '\'' | '-' | '_'));
    (is_label && !body.trim().is_empty()).then_some((label, body))
}

/// Whether two labels name different speakers or subjects. A longer label is a heading: other words may say the same.
pub(super) fn is_other_speaker(old: &Record<'_>, new: &Record<'_>) -> bool {
    match (old.label, new.label) {
        (Some(old), Some(new)) => {
            let is_name = |label: &str| label.split(' ').count() <= MAX_SPEAKER_WORDS;
            is_name(old) && is_name(new) && text::fold(old) != text::fold(new)
        }
        _ => false,
    }
}

/// Whether both texts are noted under the same heading.
pub(super) fn is_same_heading(old: &Record<'_>, new: &Record<'_>) -> bool {
    matches!((old.label, new.label), (Some(old), Some(new)) if text::fold(old) == text::fold(new))
}
