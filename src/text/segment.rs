//! From text to words: Unicode word segmentation, identifiers, and scripts that are written without spaces.

use unicode_segmentation::UnicodeSegmentation;

/// One thing a text can be found by, in its original case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    /// A word of a natural language: stop words and stemming apply.
    Word(&'a str),
    /// A part of a word (`Server` of `memServer`): as a word, but single characters say nothing.
    Part(&'a str),
    /// An identifier, path, version, address or date as a whole: taken literally.
    Whole(&'a str),
    /// Two characters of a script without spaces, or the one that stands alone.
    Gram(&'a str),
    /// A Han or Hangul sign among others, which may be a word of its own.
    Sign(&'a str),
}

/// The segments of a [cleaned](super::clean) text in reading order.
pub(super) fn segments(text: &str) -> Vec<Segment<'_>> {
    let mut out = Vec::with_capacity(text.len() / 4);
    for chunk in text.split_whitespace() {
        let chunk = trim(chunk);
        let words: Vec<&str> = chunk.unicode_words().collect();
        let is_dense = chunk.contains(is_unspaced);
        if !is_dense && (words.len() > 1 || words.first().is_some_and(|word| word.len() < chunk.len())) {
            out.push(Segment::Whole(chunk));
        }
        if is_dense {
            dense(chunk, &mut out);
        } else {
            for word in words {
                spaced(word, &mut out);
            }
        }
    }
    out
}

/// Drops the punctuation around a chunk, but keeps what belongs to a name (`C++`, `C#`).
fn trim(chunk: &str) -> &str {
    let chunk = chunk.trim_start_matches(|c: char| !c.is_alphanumeric());
    let body = chunk.trim_end_matches(|c: char| !c.is_alphanumeric());
    let marks = chunk[body.len()..].find(|c| !matches!(c, '+' | '#')).unwrap_or(chunk.len() - body.len());
    let is_name = !body.is_empty() && body.chars().all(char::is_alphabetic);
    if is_name { &chunk[..body.len() + marks] } else { body }
}

/// A word of a spaced script and its parts: `snake_case`, `camelCase`, `port8080`, `node.js`.
fn spaced<'a>(word: &'a str, out: &mut Vec<Segment<'a>>) {
    out.push(Segment::Word(word));
    let is_number = word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(char::is_alphabetic);
    if is_number {
        return;
    }
    for piece in word.split(['_', '.', ':']) {
        let mut start = 0;
        let mut previous: Option<char> = None;
        let mut chars = piece.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            if previous.is_some_and(|previous| is_boundary(previous, c, next)) {
                out.push(Segment::Part(&piece[start..at]));
                start = at;
            }
            previous = Some(c);
        }
        if start > 0 || piece.len() < word.len() {
            out.push(Segment::Part(&piece[start..]));
        }
    }
}

/// Whether a part starts at `c`: `memServer`, `HTTPServer` before `Server`, `port8080`.
fn is_boundary(previous: char, c: char, next: Option<char>) -> bool {
    (previous.is_lowercase() && c.is_uppercase())
        || (previous.is_uppercase() && c.is_uppercase() && next.is_some_and(char::is_lowercase))
        || (previous.is_numeric() != c.is_numeric() && (previous.is_alphabetic() || c.is_alphabetic()))
}

/// A chunk that holds an unspaced script: that script as bigrams, the rest as words.
fn dense<'a>(chunk: &'a str, out: &mut Vec<Segment<'a>>) {
    let mut rest = chunk;
    while let Some(first) = rest.chars().next() {
        let unspaced = is_unspaced(first);
        let end = rest.find(|c| is_unspaced(c) != unspaced).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(end);
        if unspaced {
            bigrams(run, out);
        } else {
            run.unicode_words().for_each(|word| spaced(word, out));
        }
        rest = tail;
    }
}

fn bigrams<'a>(run: &'a str, out: &mut Vec<Segment<'a>>) {
    let bounds: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    if let [start, end] = bounds.as_slice() {
        out.push(Segment::Gram(&run[*start..*end]));
        return;
    }
    out.extend(bounds.windows(3).map(|window| Segment::Gram(&run[window[0]..window[2]])));
    let signs = bounds.windows(2).map(|window| &run[window[0]..window[1]]);
    out.extend(signs.filter(|sign| sign.starts_with(is_sign)).map(Segment::Sign));
}

/// Han and Hangul, of which one character can be a word.
fn is_sign(c: char) -> bool {
    matches!(u32::from(c), 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// Scripts in which white space does not delimit words: Thai, Lao, Myanmar, Khmer, Kana, Han; and Hangul, whose
/// words carry their particles.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E01..=0x0EFF | 0x1000..=0x109F | 0x1100..=0x11FF | 0x1780..=0x17FF
        | 0x3005..=0x3007 | 0x3041..=0x30FF | 0x3131..=0x318E | 0x31F0..=0x31FF
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<&str> {
        segments(text)
            .into_iter()
            .map(|segment| match segment {
                Segment::Word(s)
                | Segment::Part(s)
                | Segment::Whole(s)
                | Segment::Gram(s)
                | Segment::Sign(s) => s,
            })
            .collect()
    }

    #[test]
    fn identifiers_are_whole_and_split() {
        assert_eq!(all("memory_term,"), ["memory_term", "memory", "term"]);
        assert_eq!(all("HTTPServer"), ["HTTPServer", "HTTP", "Server"]);
        assert_eq!(all("(src/main.rs)"), ["src/main.rs", "src", "main.rs", "main", "rs"]);
        assert_eq!(all("1.2.3"), ["1.2.3"]);
        assert_eq!(all("C++."), ["C++", "C"]);
        assert_eq!(all("a@b.org"), ["a@b.org", "a", "b.org", "b", "org"]);
        assert_eq!(all("8 May, 2023"), ["8", "May", "2023"]);
    }

    #[test]
    fn unspaced_scripts_are_bigrams() {
        assert_eq!(all("我喜欢Rust语言"), ["我喜", "喜欢", "我", "喜", "欢", "Rust", "语言", "语", "言"]);
        assert_eq!(all("茶"), ["茶"]);
        assert_eq!(all("한국어를"), ["한국", "국어", "어를", "한", "국", "어", "를"]);
    }
}
