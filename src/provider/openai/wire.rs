//! One request to the endpoint, and what its answer has to be like.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OpenAiSettings, Vectors};
use crate::error::{Error, Result};
use crate::provider::embed::{EmbedError, unit};
use crate::provider::link::{Fault, Link, Names};

/// What an answer may have for each number, indented and in full precision, and beside the numbers. No answer is read
/// beyond that.
const NUMBER_BYTES: usize = 64;
const ANSWER_BYTES: usize = 64 * 1024;

/// Where the endpoint is and what it is asked for.
pub(super) struct Wire {
    link: Link,
    pub(super) model: String,
    pub(super) dimensions: usize,
    sends_dimensions: bool,
}

impl Wire {
    pub(super) fn new(settings: &OpenAiSettings) -> Result<Self> {
        let names = Names { url: "EMBEDDING_URL", key: "OPENAI_API_KEY" };
        let key = settings.key.as_ref();
        let link = Link::new(names, &settings.base_url, &["embeddings"], key, settings.connect_timeout)?;
        let dimensions = settings
            .dimensions
            .or_else(|| native_dimensions(&settings.model))
            .filter(|dimensions| *dimensions > 0)
            .ok_or_else(|| {
                Error::invalid(
                    "EMBEDDING_DIMENSIONS",
                    format!("the length of the vectors of {} is not known", settings.model),
                    "Set EMBEDDING_DIMENSIONS to the length that the model gives.",
                )
            })?;
        let sends_dimensions = settings.dimensions.is_some();
        Ok(Self { link, model: settings.model.clone(), dimensions, sends_dimensions })
    }

    /// The inputs' vectors, each checked and of length 1, or whatever the endpoint did instead.
    pub(super) async fn ask(&self, inputs: &[&str], timeout: Duration) -> Vectors {
        let body = Request {
            model: &self.model,
            input: inputs,
            dimensions: self.sends_dimensions.then_some(self.dimensions),
        };
        let most = inputs.len() * self.dimensions * NUMBER_BYTES + ANSWER_BYTES;
        let body = self.link.post(&body, timeout, most).await?;
        // The parser's own words may quote the answer.
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|_| EmbedError::Unusable("it is not the expected JSON"))?;
        self.in_order(answer, inputs.len())
    }

    /// The vectors in the order of the inputs, each checked and of length 1.
    fn in_order(&self, answer: Answer, count: usize) -> Vectors {
        let mut items = answer.data;
        items.sort_unstable_by_key(|item| item.index);
        if items.len() != count || items.iter().enumerate().any(|(place, item)| item.index != place) {
            return Err(EmbedError::Unusable("it does not have one vector for each text"));
        }
        items
            .into_iter()
            .map(|item| {
                if item.embedding.len() != self.dimensions {
                    return Err(EmbedError::Dimensions {
                        expected: self.dimensions,
                        actual: item.embedding.len(),
                    });
                }
                unit(item.embedding).map_err(EmbedError::Unusable)
            })
            .collect()
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    /// Servers that leave out what is zero leave out the first one's.
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

/// The length of a model's vectors, where memser knows it.
#[must_use]
pub fn native_dimensions(model: &str) -> Option<usize> {
    match model {
        "text-embedding-3-small" | "text-embedding-ada-002" => Some(1536),
        "text-embedding-3-large" => Some(3072),
        _ => None,
    }
}

impl From<Fault> for EmbedError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unreachable => Self::Unreachable,
            Fault::Timeout => Self::Timeout,
            Fault::Status { status, retry_after } => Self::Status { status, retry_after },
            Fault::TooLong => Self::Unusable("it is too long"),
        }
    }
}
