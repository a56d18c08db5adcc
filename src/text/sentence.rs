//! Sentences, by UAX #29 with the abbreviations that it knows nothing about.

use unicode_segmentation::UnicodeSegmentation;

/// Words whose full stop does not end a sentence.
const ABBREVIATIONS: [&str; 22] = [
    "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "no", "nr", "etc", "e.g", "i.e", "z.b",
    "approx", "ca", "inc", "ltd", "fig", "vol", "u.s",
];

/// The sentences of a text in order, verbatim and trimmed; a line break ends a sentence too.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    for (at, piece) in text.split_sentence_bound_indices() {
        let end = at + piece.len();
        if !piece.ends_with(['\n', '\r', '\u{2029}'])
            && ends_in_abbreviation(&text[start..end])
            && end < text.len()
        {
            continue;
        }
        out.extend(text[start..end].split(['\n', '\r', '\u{2028}', '\u{2029}']).map(str::trim));
        start = end;
    }
    out.retain(|sentence| !sentence.is_empty());
    out
}

/// Whether the text ends in `Dr.`, `e.g.` or an initial such as `J.`.
fn ends_in_abbreviation(text: &str) -> bool {
    let Some(rest) = text.trim_end().strip_suffix('.') else {
        return false;
    };
    let word = rest.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let mut letters = word.chars();
    let is_initial =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_none() && word != "I";
    is_initial || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn splits_where_sentences_end() {
        assert_eq!(
            sentences("I met Dr. Smith at 3.30 p.m. today. He is J. Smith! Is he?\nYes  "),
            ["I met Dr. Smith at 3.30 p.m. today.", "He is J. Smith!", "Is he?", "Yes"]
        );
        assert_eq!(sentences("我喜欢茶。你呢？"), ["我喜欢茶。", "你呢？"]);
        assert!(sentences(" \n ").is_empty());
        assert_eq!(sentences("Ends with e.g."), ["Ends with e.g."]);
    }

    proptest! {
        #[test]
        fn nothing_but_white_space_is_lost(text in "\\PC{0,60}") {
            let strip = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(strip(&sentences(&text).concat()), strip(&text));
        }
    }
}
