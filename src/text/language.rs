//! Languages: which one a text is in, and the stem of a word in each.
//!
//! Words of the Latin script cannot be told apart by their letters. A document is indexed by one stem a word, in the
//! language that its function words tell, and a query asks for the stem in every language. So a wrong guess, or none,
//! costs at most that other forms of a word are not found; the same word always is.

use std::{borrow::Cow, collections::HashMap, sync::LazyLock};

use super::bare_word;
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// A language of the Latin script that is told by its function words, by its place in [`LATIN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Language(usize);

/// English first: it is what undetected words are taken for.
const LATIN: [(&str, Algorithm); 7] = [
    ("en", Algorithm::English),
    ("de", Algorithm::German),
    ("fr", Algorithm::French),
    ("es", Algorithm::Spanish),
    ("it", Algorithm::Italian),
    ("pt", Algorithm::Portuguese),
    ("nl", Algorithm::Dutch),
];

/// Languages that their script tells, at least among those that are stemmed.
const BY_SCRIPT: [&str; 4] = ["ru", "el", "ar", "zh"];

/// A language is taken for granted from this many function words on, if none other has as many.
const ENOUGH: u32 = 2;

/// Function words with one bit for each language of [`LATIN`], and one more for those of [`BY_SCRIPT`].
static STOP_WORDS: LazyLock<HashMap<&'static str, u8>> = LazyLock::new(|| {
    let latin = LATIN.iter().map(|(code, _)| *code).enumerate();
    let others = BY_SCRIPT.iter().map(|code| (LATIN.len(), *code));
    let mut bits = HashMap::new();
    for (place, code) in latin.chain(others) {
        for word in stop_words::lookup(code).unwrap_or_default() {
            *bits.entry(*word).or_default() |= 1 << place;
        }
    }
    bits
});

/// The bits of words that are dropped from every text: the English ones, and those that the script tells.
const ALWAYS: u8 = 1 | 1 << LATIN.len();

/// Whether a folded word is an English stop word.
pub(crate) fn is_english_stop_word(word: &str) -> bool {
    STOP_WORDS.get(word).is_some_and(|bits| bits & 1 == 1)
}

/// Whether a folded word is dropped from every text.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.get(word).is_some_and(|bits| bits & ALWAYS != 0)
}

impl Language {
    /// The language with the most function words among these folded words; `None` where they are too few, or where two
    /// languages have as many.
    pub(super) fn of<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut counts = [0_u32; LATIN.len()];
        for bits in words.filter_map(|word| STOP_WORDS.get(word)) {
            for (place, count) in counts.iter_mut().enumerate() {
                *count += u32::from(bits >> place & 1);
            }
        }
        let most = counts.into_iter().max().filter(|most| *most >= ENOUGH)?;
        let mut best = counts.iter().enumerate().filter(|(_, count)| **count == most);
        match (best.next(), best.next()) {
            (Some((place, _)), None) => Some(Self(place)),
            _ => None,
        }
    }

    /// Whether a folded word is a function word of this language.
    pub(super) fn has_stop_word(self, word: &str) -> bool {
        STOP_WORDS.get(word).is_some_and(|bits| bits >> self.0 & 1 == 1)
    }
}

/// The stem of one folded word by its script alone: English for ASCII letters, Russian, Greek; other words are left
/// whole.
#[must_use]
pub fn stem(word: &str) -> Cow<'_, str> {
    let of = |range: std::ops::RangeInclusive<char>| word.chars().all(|c| range.contains(&c));
    let algorithm = if word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'\'') {
        Algorithm::English
    } else if of('\u{400}'..='\u{45F}') {
        Algorithm::Russian
    } else if of('\u{370}'..='\u{3FF}') {
        Algorithm::Greek
    } else {
        return Cow::Borrowed(word);
    };
    Stemmer::create(algorithm).stem(word)
}

/// The one stem of a folded word in a document. Accents are dropped, because people leave them out; so are the dots of
/// the Russian ё and the vowel signs of Arabic.
pub(super) fn document_stem(word: &str, language: Option<Language>) -> String {
    let stem = stem_in(bare_word(word), language);
    // The Arabic stemmer leaves nothing of a lone vowel sign.
    if stem.is_empty() { word.to_owned() } else { stem }
}

fn stem_in(word: &str, language: Option<Language>) -> String {
    if is_arabic(word) {
        return Stemmer::create(Algorithm::Arabic).stem(word).into_owned();
    }
    if is_latin(word) {
        return match language.and_then(|Language(place)| LATIN.get(place)) {
            Some((_, algorithm)) if *algorithm != Algorithm::English => {
                plain(&Stemmer::create(*algorithm).stem(word)).into_owned()
            }
            _ => plain(&stem(word)).into_owned(),
        };
    }
    stem(&word.replace('ё', "е")).into_owned()
}

/// Every stem under which a document may hold a folded word: what [`document_stem`] gives in any language, and what
/// [`stem`] gives, by which documents were indexed before there were languages.
pub(super) fn query_stems(word: &str) -> Vec<String> {
    let mut stems = vec![document_stem(word, None), stem(word).into_owned()];
    if is_latin(word) {
        stems.extend((1..LATIN.len()).map(|place| document_stem(word, Some(Language(place)))));
    }
    stems
}

fn is_latin(word: &str) -> bool {
    word.chars().all(|c| {
        c == '\'' || (c.is_alphabetic() && (u32::from(c) < 0x250 || matches!(c, '\u{1E00}'..='\u{1EFF}')))
    })
}

fn is_arabic(word: &str) -> bool {
    word.chars().all(|c| matches!(c, '\u{620}'..='\u{65F}' | '\u{670}'..='\u{6D3}'))
}

/// Latin letters without their marks.
fn plain(word: &str) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    let letters = word.nfd().filter(|c| !is_combining_mark(*c));
    Cow::Owned(letters.fold(String::with_capacity(word.len()), |mut plain, letter| {
        match letter {
            'ø' => plain.push('o'),
            'ł' => plain.push('l'),
            'đ' | 'ð' => plain.push('d'),
            'æ' => plain.push_str("ae"),
            'œ' => plain.push_str("oe"),
            letter => plain.push(letter),
        }
        plain
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(text: &str) -> Option<&'static str> {
        let found = Language::of(text.to_lowercase().split_whitespace());
        found.map(|Language(place)| LATIN[place].0)
    }

    #[test]
    fn function_words_tell_the_language_and_too_few_tell_nothing() {
        for (text, expected) in [
            ("the kettle is in the kitchen", Some("en")),
            ("ich habe einen hund und eine katze", Some("de")),
            ("je suis dans la cuisine avec les enfants", Some("fr")),
            ("los libros están en la mesa de mi hermana", Some("es")),
            ("sono andato al mare con gli amici", Some("it")),
            ("os livros estão na mesa da minha irmã", Some("pt")),
            ("ik heb een hond en hij heet max", Some("nl")),
            ("grüße an mutter", None),
            ("die hard", None),
            ("rust tokio axum", None),
            ("", None),
        ] {
            assert_eq!(language(text), expected, "{text}");
        }
    }

    #[test]
    fn a_query_asks_for_the_stem_of_every_language() {
        for word in ["häuser", "maisons", "canción", "città", "universities", "ёлка", "القطط", "καφέδες"]
        {
            let asked = query_stems(word);
            for language in (0..LATIN.len()).map(|place| Some(Language(place))).chain([None]) {
                assert!(asked.contains(&document_stem(word, language)), "{word} {language:?} {asked:?}");
            }
            assert!(asked.contains(&stem(word).into_owned()), "{word}");
        }
    }

    #[test]
    fn accents_may_be_left_out() {
        for (word, typed) in
            [("café", "cafe"), ("müller", "muller"), ("canción", "cancion"), ("smørrebrød", "smorrebrod")]
        {
            assert!(query_stems(typed).contains(&document_stem(word, None)), "{word}");
        }
        assert_eq!(document_stem("ёлка", None), document_stem("елка", None));
    }
}
