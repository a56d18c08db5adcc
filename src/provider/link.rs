//! What every HTTP endpoint of a provider has in common: its address, its key, one bounded exchange, and what can go wrong.

use std::time::Duration;

use http::header::{AUTHORIZATION, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{Client, Response, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use url::Url;

use crate::error::{Error, Result};
use crate::telemetry::current_traceparent;

/// One address that takes JSON by POST.
pub(super) struct Link {
    client: Client,
    url: Url,
}

/// The names of the settings, for errors about them.
#[derive(Clone, Copy)]
pub(super) struct Names {
    pub(super) url: &'static str,
    pub(super) key: &'static str,
}

/// What kept an answer away. Carries neither what was sent nor what came: either may hold a text or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Unreachable,
    Timeout,
    Status { status: StatusCode, retry_after: Option<Duration> },
    TooLong,
}

impl Link {
    /// `path` is appended to the path of `base`.
    pub(super) fn new(
        names: Names,
        base: &str,
        path: &[&str],
        key: Option<&SecretString>,
        connect_timeout: Duration,
    ) -> Result<Self> {
        let client = Client::builder()
            .default_headers(authorization(names, key)?)
            .connect_timeout(connect_timeout)
            // Texts go where the operator said and nowhere else.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| Error::Internal(error.into()))?;
        Ok(Self { client, url: address(names, base, path)? })
    }

    /// The answer's bytes, of which there may be `most`.
    pub(super) async fn post(
        &self,
        body: &impl Serialize,
        timeout: Duration,
        most: usize,
    ) -> std::result::Result<Vec<u8>, Fault> {
        let mut request = self.client.post(self.url.clone()).timeout(timeout).json(body);
        if let Some(traceparent) = current_traceparent() {
            request = request.header("traceparent", traceparent);
        }
        let mut response = request.send().await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(Fault::Status { status: response.status(), retry_after: retry_after(&response) });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if bytes.len() + chunk.len() > most {
                return Err(Fault::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

fn address(names: Names, base: &str, path: &[&str]) -> Result<Url> {
    let refused = |what: &str| {
        Error::invalid(
            names.url,
            format!("{} {what}", names.url),
            format!("For example https://api.openai.com/v1; a key goes into {}.", names.key),
        )
    };
    let mut url = Url::parse(base.trim()).map_err(|_| refused("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("has a user name or password"));
    }
    // Set apart from the text, so that a query such as ?api-version=1 stays behind the path.
    url.path_segments_mut().map_err(|()| refused("cannot have a path"))?.pop_if_empty().extend(path);
    Ok(url)
}

fn authorization(names: Names, key: Option<&SecretString>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", key.expose_secret().trim())).map_err(|_| {
                Error::invalid(
                    names.key,
                    format!("{} has a character that no key has", names.key),
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
fn broken(error: reqwest::Error) -> Fault {
    if error.is_timeout() { Fault::Timeout } else { Fault::Unreachable }
}
