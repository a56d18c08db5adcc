//! Okapi BM25, for memories that are ranked in process; durable tiers compute the same formula in SQL.
//!
//! Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond* (2009), equations 3.3 and
//! 3.15, with the idf that cannot turn negative (as in Lucene):
//!
//! ```text
//! idf(t)      = ln(1 + (N - df + 0.5) / (df + 0.5))
//! score(d, q) = sum over t in q of  idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len / average_len))
//! ```

/// The free parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bm25 {
    /// How slowly repeats of a term saturate.
    pub k1: f32,
    /// How much long documents are discounted, 0..=1.
    pub b: f32,
}

impl Default for Bm25 {
    /// The values common to the literature and to search engines.
    fn default() -> Self {
        Self { k1: 1.2, b: 0.75 }
    }
}

/// One query term as it occurs in one document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Posting {
    /// How often the document holds the term.
    pub tf: u32,
    /// The term's weight, see [`idf`].
    pub idf: f32,
}

impl Bm25 {
    /// The score of one document for the query terms it holds; 0 without any. Lengths are counted in terms, as in
    /// [`crate::text::Analysis::tokens`].
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts within one text are far below 2^24")]
    pub fn score(&self, postings: impl IntoIterator<Item = Posting>, len: u32, average_len: f32) -> f32 {
        let relative = if average_len > 0.0 { len as f32 / average_len } else { 1.0 };
        let norm = self.k1 * (1.0 - self.b + self.b * relative);
        let one = |posting: Posting| {
            let tf = posting.tf as f32;
            if tf > 0.0 { posting.idf * tf * (self.k1 + 1.0) / (tf + norm) } else { 0.0 }
        };
        postings.into_iter().map(one).sum()
    }
}

/// The inverse document frequency of a term that `document_frequency` of `documents` hold. Always positive, also
/// when a late counter says that more documents hold it than there are.
#[must_use]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a logarithm of a ratio")]
pub fn idf(documents: u64, document_frequency: u64) -> f32 {
    let with = document_frequency as f64 + 0.5;
    let without = documents.saturating_sub(document_frequency) as f64 + 0.5;
    (without / with).ln_1p() as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_the_formula_worked_by_hand() {
        assert!((idf(10, 1) - (1.0_f32 + 9.5 / 1.5).ln()).abs() < 1e-6);
        // len = average: norm = k1, so tf 1 gives idf * 2.2 / 2.2.
        let bm25 = Bm25::default();
        assert!((bm25.score([Posting { tf: 1, idf: 2.0 }], 7, 7.0) - 2.0).abs() < 1e-6);
        assert!((bm25.score([Posting { tf: 3, idf: 2.0 }], 7, 7.0) - 2.0 * 6.6 / 4.2).abs() < 1e-5);
        assert!(bm25.score([], 7, 7.0).abs() < f32::EPSILON);
    }

    proptest! {
        #[test]
        fn more_occurrences_and_rarer_terms_never_score_less(tf in 1_u32..100, df in 1_u64..1000, len in 1_u32..500) {
            let bm25 = Bm25::default();
            let score = |tf, df| bm25.score([Posting { tf, idf: idf(1_000, df) }], len, 50.0);
            prop_assert!(score(tf + 1, df) >= score(tf, df));
            prop_assert!(score(tf, df) >= score(tf, df + 1));
            prop_assert!(score(tf, df) > 0.0 && score(tf, df).is_finite());
        }
    }
}
