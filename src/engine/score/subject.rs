//! Whom or what a memory is about, as far as its beginning tells.

use crate::text;

/// A label is at most this many words long: what stands before a colon further on is a sentence.
const LABEL_WORDS: usize = 3;

/// Whether a memory begins with a word that the query asks for.
///
/// Its beginning is a label, as in a chat's `Anna: ...`, or otherwise its first word, as in `Anna lives in Rome`. What
/// stands in brackets before that, such as a date, is skipped.
#[must_use]
pub fn is_about(content: &str, words: &[Vec<String>]) -> bool {
    let terms = text::analyse(opening(content)).terms;
    terms.iter().any(|(term, _)| words.iter().any(|spellings| spellings.contains(term)))
}

fn opening(content: &str) -> &str {
    let content = content.trim_start();
    let body = match content.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, body)) => body.trim_start(),
        None => content,
    };
    let label = body.split_once([':', '：', '\n']).map(|(label, _)| label);
    match label.filter(|label| label.split_whitespace().count() <= LABEL_WORDS) {
        Some(label) => label,
        None => body.split_whitespace().next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_or_the_first_word_tells_whom_it_is_about() {
        let about = |query: &str, content: &str| is_about(content, &text::query_words(query));
        assert!(about("What does Anna like?", "Anna: I like tea"));
        assert!(about("What does Anna like?", "[8 May, 2023 at 13:56] Anna Maria: I like tea"));
        assert!(about("anna's tea", "Anna likes tea"));
        assert!(about("安娜", "安娜：我喜欢茶"));
        assert!(!about("What does Anna like?", "Ben: Anna likes tea"));
        assert!(!about("What does Anna like?", "My friend whom I know from school said: Anna"));
        assert!(!about("What does Anna like?", " [] "));
    }
}
