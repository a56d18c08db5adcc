//! The terms a text is indexed and found by.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::LazyLock,
};

use rust_stemmers::{Algorithm, Stemmer};

use super::{
    bare_word, clean, fold,
    segment::{Segment, segments},
};

/// Terms are cut to this many bytes, at a character boundary: a B-tree entry must stay small, and what is longer
/// (base64, minified code) is found by its beginning.
pub const MAX_TERM_BYTES: usize = 64;

/// A query asks for at most this many terms, so that its cost does not grow with its length.
pub const MAX_QUERY_TERMS: usize = 64;

/// Of a query only this many characters are read.
const MAX_QUERY_CHARS: usize = 8_192;

static STOP_WORDS: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| stop_words::lookup("en").unwrap_or_default().iter().copied().collect());

/// The terms of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Distinct terms with how often each occurs, sorted by term.
    pub terms: Vec<(String, u32)>,
    /// Occurrences of all terms, stop words not counted: the document length of BM25.
    pub tokens: u32,
}

/// Analyses a document.
///
/// Words are segmented by UAX #29, case-folded, freed of English stop words and stemmed by their script; CJK and
/// other unspaced scripts become bigrams; identifiers, paths, versions and addresses are kept whole and split. A
/// text of nothing but stop words keeps them, so that it can be found at all. Terms are at most
/// [`MAX_TERM_BYTES`] long and hold no NUL.
#[must_use]
pub fn analyse(text: &str) -> Analysis {
    let mut counts = BTreeMap::<String, u32>::new();
    let mut tokens = 0_u32;
    for term in term_sequence(text) {
        tokens = tokens.saturating_add(1);
        *counts.entry(term).or_default() += 1;
    }
    Analysis { terms: counts.into_iter().collect(), tokens }
}

/// The distinct terms that a query asks for, each among the terms of a document of the same text.
///
/// At most [`MAX_QUERY_TERMS`], the longest ones (a cheap sign of rarity) where there are more, and only from
/// the beginning of a very long query. Sorted by term, or longest first where some were left out.
#[must_use]
pub fn query_terms(text: &str) -> Vec<String> {
    let terms: BTreeSet<String> = term_sequence(beginning(text)).into_iter().collect();
    let mut terms: Vec<String> = terms.into_iter().collect();
    if terms.len() > MAX_QUERY_TERMS {
        terms.sort_by_key(|term| Reverse(term.len()));
        terms.truncate(MAX_QUERY_TERMS);
    }
    terms
}

/// The words that a query asks for, each with its spellings.
#[must_use]
pub fn query_words(text: &str) -> Vec<Vec<String>> {
    query_terms(text).into_iter().map(|term| vec![term]).collect()
}

/// The stem of one folded word; the language is guessed from the script.
#[must_use]
pub fn stem(word: &str) -> Cow<'_, str> {
    match algorithm(word) {
        Some(algorithm) => Stemmer::create(algorithm).stem(word),
        None => Cow::Borrowed(word),
    }
}

/// The terms of a text in reading order, repeats included.
pub(crate) fn term_sequence(text: &str) -> Vec<String> {
    let text = clean(text);
    let segments = segments(&text);
    let terms: Vec<String> = segments.iter().filter_map(|segment| term(*segment, true)).collect();
    if terms.is_empty() {
        return segments.iter().filter_map(|segment| term(*segment, false)).collect();
    }
    terms
}

/// Whether a folded word is a stop word.
pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

fn term(segment: Segment<'_>, drop_stop_words: bool) -> Option<String> {
    match segment {
        Segment::Gram(gram) => Some(gram.to_owned()),
        Segment::Whole(whole) => {
            Some(cut(fold(whole))).filter(|whole| !(drop_stop_words && is_stop_word(whole)))
        }
        Segment::Part(part) if part.chars().nth(1).is_none() => None,
        Segment::Word(word) | Segment::Part(word) => {
            let word = fold(word);
            let bare = bare_word(&word);
            if drop_stop_words && (is_stop_word(&word) || is_stop_word(bare)) {
                return None;
            }
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                // 1,000 and 1000 are one number.
                return Some(cut(bare.replace(',', "")));
            }
            Some(if word.len() > MAX_TERM_BYTES { cut(word) } else { cut(stem(&word).into_owned()) })
        }
    }
    .filter(|term| !term.is_empty())
}

/// English for ASCII words; other Latin words are left whole, because their language cannot be told from one word.
fn algorithm(word: &str) -> Option<Algorithm> {
    let of = |range: std::ops::RangeInclusive<char>| word.chars().all(|c| range.contains(&c));
    if word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'\'') {
        Some(Algorithm::English)
    } else if of('\u{400}'..='\u{45F}') {
        Some(Algorithm::Russian)
    } else if of('\u{370}'..='\u{3FF}') {
        Some(Algorithm::Greek)
    } else {
        None
    }
}

fn cut(mut term: String) -> String {
    term.truncate(term.floor_char_boundary(MAX_TERM_BYTES));
    term
}

/// The first [`MAX_QUERY_CHARS`] characters, back to the last white space so that no word is cut.
fn beginning(text: &str) -> &str {
    let Some((end, _)) = text.char_indices().nth(MAX_QUERY_CHARS) else {
        return text;
    };
    let head = &text[..end];
    head.rfind(char::is_whitespace).map_or(head, |space| &head[..space])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_folded_stemmed_and_stopped() {
        assert_eq!(query_terms("What did Caroline's DOGS like?"), ["carolin", "dog", "like"]);
        assert_eq!(query_terms("Собаки любят"), query_terms("собака любят"));
        assert_eq!(query_terms("ＲＵＳＴ"), ["rust"]);
        let analysis = analyse("The dog and the dogs, 1,000 dogs");
        assert_eq!(analysis.terms, [("1000".to_owned(), 1), ("dog".to_owned(), 3)]);
        assert_eq!(analysis.tokens, 4);
    }

    #[test]
    fn stop_words_alone_still_give_terms() {
        assert_eq!(query_terms("to be or not to be"), ["be", "not", "or", "to"]);
        assert!(query_terms(" ?! ").is_empty());
    }

    #[test]
    fn a_huge_query_is_bounded() {
        let query: String = (0..58_000).fold(String::new(), |query, n| query + "word" + &n.to_string() + " ");
        assert_eq!(query_terms(&query).len(), MAX_QUERY_TERMS);
    }

    #[test]
    fn identifiers_answer_to_their_parts() {
        let terms = query_terms("see src/engine/scoreBoard.rs and MAX_TERM_BYTES, v1.2.3");
        for wanted in ["src/engine/scoreboard.rs", "engin", "board", "max_term_bytes", "byte", "v1.2.3"] {
            assert!(terms.contains(&wanted.to_owned()), "{wanted} in {terms:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_finds_itself(text in "[\\PC\\p{Greek}\\p{Cyrillic}\\p{Arabic}\\p{Han}\\p{Thai} a-zA-Z0-9_.\\-]{0,80}") {
            let document = analyse(&text);
            for term in query_terms(&text) {
                prop_assert!(document.terms.iter().any(|(have, _)| *have == term), "{term:?}");
            }
        }

        #[test]
        fn terms_are_small_sorted_and_clean(text in any::<String>(), long in "[a-zé_]{0,200}") {
            let analysis = analyse(&format!("{text} {long}"));
            prop_assert!(analysis.terms.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert_eq!(analysis.tokens, analysis.terms.iter().map(|(_, tf)| tf).sum::<u32>());
            for (term, _) in &analysis.terms {
                prop_assert!(!term.is_empty() && term.len() <= MAX_TERM_BYTES && !term.contains('\0'));
            }
        }

        #[test]
        fn case_does_not_matter_to_plain_words(words in prop::collection::vec("[a-z]{1,10}", 1..6)) {
            let text = words.join(" ");
            prop_assert_eq!(analyse(&text), analyse(&text.to_uppercase()));
        }
    }
}
