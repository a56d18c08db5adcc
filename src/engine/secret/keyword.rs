//! What a rule's pattern cannot match without. Pure.

use anyhow::Context;
use regex_syntax::hir::{Class, ClassBytesRange, ClassUnicodeRange, Hir, HirKind};

/// How many characters one place of a keyword may be: a letter in either case, or the letter that tells the kinds of one
/// vendor's tokens apart. What may be more tells ordinary text from nothing.
const CHOICE_MAX: usize = 8;

/// The words of which every text that `pattern` matches holds one, as a pattern of their own: the longest that stand in it
/// on every way through it. They are read off the pattern, so that a rule cannot name a word that it can do without.
///
/// # Errors
/// When the pattern is wrong, or can match text without any certain word.
pub(super) fn keyword(pattern: &str) -> anyhow::Result<String> {
    let words = needed(&regex_syntax::parse(pattern)?).context("it matches text without any certain word")?;
    Ok(words.to_string())
}

fn needed(pattern: &Hir) -> Option<Hir> {
    if is_word(pattern) {
        return (length(pattern) > 0).then(|| pattern.clone());
    }
    match pattern.kind() {
        HirKind::Capture(group) => needed(&group.sub),
        HirKind::Repetition(again) if again.min > 0 => needed(&again.sub),
        HirKind::Alternation(ways) => ways.iter().map(needed).collect::<Option<_>>().map(Hir::alternation),
        HirKind::Concat(parts) => {
            let runs = parts.chunk_by(|before, after| is_word(before) && is_word(after));
            let words = runs.filter_map(|run| needed(&Hir::concat(run.to_vec())));
            words.max_by_key(length)
        }
        _ => None,
    }
}

/// Whether it is one of few texts.
fn is_word(pattern: &Hir) -> bool {
    match pattern.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => true,
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().map(ClassUnicodeRange::len).sum::<usize>() <= CHOICE_MAX
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().map(ClassBytesRange::len).sum::<usize>() <= CHOICE_MAX
        }
        HirKind::Capture(group) => is_word(&group.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(is_word),
        HirKind::Repetition(_) => false,
    }
}

/// In bytes, of the shortest.
fn length(pattern: &Hir) -> usize {
    pattern.properties().minimum_len().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_word_that_no_match_can_do_without_counts() {
        for (pattern, words) in [
            (r"abc\d+", "abc"),
            (r"\d+(ab)?abcd*xy", "abc"),
            (r"(?:ab|cd)e[0-9]{4}", "(?:ab|cd)e"),
            (r"(?:abc|x*de)\d", "(?:abc|de)"),
            (r"[a-z]+(?:=|:=)\s", "(?:=|:=)"),
            (r"(?-u:\b)gl[abc]-", r"(?-u:\b)gl[a-c]\-"),
            (r"(?i:k)\d", "[Kk\u{212a}]"),
        ] {
            let [found, wanted] =
                [keyword(pattern).unwrap(), regex_syntax::parse(words).unwrap().to_string()];
            assert_eq!(found, wanted, "{pattern}");
        }
        for pattern in [r"\d+", "(?:abc|[a-z]+)", "(?:abc)?", "^$", "("] {
            assert!(keyword(pattern).is_err(), "{pattern}");
        }
    }
}
