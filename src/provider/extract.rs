//! Summaries without a model: the sentences of the texts themselves.

use std::collections::{BTreeSet, HashSet};

use crate::text::{self, segment::is_unspaced};

/// Words that two sentences may differ by and still be repeats of each other.
const FILLERS: [&str; 14] = [
    "a", "an", "the", "very", "really", "so", "just", "also", "too", "that", "and", "oh", "well", "actually",
];

/// How much a sentence is worth that says nothing new, against one that is new throughout: a repeat of words is
/// not always a repeat of meaning, so it is taken last and not never.
const LEAST_NOVELTY: f32 = 0.05;

/// What each number or name that was not yet mentioned adds to a sentence's worth.
const SALIENT_BONUS: f32 = 0.2;

struct Sentence<'a> {
    text: &'a str,
    chars: usize,
    centrality: f32,
    stems: Vec<String>,
    /// The stems of numbers and names.
    salient: Vec<String>,
}

/// Extracts a summary of at most `max_chars` characters from texts with their centrality (mean cosine to all of
/// them; higher is more typical).
///
/// Every sentence of the summary stands verbatim in a text, and they keep their order. Repeated sentences are
/// taken once. Central sentences are taken first, and of these the ones with words, numbers and names that are not
/// covered yet. A sentence is cut, at a word, only when not even one fits.
#[must_use]
pub fn summarise(texts: &[(&str, f32)], max_chars: usize) -> String {
    let sentences = distinct_sentences(texts);
    let mut open: Vec<usize> = (0..sentences.len()).collect();
    let mut chosen = Vec::new();
    let mut covered = HashSet::new();
    let mut room = max_chars;
    loop {
        let separator = usize::from(!chosen.is_empty());
        open.retain(|at| sentences[*at].chars + separator <= room);
        // Of equals the first: `max_by` would take the last.
        let best = open
            .iter()
            .copied()
            .rev()
            .max_by(|a, b| worth(&sentences[*a], &covered).total_cmp(&worth(&sentences[*b], &covered)));
        let Some(best) = best else { break };
        room -= sentences[best].chars + separator;
        covered.extend(sentences[best].stems.iter().map(String::as_str));
        open.retain(|at| *at != best);
        chosen.push(best);
    }
    if chosen.is_empty() {
        let central = sentences.iter().rev().max_by(|a, b| a.centrality.total_cmp(&b.centrality));
        return central.map(|sentence| cut(sentence.text, max_chars).to_owned()).unwrap_or_default();
    }
    chosen.sort_unstable();
    join(chosen.into_iter().map(|at| sentences[at].text))
}

/// All sentences in order; of those that differ only by fillers and inflection the first.
fn distinct_sentences<'a>(texts: &[(&'a str, f32)]) -> Vec<Sentence<'a>> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (content, centrality) in texts {
        let centrality = if centrality.is_nan() { 0.0 } else { centrality.clamp(0.0, 1.0) };
        for sentence in text::sentences(content) {
            let stems: Vec<String> = text::normalise(sentence)
                .split(' ')
                .filter(|word| !FILLERS.contains(word))
                .map(|word| text::stem(word).into_owned())
                .collect();
            if seen.insert(stems.clone()) {
                let (chars, salient) = (sentence.chars().count(), values(sentence).into_iter().collect());
                out.push(Sentence { text: sentence, chars, centrality, stems, salient });
            }
        }
    }
    out
}

/// The numbers of a text, and its words with a capital that does not open a sentence: what a summary must neither lose nor
/// invent. Folded and stemmed, to be looked up in [`words`].
#[must_use]
pub fn values(text: &str) -> BTreeSet<String> {
    read(text)
        .filter(|word| word.has_digit || (word.is_capital && !word.is_first))
        .map(|word| word.stem)
        .collect()
}

/// As [`values`], with the capitals that open sentences, save those of stop words: whatever may be a name.
#[must_use]
pub fn claims(text: &str) -> BTreeSet<String> {
    let may_be_name = |word: &Word| word.is_capital && !text::is_english_stop_word(&word.folded);
    read(text).filter(|word| word.has_digit || may_be_name(word)).map(|word| word.stem).collect()
}

/// Every word and number of a text, folded and stemmed.
#[must_use]
pub fn words(text: &str) -> BTreeSet<String> {
    read(text).map(|word| word.stem).collect()
}

struct Word {
    folded: String,
    stem: String,
    is_first: bool,
    is_capital: bool,
    has_digit: bool,
}

fn read(text: &str) -> impl Iterator<Item = Word> {
    let clean = text::clean(text);
    let sentences: Vec<String> = text::sentences(&clean).into_iter().map(str::to_owned).collect();
    sentences.into_iter().flat_map(|sentence| {
        let words: Vec<Word> = tokens(&sentence)
            .into_iter()
            .enumerate()
            .map(|(at, token)| {
                let folded = text::fold(token);
                let bare = text::bare_word(&folded);
                Word {
                    stem: text::stem(bare).into_owned(),
                    is_first: at == 0,
                    is_capital: token.starts_with(char::is_uppercase) && bare != "i",
                    has_digit: bare.contains(|c: char| c.is_ascii_digit()),
                    folded: bare.to_owned(),
                }
            })
            .collect();
        words
    })
}

/// Runs of letters and digits. A full stop, comma or colon between two digits belongs to the number, an apostrophe between
/// two letters to the word; in scripts without spaces a number is parted from what stands around it.
fn tokens(sentence: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = sentence.char_indices().collect();
    let (mut tokens, mut start) = (Vec::new(), None);
    for (at, (offset, c)) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at)).map(|(_, c)| *c);
        let after = chars.get(at + 1).map(|(_, c)| *c);
        let between = |is: fn(char) -> bool| before.is_some_and(is) && after.is_some_and(is);
        let belongs = c.is_alphanumeric()
            || (matches!(c, '.' | ',' | ':') && between(|c| c.is_ascii_digit()))
            || (*c == '\'' && between(char::is_alphabetic));
        let parts = before.is_some_and(|before| {
            (is_unspaced(before) && c.is_ascii_digit()) || (before.is_ascii_digit() && is_unspaced(*c))
        });
        if let Some(from) = start.filter(|_| !belongs || parts) {
            tokens.push(&sentence[from..*offset]);
            start = None;
        }
        if belongs && start.is_none() {
            start = Some(*offset);
        }
    }
    tokens.extend(start.map(|from| &sentence[from..]));
    tokens
}

#[expect(clippy::cast_precision_loss, reason = "words of one sentence")]
fn worth(sentence: &Sentence<'_>, covered: &HashSet<&str>) -> f32 {
    let new = |stems: &[String]| stems.iter().filter(|stem| !covered.contains(stem.as_str())).count() as f32;
    let novelty = new(&sentence.stems) / (sentence.stems.len().max(1) as f32);
    let salience = SALIENT_BONUS.mul_add(new(&sentence.salient), 1.0);
    // Also what is not central at all is worth more than an empty place.
    (sentence.centrality + LEAST_NOVELTY) * novelty.max(LEAST_NOVELTY) * salience
}

/// Sentences without a closing mark get a line of their own.
fn join<'a>(sentences: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for sentence in sentences {
        if !out.is_empty() {
            out.push(if out.ends_with(['.', '!', '?', '…', '。', '！', '？', '"']) {
                ' '
            } else {
                '\n'
            });
        }
        out.push_str(sentence);
    }
    out
}

/// The beginning of a text, back to the last word that ends within `max_chars`.
fn cut(text: &str, max_chars: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(max_chars) else {
        return text;
    };
    let head = &text[..end];
    head.rfind(char::is_whitespace).map_or(head, |space| head[..space].trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeats_are_dropped_and_order_is_kept() {
        let texts = [
            ("I like tea. My name is Anna.", 0.5),
            ("I really liked the tea!", 0.9),
            ("I do not like tea.", 0.4),
        ];
        assert_eq!(summarise(&texts, 200), "I like tea. My name is Anna. I do not like tea.");
    }

    #[test]
    fn central_sentences_and_new_facts_come_first() {
        let texts = [
            ("We talked for a while.", 0.1),
            ("The server listens on port 8080.", 0.8),
            ("The server is listening well.", 0.8),
        ];
        assert_eq!(summarise(&texts, 40), "The server listens on port 8080.");
        assert_eq!(summarise(&texts, 70), "The server listens on port 8080. The server is listening well.");
    }

    #[test]
    fn only_a_sentence_that_cannot_fit_is_cut() {
        assert_eq!(summarise(&[("Alpha beta gamma delta", 1.0)], 12), "Alpha beta");
        assert_eq!(summarise(&[("Alpha beta gamma delta. Short.", 1.0)], 12), "Short.");
        assert_eq!(summarise(&[("no mark", 1.0), ("none here", 1.0)], 50), "no mark\nnone here");
        assert_eq!(summarise(&[], 50), "");
        assert_eq!(summarise(&[("Alpha", 1.0)], 0), "");
    }

    #[test]
    fn numbers_and_names_are_values() {
        let found = |text: &str| values(text).into_iter().collect::<Vec<_>>();
        assert_eq!(
            found("[4 May, 10:43] Ann: I paid 1,200.50 euros (v1.2) to Google's shop."),
            ["1,200.50", "10:43", "4", "ann", "googl", "may", "v1.2"]
        );
        assert_eq!(found("The port is 8080/tcp. It's Anna-Maria's."), ["8080", "anna", "maria"]);
        assert_eq!(found("我有3只猫，住在２楼。"), ["2", "3"]);
        assert!(claims("Bob likes tea. The tea is good.").contains("bob"));
        assert!(!claims("The tea is good.").contains("the"));
        assert!(words("Paid 10-15 euros in google").is_superset(&values("He paid 15 to Google, or 10.")));
    }

    proptest! {
        #[test]
        fn a_text_has_what_it_claims(text in "\\PC{0,80}") {
            let words = words(&text);
            prop_assert!(words.is_superset(&values(&text)) && words.is_superset(&claims(&text)));
        }

        #[test]
        fn nothing_is_invented_and_the_bound_holds(
            texts in prop::collection::vec(("([A-Z][b-z]{6,8}( [b-z0-9]{6,8}){0,4}[.!?] ){0,4}", 0_f32..1.0), 0..6),
            max_chars in 0_usize..200,
        ) {
            let borrowed: Vec<(&str, f32)> = texts.iter().map(|(text, c)| (text.as_str(), *c)).collect();
            let summary = summarise(&borrowed, max_chars);
            prop_assert!(summary.chars().count() <= max_chars);
            let known: Vec<&str> = borrowed.iter().flat_map(|(text, _)| text::sentences(text)).collect();
            let is_cut = known.iter().all(|sentence| sentence.chars().count() > max_chars);
            for sentence in text::sentences(&summary) {
                prop_assert!(known.contains(&sentence) || (is_cut && known.iter().any(|k| k.starts_with(sentence))));
            }
        }

        #[test]
        fn any_text_is_safe(a in any::<String>(), b in "\\PC{0,80}", c in any::<f32>(), max_chars in 0_usize..100) {
            prop_assert!(summarise(&[(&a, c), (&b, 0.5)], max_chars).chars().count() <= max_chars);
        }

        #[test]
        fn with_room_enough_every_distinct_sentence_stays(words in prop::collection::hash_set("[b-z]{5,9}", 1..6)) {
            let lines: Vec<String> = words.iter().map(|word| format!("{word} {word}x.")).collect();
            let summary = summarise(&[(&lines.join("\n"), 0.5)], 1_000);
            prop_assert_eq!(summary, lines.join(" "));
        }
    }
}
