//! An OpenAI-compatible embeddings endpoint.
//!
//! Texts go out in batches. A text of more than [`OpenAiSettings::max_text_bytes`] is cut, and its vector is the mean of
//! its pieces' vectors, weighted by their lengths. Of one text at most 32 pieces and 256 KiB count: what comes after is
//! found by its words alone.
//!
//! A request that fails for a reason that may pass is sent again within the batch's time. An endpoint that goes on
//! failing is left alone for a while: then calls fail at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use http::header::{AUTHORIZATION, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{Client, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use super::breaker::{Breaker, Event, Pass};
use super::embed::{EmbedError, unit};
use super::pieces::{PIECES_MAX, pieces, pool};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// The most inputs of one request: what common servers take without being told otherwise. At least the pieces of a text.
const BATCH_MAX: usize = PIECES_MAX;
/// The most bytes of text in one request. No token is shorter than a byte, and OpenAI takes 300,000 tokens at once.
pub const BATCH_BYTES_MAX: usize = 256 * 1024;
const RETRIES_MAX: usize = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
/// What an answer may have for each number, and beside the numbers. No answer is read beyond that.
const NUMBER_BYTES: usize = 32;
const ANSWER_BYTES: usize = 64 * 1024;
/// Is embedded by every endpoint that works.
const HARMLESS: &str = "ready?";

type Vectors = std::result::Result<Vec<Vec<f32>>, EmbedError>;

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
    /// The most bytes that the endpoint is sent as one text.
    pub max_text_bytes: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How long one batch may take with all its retries: what a store waits at most.
    pub batch_timeout: Duration,
}

impl OpenAiSettings {
    /// Settings with the default limits, without a key.
    #[must_use]
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            dimensions: None,
            key: None,
            max_text_bytes: 8_000,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            batch_timeout: Duration::from_secs(8),
        }
    }
}

/// A client of an OpenAI-compatible endpoint.
pub struct OpenAi {
    client: Client,
    endpoint: Url,
    model: String,
    dimensions: usize,
    sends_dimensions: bool,
    max_text_bytes: usize,
    request_timeout: Duration,
    batch_timeout: Duration,
    clock: Clock,
    breaker: Mutex<Breaker>,
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
    /// A client; it connects at the first call. The clock says when an endpoint that failed is tried again.
    ///
    /// # Errors
    /// `invalid_argument` on the setting at fault: the URL, the key, or the dimensions of a model that memser does not
    /// know.
    pub fn new(settings: OpenAiSettings, clock: Clock) -> Result<Self> {
        let endpoint = endpoint(&settings.base_url)?;
        let dimensions = settings
            .dimensions
            .or_else(|| known_dimensions(&settings.model))
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
            max_text_bytes: settings.max_text_bytes.min(BATCH_BYTES_MAX),
            request_timeout: settings.request_timeout,
            batch_timeout: settings.batch_timeout,
            clock,
            breaker: Mutex::new(Breaker::CLOSED),
        })
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Whether the last answer says that the endpoint works.
    pub(super) fn is_up(&self) -> bool {
        self.state().is_up()
    }

    pub(super) async fn embed(&self, texts: &[String]) -> Vectors {
        let whole = |text: &'_ str| text.floor_char_boundary(BATCH_BYTES_MAX);
        let cut: Vec<Vec<&str>> =
            texts.iter().map(|text| pieces(&text[..whole(text)], self.max_text_bytes)).collect();
        let inputs = cut.concat();
        let mut vectors = Vec::with_capacity(inputs.len());
        for batch in batches(&inputs) {
            vectors.extend(self.embed_batch(batch, may_be_the_text).await?);
        }
        let mut vectors = vectors.into_iter();
        let pooled = cut.iter().map(|pieces| pool(pieces, vectors.by_ref().take(pieces.len())));
        pooled.map(|vector| vector.map_err(EmbedError::Unusable)).collect()
    }

    /// Whether the endpoint embeds a text that nothing can be said against.
    pub(super) async fn check(&self) -> std::result::Result<(), EmbedError> {
        self.embed_batch(&[HARMLESS], |_| false).await.map(drop)
    }

    /// The inputs' vectors, after as many retries as there is time for. Errors for which `is_refusal` holds are not
    /// counted against the endpoint.
    async fn embed_batch(&self, inputs: &[&str], is_refusal: fn(&EmbedError) -> bool) -> Vectors {
        let deadline = Instant::now() + self.batch_timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY_DELAY_MIN)
            .with_max_times(RETRIES_MAX)
            .with_jitter();
        let vectors = (|| self.attempt(inputs, left(), is_refusal))
            .retry(backoff)
            .when(EmbedError::is_transient)
            .adjust(|error, delay| {
                let delay = delay? + error.retry_after().unwrap_or_default();
                // A retry that could not be over in time says no more than the error at hand, and an endpoint that is
                // left alone gives none.
                let worthwhile = delay < left() && matches!(self.state(), Breaker::Closed { .. });
                worthwhile.then_some(delay)
            })
            .await;
        if let Err(error) = &vectors
            && error.is_busy()
        {
            let now = self.clock.now();
            self.change(|state| state.after_busy(error.retry_after(), now));
        }
        vectors
    }

    async fn attempt(&self, inputs: &[&str], left: Duration, is_refusal: fn(&EmbedError) -> bool) -> Vectors {
        let mut request = self.admit()?;
        let vectors = self.request(inputs, left.min(self.request_timeout)).await;
        request.event = match &vectors {
            Ok(_) => Event::Success,
            Err(error) if error.is_busy() || is_refusal(error) => Event::Refusal,
            Err(_) => Event::Failure,
        };
        vectors
    }

    async fn request(&self, inputs: &[&str], timeout: Duration) -> Vectors {
        let body = Request {
            model: &self.model,
            input: inputs,
            dimensions: self.sends_dimensions.then_some(self.dimensions),
        };
        let request = self.client.post(self.endpoint.clone()).timeout(timeout).json(&body);
        let mut response = request.send().await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(EmbedError::Status {
                status: response.status(),
                retry_after: retry_after(&response),
            });
        }
        let most = inputs.len() * self.dimensions * NUMBER_BYTES + ANSWER_BYTES;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > most {
                return Err(EmbedError::Unusable("it is too long"));
            }
            body.extend_from_slice(&chunk);
        }
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

    fn state(&self) -> Breaker {
        *self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, next: impl FnOnce(Breaker) -> Breaker) {
        let (before, after) = {
            let mut state = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
            let before = *state;
            *state = next(before);
            (before, *state)
        };
        match (before, after) {
            (Breaker::Closed { .. }, Breaker::Open { wait, .. }) => tracing::warn!(
                wait_s = wait.as_secs(),
                "the embedding endpoint failed; it is left alone for a while, and memories wait for their vectors"
            ),
            (Breaker::Open { .. } | Breaker::Probing { .. }, Breaker::Closed { .. }) => {
                tracing::info!("the embedding endpoint answers again");
            }
            _ => {}
        }
    }

    /// Leave for one request, or the error of those that have none.
    fn admit(&self) -> std::result::Result<Admitted<'_>, EmbedError> {
        let mut state = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, pass) = state.admit(self.clock.now()).ok_or(EmbedError::LeftAlone)?;
        *state = next;
        Ok(Admitted { openai: self, pass, event: Event::Abandoned })
    }
}

/// A request under way. Dropped with whatever became of it, so that a caller who goes away leaves no probe open.
struct Admitted<'a> {
    openai: &'a OpenAi,
    pass: Pass,
    event: Event,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let now = self.openai.clock.now();
        self.openai.change(|state| state.after(self.pass, self.event, now));
    }
}

/// Whether the endpoint may have answered so because of this text: it is too long, or not one that it wants.
fn may_be_the_text(error: &EmbedError) -> bool {
    let statuses =
        [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
    matches!(error, EmbedError::Status { status, .. } if statuses.contains(status))
}

/// Inputs by request: neither too many nor too long together.
fn batches<'a, 'b>(inputs: &'a [&'b str]) -> impl Iterator<Item = &'a [&'b str]> {
    let mut rest = inputs;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |input: &&&str| {
            bytes += input.len();
            bytes <= BATCH_BYTES_MAX
        };
        let count = rest.iter().take(BATCH_MAX).take_while(fits).count();
        // No input alone is too long.
        let (batch, after) = rest.split_at(count.max(1).min(rest.len()));
        rest = after;
        Some(batch).filter(|batch| !batch.is_empty())
    })
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

fn known_dimensions(model: &str) -> Option<usize> {
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

/// The wait that the endpoint asks for: seconds, or a date, which is read by the endpoint's own clock.
fn retry_after(response: &Response) -> Option<Duration> {
    let text = |name| response.headers().get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let (until, now) = (httpdate::parse_http_date(asked).ok()?, httpdate::parse_http_date(text(DATE)?).ok()?);
    Some(until.duration_since(now).unwrap_or_default())
}

/// A request or answer that got lost on its way. The cause names the URL, which may hold a secret.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn broken(error: reqwest::Error) -> EmbedError {
    if error.is_timeout() { EmbedError::Timeout } else { EmbedError::Unreachable }
}
