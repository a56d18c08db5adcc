//! The terms a text is indexed and found by.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    bare_word, clean, fold,
    language::{Language, document_stem, is_english_stop_word, is_stop_word, query_stems, stem},
    segment::{Segment, segments},
};

/// Terms are cut to this many bytes, at a character boundary: a B-tree entry must stay small, and what is longer
/// (base64, minified code) is found by its beginning.
pub const MAX_TERM_BYTES: usize = 64;

/// A query asks for at most this many words, so that its cost does not grow with its length.
pub const MAX_QUERY_WORDS: usize = 64;

/// Of a query only this many characters are read.
const MAX_QUERY_CHARS: usize = 8_192;

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
/// Words are segmented by UAX #29, case-folded, freed of English stop words and of those that their script tells, and
/// stemmed in the language that the text seems to be in. CJK and other unspaced scripts become bigrams, Han and Hangul
/// single signs as well. Identifiers, paths, versions and addresses are kept whole and split. A text of nothing but
/// stop words keeps them, so that it can be found at all. Terms are at most [`MAX_TERM_BYTES`] long and hold no NUL.
#[must_use]
pub fn analyse(text: &str) -> Analysis {
    let mut counts = BTreeMap::<String, u32>::new();
    let mut tokens = 0_u32;
    let text = clean(text);
    let segments = segments(&text);
    let language = language(&segments);
    for form in kept(&segments, is_stop_word) {
        tokens = tokens.saturating_add(1);
        *counts.entry(cut(form.stemmed(|word| document_stem(word, language)))).or_default() += 1;
    }
    Analysis { terms: counts.into_iter().collect(), tokens }
}

/// The words that a query asks for, each with every term by which a document may hold it, sorted.
///
/// At most [`MAX_QUERY_WORDS`], the longest ones (a cheap sign of rarity) where there are more, and only from
/// the beginning of a very long query. Stop words of the query's language are left out, unless nothing else is asked.
#[must_use]
pub fn query_words(text: &str) -> Vec<Vec<String>> {
    let text = clean(beginning(text));
    let segments = segments(&text);
    let language = language(&segments);
    let says_nothing =
        |word: &str| is_stop_word(word) || language.is_some_and(|language| language.has_stop_word(word));
    let mut forms = kept(&segments, says_nothing);
    if forms.iter().all(|form| form.is_stop_word(says_nothing)) {
        forms = kept(&segments, is_stop_word);
    }
    let mut words: Vec<Vec<String>> = forms.iter().map(Form::spellings).collect();
    words.sort_unstable();
    words.dedup();
    if words.len() > MAX_QUERY_WORDS {
        words.sort_by_key(|spellings| Reverse(spellings.iter().map(String::len).max()));
        words.truncate(MAX_QUERY_WORDS);
    }
    words
}

/// The terms of a text in reading order, repeats included, as every text is read whatever its language: what vectors
/// were made of must not depend on a guess.
pub(crate) fn term_sequence(text: &str) -> Vec<String> {
    let text = clean(text);
    let segments = segments(&text);
    let forms = kept(&segments, is_english_stop_word);
    forms
        .into_iter()
        .filter(|form| !matches!(form, Form::Sign(_)))
        .map(|form| cut(form.stemmed(|word| stem(word).into_owned())))
        .collect()
}

/// A segment as it is indexed, but for the stem.
#[derive(Debug)]
enum Form<'a> {
    /// Taken as it is.
    Literal(String),
    /// A sign of a script without spaces, beside its bigrams.
    Sign(&'a str),
    /// A folded word that has a stem.
    Word(String),
}

/// What of the segments is indexed: all that are no stop words, or, where there are no others, these.
fn kept<'a>(segments: &[Segment<'a>], is_stop_word: impl Fn(&str) -> bool) -> Vec<Form<'a>> {
    let forms = |drops: bool| {
        let kept = segments.iter().filter_map(|segment| form(*segment));
        kept.filter(|form| !(drops && form.is_stop_word(&is_stop_word))).collect::<Vec<_>>()
    };
    let some = forms(true);
    if some.is_empty() { forms(false) } else { some }
}

fn form(segment: Segment<'_>) -> Option<Form<'_>> {
    let form = match segment {
        Segment::Gram(gram) => Form::Literal(gram.to_owned()),
        Segment::Sign(sign) => Form::Sign(sign),
        Segment::Whole(whole) => Form::Literal(fold(whole)),
        Segment::Part(part) if part.chars().nth(1).is_none() => return None,
        Segment::Word(word) | Segment::Part(word) => Form::Word(fold(word)),
    };
    Some(form).filter(|form| !form.text().is_empty())
}

impl Form<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Word(text) => text,
            Self::Sign(sign) => sign,
        }
    }

    fn is_stop_word(&self, is_stop_word: impl Fn(&str) -> bool) -> bool {
        let text = self.text();
        is_stop_word(text) || (matches!(self, Self::Word(_)) && is_stop_word(bare_word(text)))
    }

    fn stemmed(&self, stem: impl Fn(&str) -> String) -> String {
        match self {
            Self::Word(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                // 1,000 and 1000 are one number.
                bare_word(word).replace(',', "")
            }
            Self::Word(word) if word.len() <= MAX_TERM_BYTES => stem(word),
            form => form.text().to_owned(),
        }
    }

    fn spellings(&self) -> Vec<String> {
        let stems = match self {
            Self::Word(word) if word.len() <= MAX_TERM_BYTES => query_stems(word),
            form => vec![form.text().to_owned()],
        };
        let stems = stems.into_iter().map(|spelling| cut(self.stemmed(|_| spelling.clone())));
        stems.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

fn language(segments: &[Segment<'_>]) -> Option<Language> {
    let words = segments.iter().filter_map(|segment| match segment {
        Segment::Word(word) => Some(fold(word)),
        _ => None,
    });
    let words: Vec<String> = words.collect();
    Language::of(words.iter().map(|word| bare_word(word)))
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

    /// Whether a query finds a document by each of its words.
    fn finds_by_every_word(query: &str, document: &str) -> bool {
        let document = analyse(document).terms;
        let holds = |spelling: &String| document.iter().any(|(term, _)| term == spelling);
        let words = query_words(query);
        !words.is_empty() && words.iter().all(|spellings| spellings.iter().any(holds))
    }

    #[test]
    fn words_are_folded_stemmed_and_stopped() {
        let words = query_words("What did Caroline's DOGS like?");
        assert_eq!(words.len(), 3, "{words:?}");
        assert!(finds_by_every_word("What did Caroline's DOGS like?", "A dog like Caroline"));
        assert_eq!(query_words("ＲＵＳＴ"), [["rust"]]);
        let analysis = analyse("The dog and the dogs, 1,000 dogs");
        assert_eq!(analysis.terms, [("1000".to_owned(), 1), ("dog".to_owned(), 3)]);
        assert_eq!(analysis.tokens, 4);
    }

    #[test]
    fn other_forms_of_a_word_find_it_in_each_language() {
        for (query, document) in [
            ("kettle", "The kettles are in the kitchen"),
            ("Haus", "Wir haben die alten Häuser in der Stadt gesehen"),
            ("Welche Häuser haben wir gesehen?", "Das Haus, das wir gesehen haben, ist alt"),
            ("cheval", "Les chevaux sont dans le pré avec nous"),
            ("canciones", "Me gusta la canción que ella canta"),
            ("gatto", "I gatti dormono sul divano con noi"),
            ("livro", "Os livros estão na mesa da minha irmã"),
            ("katten", "Ik heb een nieuwe kat en hij is rood"),
            ("собаки", "У меня есть собака"),
            ("ёлка", "Мы нарядили елку"),
            ("القطط", "أحب القطط كثيرا"),
            ("eau", "L'eau est dans la cuisine avec nous"),
            ("cafe", "Café Central"),
        ] {
            assert!(
                finds_by_every_word(query, document),
                "{query}: {:?} {document}: {:?}",
                query_words(query),
                analyse(document)
            );
        }
    }

    #[test]
    fn signs_and_bigrams_find_scripts_without_spaces() {
        for (query, document) in [
            ("猫", "我的猫喜欢吃鱼"),
            ("绿茶", "我喜欢喝绿茶"),
            ("猫", "うちの猫を飼っている"),
            ("コーヒー", "毎朝コーヒーを飲みます"),
            ("책", "어제 책을 읽었다"),
            ("กาแฟ", "ฉันชอบดื่มกาแฟทุกเช้า"),
            ("rust語言", "我用Rust語言寫程式"),
        ] {
            assert!(finds_by_every_word(query, document), "{query}: {:?} {document}", query_words(query));
        }
    }

    #[test]
    fn what_was_indexed_before_there_were_languages_is_asked_for() {
        for (word, term) in [
            ("Häuser", "häuser"),
            ("canción", "canción"),
            ("dogs", "dog"),
            ("Ёлка", "ёлка"),
            ("القطط", "القطط"),
        ] {
            assert!(query_words(word).concat().contains(&term.to_owned()), "{word}: {:?}", query_words(word));
        }
    }

    #[test]
    fn stop_words_alone_still_find() {
        assert!(finds_by_every_word("to be or not to be", "To be or not to be"));
        assert!(finds_by_every_word("der die das", "der die das"));
        assert!(finds_by_every_word("der die the das", "der die das"));
        assert!(query_words(" ?! ").is_empty());
    }

    #[test]
    fn a_huge_query_is_bounded() {
        let query: String = (0..58_000).fold(String::new(), |query, n| query + "word" + &n.to_string() + " ");
        let words = query_words(&query);
        assert_eq!(words.len(), MAX_QUERY_WORDS);
        assert!(words.concat().len() <= MAX_QUERY_WORDS * 8);
    }

    #[test]
    fn identifiers_answer_to_their_parts() {
        let terms = query_words("see src/engine/scoreBoard.rs and MAX_TERM_BYTES, v1.2.3").concat();
        for wanted in ["src/engine/scoreboard.rs", "engin", "board", "max_term_bytes", "byte", "v1.2.3"] {
            assert!(terms.contains(&wanted.to_owned()), "{wanted} in {terms:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_finds_itself(
            text in "[\\PC\\p{Greek}\\p{Cyrillic}\\p{Arabic}\\p{Han}\\p{Thai} a-zA-Zäéßñ0-9_.\\-]{0,80}",
            start in prop::sample::select(vec!["", "ich habe die ", "je suis dans la ", "los de la ", "the and of "]),
        ) {
            let document = start.to_owned() + &text;
            prop_assume!(!query_words(&text).is_empty());
            prop_assert!(finds_by_every_word(&document, &document));
            prop_assert!(finds_by_every_word(&text, &text));
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
