//! Vectors for texts, from whichever embedder is configured.

use std::time::Duration;

use http::StatusCode;

use super::hash;
use super::local::Local;
use super::openai::OpenAi;
use crate::error::Error;

/// The embedder. Vectors of one embedder have one length, and are never compared with another's.
#[derive(Clone, Debug)]
pub enum Embedder {
    /// An OpenAI-compatible endpoint.
    OpenAi(OpenAi),
    /// A sentence transformer in this process.
    Local(Local),
    /// Signed feature hashing: no model, no network, the same vector everywhere.
    Hash {
        /// The vectors' length.
        dimensions: usize,
    },
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

impl Embedder {
    /// The provider's name, as `embedding_spaces` keeps it.
    #[must_use]
    pub fn provider(&self) -> &'static str {
        match self {
            Self::OpenAi(_) => "openai",
            Self::Local(_) => "local",
            Self::Hash { .. } => "hash",
        }
    }

    /// The model's name, as `embedding_spaces` keeps it.
    #[must_use]
    pub fn model(&self) -> &str {
        match self {
            Self::OpenAi(openai) => openai.model(),
            Self::Local(local) => local.model(),
            Self::Hash { .. } => "hash",
        }
    }

    /// The length of every vector.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        match self {
            Self::OpenAi(openai) => openai.dimensions(),
            Self::Local(local) => local.dimensions(),
            Self::Hash { dimensions } => *dimensions,
        }
    }

    /// What holds where the operator sets nothing. Those of `hash` were measured on labelled pairs and on LoCoMo
    /// (docs/benchmarks.md); those of `openai` are the usual ones for text-embedding-3-small. Those of `local` were
    /// measured with the Python original of all-MiniLM-L6-v2, not yet with memser.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        match self {
            Self::OpenAi(_) => Defaults {
                thresholds: Thresholds { duplicate: 0.95, conflict: 0.85 },
                weight_vector: 0.5,
                weight_lexical: 0.5,
                cluster_similarity: 0.75,
            },
            Self::Local(_) => Defaults {
                thresholds: Thresholds { duplicate: 0.92, conflict: 0.7 },
                weight_vector: 0.5,
                weight_lexical: 0.5,
                cluster_similarity: 0.75,
            },
            Self::Hash { .. } => Defaults {
                thresholds: Thresholds { duplicate: 0.97, conflict: 0.6 },
                weight_vector: 0.2,
                weight_lexical: 0.8,
                cluster_similarity: 0.6,
            },
        }
    }

    /// One vector of length 1 for each text, in the texts' order.
    ///
    /// # Errors
    /// Whatever keeps the embedder from giving a sound vector for every text; there are no partial answers.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        match self {
            Self::OpenAi(openai) => openai.embed(texts).await,
            Self::Local(local) => local.embed(texts).await,
            Self::Hash { dimensions } => {
                Ok(texts.iter().map(|text| hash::embed(text, *dimensions)).collect())
            }
        }
    }
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
            Self::Unreachable | Self::Timeout => true,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            Self::Unusable(_) | Self::Dimensions { .. } | Self::Model | Self::Stopped => false,
        }
    }
}

impl EmbedError {
    /// Whether the embedder works and will never take this text: another text may well succeed.
    #[must_use]
    pub fn is_about_the_text(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(
                *status,
                StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
            ),
            Self::Model => true,
            _ => false,
        }
    }
}

impl From<EmbedError> for Error {
    fn from(error: EmbedError) -> Self {
        Self::Unavailable { part: "embedder", source: anyhow::Error::new(error) }
    }
}
