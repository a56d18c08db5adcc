//! Embeddings without a model: signed feature hashing.
//!
//! Weinberger et al., *Feature Hashing for Large Scale Multitask Learning* (2009): each feature adds its weight,
//! with a sign, to one bucket; both come from a hash, so that collisions cancel out on average. Texts with common
//! words are near, paraphrases are not: a fallback that needs nothing and always answers. It is lexical only: a text is
//! its stems without stop words, their pairs, and their character n-grams.
//!
//! Vectors are stored, so the features, their weights and the hash (XXH3-64, seed 0, which is specified and the
//! same on all platforms) must not change without a new embedding space: [`VERSION`] names them.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::text::{normalise, term_sequence};

/// Names what [`embed`] computes; part of the embedding space's model name.
pub const VERSION: &str = "hash-v1";

/// A pair of adjacent terms counts this much of a single term.
const PAIR_WEIGHT: f64 = 0.5;

/// A character n-gram counts this much of a single term: it forgives spelling, but a word has many of them.
const GRAM_WEIGHT: f64 = 0.15;

/// Lengths of the character n-grams.
const GRAM_LENGTHS: std::ops::RangeInclusive<usize> = 3..=5;

/// The kinds of features, kept apart by the first byte that is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Term = b't' as isize,
    Pair = b'p' as isize,
    Gram = b'g' as isize,
    Raw = b'r' as isize,
}

/// The embedding of a text: L2-normalised, never all zeros (for `dimensions` > 0), the same on every platform.
///
/// Features are the terms of the analyser, pairs of adjacent terms, and the character 3- to 5-grams of each term,
/// with sublinear frequency `1 + ln tf`. A text without any is known by its normal form alone.
#[must_use]
pub fn embed(text: &str, dimensions: usize) -> Vec<f32> {
    let mut buckets = vec![0.0_f64; dimensions];
    if dimensions == 0 {
        return Vec::new();
    }
    // In the order of the map: floating-point sums depend on it.
    for ((kind, feature), count) in features(text) {
        add(&mut buckets, kind, &feature, weight(kind) * (1.0 + f64::from(count).ln()));
    }
    if norm(&buckets) < f64::EPSILON {
        buckets.fill(0.0);
        add(&mut buckets, Kind::Raw, &normalise(text), 1.0);
    }
    let norm = norm(&buckets);
    buckets.into_iter().map(|value| narrow(value / norm)).collect()
}

/// Each feature with its number of occurrences.
fn features(text: &str) -> BTreeMap<(Kind, String), u32> {
    let terms = term_sequence(text);
    let pairs = terms.windows(2).map(|pair| (Kind::Pair, pair.join(" ")));
    let grams = terms.iter().flat_map(|term| grams(term)).map(|gram| (Kind::Gram, gram));
    let singles = terms.iter().map(|term| (Kind::Term, term.clone()));
    let mut counts = BTreeMap::new();
    for feature in singles.chain(pairs).chain(grams) {
        *counts.entry(feature).or_default() += 1;
    }
    counts
}

/// The character n-grams of `<term>`, whose brackets tell beginnings and ends from middles.
fn grams(term: &str) -> Vec<String> {
    let letters: Vec<char> = std::iter::once('<').chain(term.chars()).chain(['>']).collect();
    GRAM_LENGTHS.flat_map(|n| letters.windows(n)).map(|gram| gram.iter().collect()).collect()
}

fn weight(kind: Kind) -> f64 {
    match kind {
        Kind::Term | Kind::Raw => 1.0,
        Kind::Pair => PAIR_WEIGHT,
        Kind::Gram => GRAM_WEIGHT,
    }
}

/// The top bit of the hash is the sign, the rest chooses the bucket.
fn add(buckets: &mut [f64], kind: Kind, feature: &str, weight: f64) {
    let mut bytes = Vec::with_capacity(1 + feature.len());
    bytes.push(kind as u8);
    bytes.extend_from_slice(feature.as_bytes());
    let hash = xxh3_64(&bytes);
    let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
    let bucket = (hash & (u64::MAX >> 1)) % buckets.len() as u64;
    if let Some(value) = usize::try_from(bucket).ok().and_then(|bucket| buckets.get_mut(bucket)) {
        *value += sign * weight;
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[expect(clippy::cast_possible_truncation, reason = "vectors are stored in single precision")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        embed(a, 1024).iter().zip(embed(b, 1024)).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn common_words_are_near_and_others_far() {
        assert!((cosine("I like tea", "i LIKE the tea!") - 1.0).abs() < 1e-5);
        assert!(cosine("Caroline adopted a dog", "Caroline adopts dogs") > 0.9);
        assert!(cosine("Caroline adopted a dog", "Karoline adopted a dog") > 0.5);
        assert!(cosine("Caroline adopted a dog", "The deadline is Monday").abs() < 0.15);
        assert!(cosine("我喜欢绿茶", "他喜欢绿茶") > 0.4);
    }

    /// The vectors are stored: a change here needs a new [`VERSION`].
    #[test]
    fn golden_values() {
        let vector = embed("The port is 8080, says memser.", 8);
        let golden = [
            0.850_847_2,
            0.196_349_35,
            -0.174_532_76,
            0.152_716_16,
            0.239_982_55,
            0.0,
            -0.065_449_79,
            -0.349_065_5,
        ];
        for (have, want) in vector.iter().zip::<[f32; 8]>(golden) {
            assert!((have - want).abs() < 1e-6, "{vector:?}");
        }
    }

    proptest! {
        #[test]
        fn always_a_unit_vector(text in "\\PC{0,60}", dimensions in 1_usize..600) {
            let vector = embed(&text, dimensions);
            prop_assert_eq!(vector.len(), dimensions);
            let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            prop_assert!((norm - 1.0).abs() < 1e-4);
            prop_assert_eq!(vector, embed(&text, dimensions));
        }
    }
}
