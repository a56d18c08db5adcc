//! What memser knows about text: one normal form, one analyser, one way to split sentences.
//!
//! A leaf module: the engine and the providers both read text through it, so that the words a memory is indexed
//! by, the features it is embedded by and the words a query asks for are always the same.
//!
//! [`normalise`] answers "is this the same text again?" and keeps everything that carries meaning; [`analyse`]
//! answers "which words is it found by?" and may throw meaning away.

mod analyse;
mod language;
pub(crate) mod segment;
mod sentence;

pub(crate) use analyse::term_sequence;
pub use analyse::{Analysis, MAX_QUERY_WORDS, MAX_TERM_BYTES, analyse, query_words};
pub(crate) use language::is_english_stop_word;
pub use language::stem;
pub use sentence::sentences;

use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

/// The first digits (zeros) of the decimal scripts in use; the nine code points after each are its other digits.
const ZEROS: [u32; 22] = [
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6,
    0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x17E0, 0x1810, 0x19D0, 0xA8D0, 0xABF0,
];

/// Gives one string for all trivial repeats of a text.
///
/// Case, Unicode form, white space, invisible characters, the style of quotes and dashes, the script of digits
/// and sentence punctuation make no difference. What carries meaning stays: question marks, signs, decimal
/// points, and all punctuation inside or before a word (`-5`, `1.2.3`, `a@b.c`, `./x`, `C++`, `C#`).
/// Idempotent.
#[must_use]
pub fn normalise(text: &str) -> String {
    let folded = fold(&clean(text));
    let mut out = String::with_capacity(folded.len());
    for chunk in folded.split_whitespace() {
        let body = chunk.trim_end_matches(is_sentence_punctuation);
        let asks = chunk[body.len()..].contains('?');
        // French sets a space before `!`, `?`, `:` and `;`. A chunk of full stops alone is a path and stays.
        let detached = body.is_empty() && !chunk.contains('.');
        if detached && !out.is_empty() {
            if asks && !out.ends_with('?') {
                out.push('?');
            }
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(if body.is_empty() { chunk } else { body });
        if asks && !body.is_empty() {
            out.push('?');
        }
    }
    unquoted(&out).to_owned()
}

/// SHA-256 of the [normal form](normalise): equal for trivial repeats, different for everything else.
#[must_use]
pub fn content_hash(text: &str) -> [u8; 32] {
    Sha256::digest(normalise(text).as_bytes()).into()
}

/// NFKC without invisible and control characters, with one style of quotes and dashes and with ASCII digits;
/// case and white space are kept. NFKC would glue superscripts and fractions to the number before them (`10²`
/// to `102`), so these are set apart first.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.chars().filter(|c| !is_invisible(*c)) {
        if is_superscript(c) && !is_superscript(last) && !last.is_whitespace() {
            out.push('^');
        } else if is_fraction(c) && last.is_numeric() {
            out.push(' ');
        }
        out.push(plain(c));
        last = c;
    }
    // Before, because NFKC takes accents and primes apart; after, because it makes new dashes.
    out.nfkc().map(plain).collect()
}

/// The plainest character of the same function.
fn plain(c: char) -> char {
    match c {
        '\u{2018}'..='\u{201B}' | '`' | '\u{B4}' | '\u{2032}' => '\'',
        '\u{201C}'..='\u{201F}'
        | '\u{2033}'
        | '\u{301D}'..='\u{301F}'
        | '«'
        | '»'
        | '「'
        | '」'
        | '『'
        | '』' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '。' => '.',
        '、' => ',',
        c => ascii_digit(c).unwrap_or(c),
    }
}

/// Case folding: lower case, with the two letters whose upper case does not lead back to them.
pub(crate) fn fold(text: &str) -> String {
    let lower = text.to_lowercase().replace('ς', "σ").replace('ß', "ss");
    lower.nfkc().collect()
}

/// A folded word without what only grammar hung on it: `caroline's`, `l'eau`, `qu'elle`.
pub(crate) fn bare_word(word: &str) -> &str {
    let word = word.strip_suffix("'s").unwrap_or(word);
    match word.split_once('\'') {
        Some(("l" | "d" | "j" | "n" | "m" | "t" | "s" | "c" | "qu", rest)) if rest.len() > 1 => rest,
        _ => word,
    }
}

/// The ASCII digit of the same value, for a decimal digit of another script.
fn ascii_digit(c: char) -> Option<char> {
    let code = u32::from(c);
    let zero = ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&code))?;
    char::from_digit(code - zero, 10)
}

fn is_superscript(c: char) -> bool {
    matches!(c, '²' | '³' | '¹' | '\u{2070}'..='\u{207E}')
}

fn is_fraction(c: char) -> bool {
    matches!(c, '¼' | '½' | '¾' | '\u{2150}'..='\u{215E}')
}

/// Characters that are never seen: control and format characters, fillers, variation selectors. Tag characters
/// are not among them, because the flags of England and Scotland differ by nothing else.
fn is_invisible(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{180B}'..='\u{180E}'
            | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
            | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}')
}

fn is_sentence_punctuation(c: char) -> bool {
    matches!(c, '.' | ',' | '!' | '?' | ';' | ':')
}

/// Strips quotes that enclose the whole text and nothing but it.
fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
            && !inner.contains(quote)
            && inner.starts_with(char::is_alphanumeric)
            && inner.ends_with(char::is_alphanumeric)
        {
            return inner;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trivial_repeats_share_a_normal_form() {
        let same = [
            ("I like tea.", "  i LIKE\ttea!! "),
            ("\u{201C}I like tea.\u{201D}", "\"I like tea.\""),
            ("\"I like tea\"", "I like tea"),
            ("It\u{2019}s caf\u{E9} time\u{2026}", "it's cafe\u{301} time"),
            ("zero\u{200B}width\u{FEFF}", "ZeroWidth"),
            ("Bonjour !", "bonjour"),
            ("Straße", "STRASSE"),
            ("ΟΔΟΣ", "οδος"),
            ("port ８０８０", "port 8080"),
            ("٢٥ بيت", "25 بيت"),
            ("Hello, world. Bye", "hello world bye"),
            ("minus \u{2212}5", "minus -5"),
            ("Really?!", "really?"),
            ("我喜欢茶。", "我喜欢茶"),
        ];
        for (a, b) in same {
            assert_eq!(normalise(a), normalise(b), "{a:?} and {b:?}");
            assert_eq!(content_hash(a), content_hash(b));
        }
    }

    #[test]
    fn meaning_survives() {
        let different = [
            ("-5 degrees", "5 degrees"),
            ("version 1.2", "version 12"),
            ("I write C", "I write C++"),
            ("I write C#", "I write C++"),
            ("cd ..", "cd ."),
            ("You like tea?", "You like tea."),
            ("a@b.c", "ab.c"),
            ("/etc/passwd", "etc passwd"),
            ("10²", "102"),
            ("5½ cups", "51/2 cups"),
            (".NET", "NET"),
        ];
        for (a, b) in different {
            assert_ne!(normalise(a), normalise(b), "{a:?} and {b:?}");
        }
    }

    proptest! {
        #[test]
        fn normalise_is_idempotent(text in "\\PC{0,40}") {
            let once = normalise(&text);
            prop_assert_eq!(normalise(&once), once);
        }

        #[test]
        fn normalise_ignores_form_case_and_space(words in prop::collection::vec("[a-zäöüéñ]{1,8}", 1..8)) {
            let text = words.join(" ");
            let other: String = words.join(" \n\t").to_uppercase().nfd().collect();
            prop_assert_eq!(normalise(&text), normalise(&other));
        }
    }
}
