//! Keywords save time and nothing else: what is found does not depend on them.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use regex::RegexSet;

use super::super::Rules;
use super::ordinary::Writer;
use super::{bait, examples};

const TEXTS: usize = 400;

/// The rules, each of which looks at every text.
fn without_keywords() -> Rules {
    let rules = Rules::read().unwrap();
    let keywords = RegexSet::new(rules.each.iter().map(|_| "")).unwrap();
    Rules { keywords, ..rules }
}

/// The rules as they were before they had keywords: all patterns at once tell which of them match.
fn with_one_set() -> Rules {
    let rules = Rules::read().unwrap();
    let keywords = RegexSet::new(rules.each.iter().map(|rule| rule.pattern.as_str())).unwrap();
    Rules { keywords, ..rules }
}

/// Letters that Unicode folds into others: a pattern without case takes them for these.
fn disguised(text: &str) -> String {
    text.replace('k', "\u{212a}").replace('s', "\u{17f}").replace('о', "\u{1c82}")
}

#[test]
fn what_is_found_is_what_every_rule_by_itself_finds() {
    let (fast, slow) = (Rules::read().unwrap(), without_keywords());
    let mut random = StdRng::seed_from_u64(7);
    let examples: Vec<String> =
        examples().into_iter().map(|(_, marked)| marked.replace(['«', '»'], "")).collect();
    let mut writer = Writer::seeded(7);
    let mut texts: Vec<String> = Vec::new();
    for example in &examples {
        texts.extend([example.clone(), example.to_lowercase(), example.to_uppercase(), disguised(example)]);
    }
    for _ in 0..TEXTS {
        let mut text = String::new();
        for _ in 0..random.random_range(1..6) {
            let piece = match random.random_range(0..3) {
                0 => writer.sentence(),
                1 => examples.choose(&mut random).unwrap().clone(),
                _ => {
                    let whole = examples.choose(&mut random).unwrap();
                    let [from, to] = [0, 1].map(|_| random.random_range(0..=whole.len()));
                    let [from, to] = [from.min(to), from.max(to)].map(|at| whole.floor_char_boundary(at));
                    whole[from..to].to_owned()
                }
            };
            text += &piece;
            text += ["", " ", "\n", "密", "\"", ": "].choose(&mut random).unwrap();
        }
        texts.push(text);
    }
    let mut kinds = Vec::new();
    for text in &texts {
        let found = fast.redact(text);
        assert_eq!(found, slow.redact(text), "{text}");
        kinds.extend(found.1);
    }
    kinds.sort_unstable();
    kinds.dedup();
    let mut known: Vec<&str> = fast.each.iter().map(|rule| rule.kind.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    assert_eq!(kinds, known, "the texts hold every kind");
}

#[test]
#[ignore = "a measurement, for whoever changes a rule"]
fn how_long_texts_take() {
    let (fast, slow) = (Rules::read().unwrap(), with_one_set());
    let mut writer = Writer::seeded(7);
    let sentences: Vec<String> = std::iter::repeat_with(|| writer.sentence()).take(2_000).collect();
    // The best of some rounds: in the first the engine learns, and others use the machine as well.
    let time = |rules: &Rules, texts: &[String]| -> Duration {
        let rounds = (0..7).map(|_| {
            let begun = Instant::now();
            for text in texts {
                rules.redact(text);
            }
            begun.elapsed() / u32::try_from(texts.len()).unwrap()
        });
        rounds.min().unwrap()
    };
    let row = |what: &str, texts: &[String]| {
        let bytes = texts.iter().map(String::len).sum::<usize>() / texts.len();
        println!("{what}: {bytes} bytes, before {:?}, now {:?}", time(&slow, texts), time(&fast, texts));
    };
    row("a sentence", &sentences);
    for size in [16 << 10, 32 << 10, 64 << 10, 128 << 10] {
        let text = sentences.join("\n").repeat(2);
        row("sentences", &[text[..text.floor_char_boundary(size)].to_owned()]);
    }
    for size in [16 << 10, 32 << 10, 64 << 10, 128 << 10] {
        row("what almost matches", &[bait(size)]);
    }
}
