//! Where messages go: to the service of this process, or to a memser that is reached by its URL.

use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::Body;
use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use tower::ServiceExt;
use url::{Host, Url};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long memser may be silent: it shows a sign of life every few seconds while a call runs.
const SILENCE: Duration = Duration::from_mins(1);

/// An MCP endpoint and the token for it.
#[derive(Clone, Debug)]
pub struct Upstream {
    endpoint: Endpoint,
    authorization: HeaderValue,
}

#[derive(Clone, Debug)]
enum Endpoint {
    Here(Router),
    There { client: reqwest::Client, url: Url },
}

impl Upstream {
    /// The public URL that a service in this process has to have.
    pub const HERE: &str = "http://localhost";

    /// The service of this process.
    ///
    /// # Errors
    /// When no header carries the token.
    pub fn here(router: Router, token: &SecretString) -> anyhow::Result<Self> {
        Ok(Self { endpoint: Endpoint::Here(router), authorization: bearer(token)? })
    }

    /// A memser elsewhere; `url` is its address with `/mcp`.
    ///
    /// # Errors
    /// When the URL is no http or https URL, or no header carries the token.
    pub fn there(url: Url, token: &SecretString) -> anyhow::Result<Self> {
        let is_web = matches!(url.scheme(), "http" | "https") && url.host().is_some();
        ensure!(is_web, "--url is no http or https URL, for example https://memory.example.com/mcp");
        let is_local = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        if url.scheme() == "http" && !is_local {
            tracing::warn!("--url is not https: whoever is on the way reads the token and every memory");
        }
        // A redirect would take the token to another place, or turn the message into a GET.
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { endpoint: Endpoint::There { client, url }, authorization: bearer(token)? })
    }

    /// Posts a message. Dropping the future or the answer's body calls it off.
    ///
    /// A connection that cannot be made is tried again for a few seconds, in which a memser may be starting again. What was
    /// sent is never sent twice.
    ///
    /// # Errors
    /// When there is no answer; the message has no token.
    pub(super) async fn post(&self, mut headers: HeaderMap, body: Bytes) -> anyhow::Result<Response<Body>> {
        headers.insert(AUTHORIZATION, self.authorization.clone());
        match &self.endpoint {
            Endpoint::Here(router) => {
                headers.insert(HOST, HeaderValue::from_static("localhost"));
                let mut request = Request::post("/mcp").body(Body::from(body))?;
                *request.headers_mut() = headers;
                Ok(router.clone().oneshot(request).await?)
            }
            Endpoint::There { client, url } => {
                let send = || client.post(url.clone()).headers(headers.clone()).body(body.clone()).send();
                let response = send
                    .retry(
                        ExponentialBuilder::default()
                            .with_min_delay(Duration::from_millis(100))
                            .with_max_times(5),
                    )
                    .when(reqwest::Error::is_connect)
                    .await
                    .with_context(|| format!("memser at {url} does not answer"))?;
                Ok(Response::from(response).map(Body::new))
            }
        }
    }
}

fn bearer(token: &SecretString) -> anyhow::Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .context("the token has a character that no header carries")?;
    value.set_sensitive(true);
    Ok(value)
}
