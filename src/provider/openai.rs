//! An OpenAI-compatible embeddings endpoint.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use super::embed::{EmbedError, unit};
use crate::error::{Error, Result};

/// The most texts of one request.
const BATCH_MAX: usize = 128;
const RETRIES_MAX: usize = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);

/// How to reach an OpenAI-compatible endpoint.
#[derive(Clone, Debug)]
pub struct OpenAiSettings {
    /// What comes before `/embeddings`, for example `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The length to ask for; without it the model's own, where memser knows it.
    pub dimensions: Option<usize>,
    /// The bearer key; servers on the same machine often want none.
    pub key: Option<SecretString>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How long one batch may take with all its retries: what a store waits at most.
    pub batch_timeout: Duration,
}

impl OpenAiSettings {
    /// Settings with the default time-outs, without a key.
    #[must_use]
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            dimensions: None,
            key: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            batch_timeout: Duration::from_secs(8),
        }
    }
}

/// A client of an OpenAI-compatible endpoint.
#[derive(Clone)]
pub struct OpenAi {
    client: Client,
    endpoint: Url,
    model: String,
    dimensions: usize,
    sends_dimensions: bool,
    batch_timeout: Duration,
}

impl std::fmt::Debug for OpenAi {
    /// Without the endpoint and the client, either of which may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi")
            .field("model", &self.model)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

impl OpenAi {
    /// A client; it connects at the first call.
    ///
    /// # Errors
    /// `invalid_argument` on the setting at fault: the URL, the key, or the dimensions of a model that memser does not
    /// know.
    pub fn new(settings: OpenAiSettings) -> Result<Self> {
        let endpoint = endpoint(&settings.base_url)?;
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
        let client = Client::builder()
            .default_headers(authorization(settings.key.as_ref())?)
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.request_timeout)
            // Texts go where the operator said and nowhere else.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|e| Error::Internal(e.into()))?;
        Ok(Self {
            client,
            endpoint,
            model: settings.model,
            dimensions,
            sends_dimensions: settings.dimensions.is_some(),
            batch_timeout: settings.batch_timeout,
        })
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub(super) async fn embed(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH_MAX) {
            vectors.extend(self.embed_batch(batch).await?);
        }
        Ok(vectors)
    }

    async fn embed_batch(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
        let deadline = Instant::now() + self.batch_timeout;
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY_DELAY_MIN)
            .with_max_times(RETRIES_MAX)
            .with_jitter();
        let attempts =
            (|| self.request(texts)).retry(backoff).when(EmbedError::is_transient).adjust(|error, delay| {
                let asked = match error {
                    EmbedError::Status { retry_after, .. } => *retry_after,
                    _ => None,
                };
                let delay = delay?.max(asked.unwrap_or_default());
                // A retry that could not be over in time says no more than the error at hand.
                (delay < deadline.saturating_duration_since(Instant::now())).then_some(delay)
            });
        tokio::time::timeout_at(deadline, attempts).await.unwrap_or(Err(EmbedError::Timeout))
    }

    async fn request(&self, texts: &[String]) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
        let body = Request {
            model: &self.model,
            input: texts,
            dimensions: self.sends_dimensions.then_some(self.dimensions),
        };
        let response = self.client.post(self.endpoint.clone()).json(&body).send().await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(EmbedError::Status {
                status: response.status(),
                retry_after: retry_after(&response),
            });
        }
        let body = response.bytes().await.map_err(broken)?;
        // The parser's own words may quote the answer.
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|_| EmbedError::Unusable("it is not the expected JSON"))?;
        self.in_order(answer, texts.len())
    }

    /// The vectors in the order of the texts, each checked and of length 1.
    fn in_order(&self, answer: Answer, count: usize) -> std::result::Result<Vec<Vec<f32>>, EmbedError> {
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
    input: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
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

fn endpoint(base: &str) -> Result<Url> {
    let refused = |message: &str| {
        Error::invalid(
            "EMBEDDING_URL",
            message,
            "For example https://api.openai.com/v1; a key goes into OPENAI_API_KEY.",
        )
    };
    let mut url = Url::parse(base.trim()).map_err(|_| refused("EMBEDDING_URL is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("EMBEDDING_URL is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("EMBEDDING_URL has a user name or password"));
    }
    // Set apart from the text, so that a query such as ?api-version=1 stays behind the path.
    url.path_segments_mut()
        .map_err(|()| refused("EMBEDDING_URL cannot have a path"))?
        .pop_if_empty()
        .push("embeddings");
    Ok(url)
}

fn authorization(key: Option<&SecretString>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", key.expose_secret().trim())).map_err(|_| {
                Error::invalid(
                    "OPENAI_API_KEY",
                    "OPENAI_API_KEY has a character that no key has",
                    "Copy the key again, without line breaks.",
                )
            })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The wait that the endpoint asks for. A date instead of seconds is rare, and the backoff alone will do for it.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// A request or answer that got lost on its way. The cause names the URL, which may hold a secret.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: reqwest::Error) -> EmbedError {
    if error.is_timeout() { EmbedError::Timeout } else { EmbedError::Unreachable }
}
