//! Vectors for texts, from whichever embedder is configured.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use moka::future::Cache;
use tracing::{Instrument, Span};
use unicode_normalization::UnicodeNormalization;

use super::cache::{Key, Vectors, key};
use super::hash;
use super::local::Local;
use super::openai::OpenAi;
use super::span;
use crate::error::Error;
use crate::metrics::{Asked, Metrics};

/// A text of memser's own, which every embedder that works takes.
pub(in crate::provider) const HARMLESS: &str = "ready?";
/// How often a text may fail alone, while another succeeds right after it, before it counts as refused.
const STRIKES_MAX: u32 = 3;
/// The texts of which failures are counted, and for how long after the last one. A refused text is then tried again.
const STRIKES_TEXTS: u64 = 10_000;
const STRIKES_KEPT: Duration = Duration::from_hours(24);

/// The embedder. Vectors of one embedder have one length, and are never compared with another's.
#[derive(Clone)]
pub struct Embedder {
    provider: Provider,
    /// None for an embedder that is faster than a hash of the text.
    known: Option<Vectors>,
    /// How often a text failed alone; in this process, by the text's hash.
    strikes: Cache<Key, u32>,
    metrics: Metrics,
}

#[derive(Clone, Debug)]
enum Provider {
    OpenAi(Arc<OpenAi>),
    Local(Local),
    Hash { dimensions: usize },
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// A call, for a while: what fails is tried again in that time.
    Call,
    /// Nobody, and a sweep comes again.
    Sweep,
}

/// From which cosine on two texts are looked at more closely. They belong to the embedder: each spreads its vectors in
/// its own way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// May say the same.
    pub duplicate: f32,
    /// May speak about the same.
    pub conflict: f32,
}

/// What suits an embedder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// When to look at a pair more closely.
    pub thresholds: Thresholds,
    /// How much likeness of meaning counts in recall.
    pub weight_vector: f32,
    /// How much shared words count in recall.
    pub weight_lexical: f32,
    /// How alike memories are that tell of one thing.
    pub cluster_similarity: f32,
}

impl std::fmt::Debug for Embedder {
    /// Without what it remembers, which comes from texts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Embedder {
    /// An OpenAI-compatible endpoint; up to `cache_bytes` of its vectors are remembered.
    #[must_use]
    pub fn openai(openai: OpenAi, cache_bytes: u64) -> Self {
        Self::new(Provider::OpenAi(Arc::new(openai)), cache_bytes)
    }

    /// A sentence transformer in this process; up to `cache_bytes` of its vectors are remembered.
    #[must_use]
    pub fn local(local: Local, cache_bytes: u64) -> Self {
        Self::new(Provider::Local(local), cache_bytes)
    }

    /// Signed feature hashing: no model, no network, the same vector everywhere. Likeness of words, not of meaning.
    #[must_use]
    pub fn hash(dimensions: usize) -> Self {
        Self::new(Provider::Hash { dimensions }, 0)
    }

    fn new(provider: Provider, cache_bytes: u64) -> Self {
        let strikes = Cache::builder().max_capacity(STRIKES_TEXTS).time_to_live(STRIKES_KEPT).build();
        let known = (cache_bytes > 0).then(|| Vectors::new(cache_bytes));
        Self { provider, known, strikes, metrics: Metrics::default() }
    }

    /// Counts its questions there.
    #[must_use]
    pub fn counted_in(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The provider's name, as `embedding_spaces` keeps it.
    #[must_use]
    pub const fn provider(&self) -> &'static str {
        match self.provider {
            Provider::OpenAi(_) => "openai",
            Provider::Local(_) => "local",
            Provider::Hash { .. } => "hash",
        }
    }

    /// The model's name, as `embedding_spaces` keeps it.
    #[must_use]
    pub fn model(&self) -> &str {
        match &self.provider {
            Provider::OpenAi(openai) => openai.model(),
            Provider::Local(local) => local.model(),
            Provider::Hash { .. } => hash::VERSION,
        }
    }

    /// The length of every vector.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        match &self.provider {
            Provider::OpenAi(openai) => openai.dimensions(),
            Provider::Local(local) => local.dimensions(),
            Provider::Hash { dimensions } => *dimensions,
        }
    }

    /// What holds where the operator sets nothing. Those of `hash` were measured on labelled pairs and on LoCoMo
    /// (docs/benchmarks.md); those of `local` were chosen with the Python original of all-MiniLM-L6-v2 and measured
    /// through memser on the same; those of `openai` are the usual ones for text-embedding-3-small.
    #[must_use]
    pub const fn defaults(&self) -> Defaults {
        match self.provider {
            Provider::OpenAi(_) => Defaults {
                thresholds: Thresholds { duplicate: 0.95, conflict: 0.85 },
                weight_vector: 0.5,
                weight_lexical: 0.5,
                cluster_similarity: 0.75,
            },
            Provider::Local(_) => Defaults {
                thresholds: Thresholds { duplicate: 0.88, conflict: 0.7 },
                weight_vector: 0.4,
                weight_lexical: 0.6,
                cluster_similarity: 0.75,
            },
            Provider::Hash { .. } => Defaults {
                thresholds: Thresholds { duplicate: 0.97, conflict: 0.4 },
                weight_vector: 0.2,
                weight_lexical: 0.8,
                cluster_similarity: 0.6,
            },
        }
    }

    /// Whether a vector costs so little that looking for a known one costs more.
    #[must_use]
    pub const fn is_cheap(&self) -> bool {
        matches!(self.provider, Provider::Hash { .. })
    }

    /// Whether its last answer, if there was any, says that it works.
    #[must_use]
    pub fn is_up(&self) -> bool {
        match &self.provider {
            Provider::OpenAi(openai) => openai.is_up(),
            Provider::Local(local) => local.is_up(),
            Provider::Hash { .. } => true,
        }
    }

    /// The vector of a text, of length 1, for a call that waits for it.
    ///
    /// # Errors
    /// Whatever keeps the embedder from giving a sound vector: [`EmbedError::Refused`] when the text does.
    pub async fn embed(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let text = as_sent(text);
        let compute = async {
            match self.ask(&[text.as_str()], Effort::Call).await {
                Ok(mut vectors) => vectors.pop().ok_or(EmbedError::Unusable("it has no vector")),
                // A text that alone fails must not look like an embedder that is down, nor one that is set up wrongly and
                // refuses everything like a text that does not fit.
                Err(error) if error.may_be_the_text() => {
                    match self.check().await {
                        Ok(()) if error.is_refusal() => Err(EmbedError::Refused),
                        // It was left alone because of this error.
                        Ok(()) | Err(EmbedError::LeftAlone) => Err(error),
                        Err(fault) => Err(fault),
                    }
                }
                Err(error) => Err(error),
            }
        };
        match &self.known {
            Some(known) => known.get_or(key(&text), compute).await,
            None => compute.await,
        }
    }

    /// The vectors of a sweep's texts, in their order, each of length 1.
    ///
    /// A text that fails keeps no other from its vector: the texts are halved until it is alone. Whether the fault is the
    /// text's shows another text, which is sent right after it. Then the answer is [`EmbedError::Refused`], at once where
    /// the endpoint says that it wants no such text, else the third time; and for a day it is not asked for again.
    pub async fn embed_each(&self, texts: &[String]) -> Vec<Result<Vec<f32>, EmbedError>> {
        let sent: Vec<String> = texts.iter().map(|text| as_sent(text)).collect();
        let keys: Vec<Key> = sent.iter().map(|text| key(text)).collect();
        let mut answers: HashMap<Key, Result<Vec<f32>, EmbedError>> = HashMap::new();
        let mut wanted: Vec<(Key, &str)> = Vec::new();
        for (key, text) in keys.iter().zip(&sent) {
            if answers.contains_key(key) || wanted.iter().any(|(known, _)| known == key) {
                continue;
            }
            if let Some(vector) = self.known_vector(key).await {
                answers.insert(*key, Ok(vector));
            } else if self.strikes.get(key).await >= Some(STRIKES_MAX) {
                answers.insert(*key, Err(EmbedError::Refused));
            } else {
                wanted.push((*key, text));
            }
        }
        let stopped = self.embed_wanted(&wanted, &mut answers).await.err();
        let missing = stopped.unwrap_or(EmbedError::Unusable("it has no vector"));
        keys.iter().map(|key| answers.get(key).cloned().unwrap_or_else(|| Err(missing.clone()))).collect()
    }

    /// Adds to the answers until it is done, or until the embedder fails whatever the text.
    async fn embed_wanted(
        &self,
        wanted: &[(Key, &str)],
        answers: &mut HashMap<Key, Result<Vec<f32>, EmbedError>>,
    ) -> Result<(), EmbedError> {
        let mut todo = vec![wanted];
        while let Some(part) = todo.pop() {
            let texts: Vec<&str> = part.iter().map(|(_, text)| *text).collect();
            match self.ask(&texts, Effort::Sweep).await {
                Ok(vectors) => {
                    for ((key, _), vector) in part.iter().zip(vectors) {
                        if let Some(known) = &self.known {
                            known.keep(*key, &vector).await;
                        }
                        answers.insert(*key, Ok(vector));
                    }
                }
                Err(error) if error.may_be_the_text() => {
                    self.check().await?;
                    if let [(key, _)] = part {
                        answers.insert(*key, Err(self.blame(*key, error).await));
                    } else {
                        let (first, second) = part.split_at(part.len() / 2);
                        todo.extend([second, first]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What to make of a text that failed alone.
    async fn blame(&self, key: Key, error: EmbedError) -> EmbedError {
        let before = self.strikes.get(&key).await.unwrap_or(0);
        let strikes = if error.is_refusal() { STRIKES_MAX } else { before + 1 };
        self.strikes.insert(key, strikes).await;
        if strikes < STRIKES_MAX {
            return error;
        }
        tracing::warn!(error = %error, "the embedder refuses a memory's text: it is found by its words alone");
        EmbedError::Refused
    }

    async fn known_vector(&self, key: &Key) -> Option<Vec<f32>> {
        self.known.as_ref()?.get(key).await
    }

    async fn ask(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        let started = Instant::now();
        let span = if self.is_cheap() { Span::none() } else { span::of_question("embeddings", self.model()) };
        let answer = match &self.provider {
            Provider::OpenAi(openai) => openai.embed(texts, effort).instrument(span.clone()).await,
            Provider::Local(local) => local.embed(texts).instrument(span.clone()).await,
            Provider::Hash { dimensions } => {
                Ok(texts.iter().map(|text| hash::embed(text, *dimensions)).collect())
            }
        };
        span::ended(&span, answer.is_ok());
        self.metrics.asked(Asked::Embedder, answer.is_ok(), started.elapsed());
        answer
    }

    /// Whether it embeds a text that nothing can be said against.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn check(&self) -> Result<(), EmbedError> {
        match &self.provider {
            Provider::OpenAi(openai) => openai.check().await,
            Provider::Local(local) => local.embed(&[HARMLESS]).await.map(drop),
            Provider::Hash { .. } => Ok(()),
        }
    }
}

/// The text as the embedder gets it: white space around it and the choice between Unicode's equal spellings carry no
/// meaning, and must not keep a known vector from being found.
fn as_sent(text: &str) -> String {
    text.trim().nfc().collect()
}

/// The vector at length 1, or why it has no direction.
pub(super) fn unit(mut vector: Vec<f32>) -> Result<Vec<f32>, &'static str> {
    let squares: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
    if !squares.is_finite() {
        return Err("a vector has a number that is not finite");
    }
    if squares == 0.0 {
        return Err("a vector is all zeros");
    }
    let length = squares.sqrt();
    for x in &mut vector {
        #[expect(clippy::cast_possible_truncation, reason = "a quotient of at most 1")]
        {
            *x = (f64::from(*x) / length) as f32;
        }
    }
    Ok(vector)
}

/// Why there are no vectors. Never carries a text, a key or what the endpoint wrote: an endpoint may repeat both.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// No connection, or one that broke.
    #[error("the embedding endpoint cannot be reached")]
    Unreachable,
    /// No answer in time.
    #[error("the embedding endpoint did not answer in time")]
    Timeout,
    /// It failed a moment ago, and is not asked until a wait is over.
    #[error("the embedding endpoint failed a moment ago and is left alone")]
    LeftAlone,
    /// An answer that says no.
    #[error("the embedding endpoint answered {status}")]
    Status {
        /// The HTTP status.
        status: StatusCode,
        /// How long the endpoint asked to wait.
        retry_after: Option<Duration>,
    },
    /// An answer that is not what was asked for.
    #[error("the embedding endpoint's answer is unusable: {0}")]
    Unusable(&'static str),
    /// Vectors of another length than the model's.
    #[error("the embedding endpoint gave a vector of {actual} dimensions instead of {expected}")]
    Dimensions {
        /// The length that the model is known or configured to have.
        expected: usize,
        /// The length that came.
        actual: usize,
    },
    /// The embedder works, and does not take this text: asking again changes nothing.
    #[error("the embedder does not take this text")]
    Refused,
    /// The local model failed on a text, or gave a vector that is none.
    #[error("the local model cannot embed this text")]
    Model,
    /// The local model takes no more texts.
    #[error("the local model has stopped")]
    Stopped,
}

impl EmbedError {
    /// Whether the same call may succeed later without anyone changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable | Self::Timeout | Self::LeftAlone => true,
            Self::Status { status, .. } => {
                self.is_busy() || status.is_server_error() || *status == StatusCode::REQUEST_TIMEOUT
            }
            Self::Unusable(_) | Self::Dimensions { .. } | Self::Refused | Self::Model | Self::Stopped => {
                false
            }
        }
    }

    /// Whether the endpoint works and has no time.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Status { status: StatusCode::TOO_MANY_REQUESTS, .. })
    }

    /// Whether the endpoint says that it does not want what it was sent: too long, or not of the kind that it takes.
    pub(super) fn is_refusal(&self) -> bool {
        let statuses =
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        matches!(self, Self::Status { status, .. } if statuses.contains(status))
    }

    /// Whether another text may fare better.
    fn may_be_the_text(&self) -> bool {
        match self {
            Self::LeftAlone | Self::Stopped | Self::Refused => false,
            Self::Status { status, .. } => {
                let about_access = [StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND];
                let is_error = status.is_client_error() || status.is_server_error();
                is_error && !self.is_busy() && !about_access.contains(status)
            }
            // Some servers break off when they fail on a text.
            Self::Unreachable | Self::Timeout | Self::Unusable(_) | Self::Dimensions { .. } | Self::Model => {
                true
            }
        }
    }

    /// How long the endpoint asked to wait.
    pub(super) const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<EmbedError> for Error {
    fn from(error: EmbedError) -> Self {
        Self::Unavailable { part: "embedder", source: anyhow::Error::new(error) }
    }
}
