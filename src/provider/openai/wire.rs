//! One request to the endpoint, and what its answer has to be like.

use std::time::Duration;

use http::header::{AUTHORIZATION, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::{OpenAiSettings, Vectors};
use crate::error::{Error, Result};
use crate::provider::embed::{EmbedError, unit};

/// What an answer may have for each number, indented and in full precision, and beside the numbers. No answer is read
/// beyond that.
const NUMBER_BYTES: usize = 64;
const ANSWER_BYTES: usize = 64 * 1024;

/// Where the endpoint is and what it is asked for.
pub(super) struct Wire {
    client: Client,
    url: Url,
    pub(super) model: String,
    pub(super) dimensions: usize,
    sends_dimensions: bool,
}

impl Wire {
    pub(super) fn new(settings: &OpenAiSettings) -> Result<Self> {
        let url = endpoint(&settings.base_url)?;
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
            // Texts go where the operator said and nowhere else.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|e| Error::Internal(e.into()))?;
        let sends_dimensions = settings.dimensions.is_some();
        Ok(Self { client, url, model: settings.model.clone(), dimensions, sends_dimensions })
    }

    /// The inputs' vectors, each checked and of length 1, or whatever the endpoint did instead.
    pub(super) async fn ask(&self, inputs: &[&str], timeout: Duration) -> Vectors {
        let body = Request {
            model: &self.model,
            input: inputs,
            dimensions: self.sends_dimensions.then_some(self.dimensions),
        };
        let request = self.client.post(self.url.clone()).timeout(timeout).json(&body);
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
