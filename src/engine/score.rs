//! How recall ranks: values in, an order with its reasons out.
//!
//! The signals of one query are brought to 0..1 and weighed:
//! 1. *vector* and *lexical*: min-max over the candidates that have the signal, so that a cosine and a BM25 score
//!    can be added. Reciprocal rank fusion was measured to be worse here (`LoCoMo`: R@5 .535 against .599).
//! 2. *neighbour*: a share of the better fused score among the previous and next memory of the same source. In a
//!    conversation the answer often stands beside the words that were asked for.
//! 3. *subject*: whether the memory begins with a word of the query, as a chat's turn begins with its speaker.
//! 4. *recency*, *frequency* and *confidence*: small, because more of them costs recall of the past.
//!
//! The weighted sum is divided by the sum of all weights, so that a score lies in 0..=1 and 1 is a perfect hit.

mod bm25;
mod collapse;
mod subject;

use std::{cmp::Ordering, collections::HashMap};

pub use bm25::{Bm25, Posting, idf};
pub use collapse::collapse_near_identical;
pub use subject::is_about;
use uuid::Uuid;

/// At this many accesses, or more, a memory counts as fully frequent: `ln(1 + n)` is capped here so that one hot
/// memory cannot push its own frequency without bound.
const FREQUENT: f32 = 100.0;

/// How much each signal counts. Negative and non-finite weights count as 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Cosine to the query.
    pub vector: f32,
    /// BM25 of the query's terms.
    pub lexical: f32,
    /// Share of the best neighbour's fused score.
    pub neighbour: f32,
    /// Beginning with a word of the query.
    pub subject: f32,
    /// Age, with an exponential half-life.
    pub recency: f32,
    /// How often the memory was recalled.
    pub frequency: f32,
    /// How sure the memory is.
    pub confidence: f32,
}

impl Default for Weights {
    /// Measured on `LoCoMo`; the last three together stay at .1, beyond which recall of the past suffers.
    fn default() -> Self {
        Self {
            vector: 0.5,
            lexical: 0.5,
            neighbour: 0.5,
            subject: 0.2,
            recency: 0.04,
            frequency: 0.03,
            confidence: 0.03,
        }
    }
}

/// A memory that may answer the query, with what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The memory.
    pub id: Uuid,
    /// Cosine to the query; `None` when the vector arm did not see it.
    pub vector: Option<f32>,
    /// BM25 score; `None` when it holds none of the query's terms.
    pub lexical: Option<f32>,
    /// The memories before and after it in the same scope and source; of a fact, those of its originals.
    pub beside: Vec<Uuid>,
    /// Whether it [begins with a word of the query](is_about).
    pub is_about: bool,
    /// Days since it was made; negative counts as 0.
    pub age_days: f64,
    /// How often it was recalled.
    pub access_count: i64,
    /// 0..=1.
    pub confidence: f32,
}

/// The weighted contribution of each signal; they sum up to the score.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Why {
    /// From the cosine.
    pub vector: f32,
    /// From the words.
    pub lexical: f32,
    /// From the memory before or after it.
    pub neighbour: f32,
    /// From beginning with a word of the query.
    pub subject: f32,
    /// From its age.
    pub recency: f32,
    /// From how often it was recalled.
    pub frequency: f32,
    /// From its confidence.
    pub confidence: f32,
}

impl Why {
    fn sum(&self) -> f32 {
        self.vector
            + self.lexical
            + self.neighbour
            + self.subject
            + self.recency
            + self.frequency
            + self.confidence
    }
}

/// A ranked memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// The memory.
    pub id: Uuid,
    /// 0..=1.
    pub score: f32,
    /// What made the score.
    pub why: Why,
}

/// Ranks the candidates of one query, best first.
///
/// When an arm is missing for all candidates (the embedder is down, no word matches), the other takes its weight.
/// A candidate that neither arm saw is dropped unless a neighbour lends it a score. Ties go to the newer memory,
/// then to the smaller id, so the order never depends on the order of the input. NaN signals count as missing.
#[must_use]
pub fn rank(candidates: &[Candidate], weights: &Weights, half_life_days: f64) -> Vec<Scored> {
    let weights = weights.sane().for_arms(
        candidates.iter().any(|candidate| finite(candidate.vector).is_some()),
        candidates.iter().any(|candidate| finite(candidate.lexical).is_some()),
    );
    let total = weights.total();
    if total <= 0.0 {
        return Vec::new();
    }
    let vector = MinMax::of(candidates.iter().map(|candidate| candidate.vector));
    let lexical = MinMax::of(candidates.iter().map(|candidate| candidate.lexical));
    let own = |candidate: &Candidate| Why {
        vector: weights.vector * vector.scale(candidate.vector),
        lexical: weights.lexical * lexical.scale(candidate.lexical),
        ..Why::default()
    };
    // A neighbour lends its fused score as a share of the most it could have.
    let most = weights.vector + weights.lexical;
    let fused: HashMap<Uuid, f32> = candidates
        .iter()
        .map(|candidate| (candidate.id, if most > 0.0 { own(candidate).sum() / most } else { 0.0 }))
        .collect();
    let lent = |beside: &[Uuid]| beside.iter().filter_map(|id| fused.get(id)).copied().fold(0.0, f32::max);

    let mut ranked: Vec<(Scored, f64)> = candidates
        .iter()
        .filter_map(|candidate| {
            let neighbour = lent(&candidate.beside);
            let is_seen = finite(candidate.vector).or(finite(candidate.lexical)).is_some();
            if !is_seen && neighbour <= 0.0 {
                return None;
            }
            let why = Why {
                neighbour: weights.neighbour * neighbour,
                subject: if candidate.is_about { weights.subject } else { 0.0 },
                recency: weights.recency * recency(candidate.age_days, half_life_days),
                frequency: weights.frequency * frequency(candidate.access_count),
                confidence: weights.confidence * unit(candidate.confidence),
                ..own(candidate)
            };
            let why = why.divided_by(total);
            Some((Scored { id: candidate.id, score: why.sum().min(1.0), why }, candidate.age_days))
        })
        .collect();
    ranked.sort_by(best_first);
    ranked.into_iter().map(|(scored, _)| scored).collect()
}

fn best_first((a, a_age): &(Scored, f64), (b, b_age): &(Scored, f64)) -> Ordering {
    b.score.total_cmp(&a.score).then(a_age.total_cmp(b_age)).then(a.id.cmp(&b.id))
}

impl Weights {
    fn sane(self) -> Self {
        let sane = |weight: f32| if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        Self {
            vector: sane(self.vector),
            lexical: sane(self.lexical),
            neighbour: sane(self.neighbour),
            subject: sane(self.subject),
            recency: sane(self.recency),
            frequency: sane(self.frequency),
            confidence: sane(self.confidence),
        }
    }

    /// Gives the weight of an arm without any signal to the other one.
    fn for_arms(self, has_vector: bool, has_lexical: bool) -> Self {
        let both = self.vector + self.lexical;
        match (has_vector, has_lexical) {
            (true, false) => Self { vector: both, lexical: 0.0, ..self },
            (false, true) => Self { vector: 0.0, lexical: both, ..self },
            _ => self,
        }
    }

    fn total(&self) -> f32 {
        self.vector
            + self.lexical
            + self.neighbour
            + self.subject
            + self.recency
            + self.frequency
            + self.confidence
    }
}

impl Why {
    fn divided_by(self, total: f32) -> Self {
        Self {
            vector: self.vector / total,
            lexical: self.lexical / total,
            neighbour: self.neighbour / total,
            subject: self.subject / total,
            recency: self.recency / total,
            frequency: self.frequency / total,
            confidence: self.confidence / total,
        }
    }
}

/// The range of one signal over the candidates of one query.
struct MinMax {
    min: f32,
    max: f32,
}

impl MinMax {
    fn of(values: impl Iterator<Item = Option<f32>>) -> Self {
        let start = Self { min: f32::INFINITY, max: f32::NEG_INFINITY };
        values
            .filter_map(finite)
            .fold(start, |range, value| Self { min: range.min.min(value), max: range.max.max(value) })
    }

    /// The value within the range as 0..=1. Where all are equal there is nothing to tell apart: a positive value
    /// is then a full signal, any other none. Missing is 0.
    fn scale(&self, value: Option<f32>) -> f32 {
        let Some(value) = finite(value) else { return 0.0 };
        let range = self.max - self.min;
        if range > 0.0 { ((value - self.min) / range).clamp(0.0, 1.0) } else { f32::from(value > 0.0) }
    }
}

/// `0.5 ^ (age / half-life)`: 1 when new, .5 after one half-life. Without a positive half-life everything is new.
#[expect(clippy::cast_possible_truncation, reason = "a value in 0..=1")]
fn recency(age_days: f64, half_life_days: f64) -> f32 {
    if age_days.is_nan() {
        return 0.0;
    }
    if half_life_days > 0.0 { 0.5_f64.powf(age_days.max(0.0) / half_life_days) as f32 } else { 1.0 }
}

/// `ln(1 + n) / ln(1 + 100)`, at most 1.
#[expect(clippy::cast_precision_loss, reason = "a logarithm that is capped at 100")]
fn frequency(access_count: i64) -> f32 {
    ((access_count.max(0) as f32).ln_1p() / FREQUENT.ln_1p()).min(1.0)
}

fn unit(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

fn finite(value: Option<f32>) -> Option<f32> {
    value.filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests;
