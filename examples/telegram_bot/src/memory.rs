//! memser as the bot uses it: one client, made anew after a failure, and calls that are repeated while memser is away.

use std::time::Duration;

use anyhow::{Context, Result};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ClientConfig};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::retry::Retry;

/// The first pause before a call is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// One try. memser's own time for a call is shorter.
const TRY: Duration = Duration::from_secs(90);

/// memser, with the token that may use the scopes of all chats.
pub struct Memory {
    url: String,
    token: String,
    patience: Duration,
    client: Option<RunningService<RoleClient, ClientConfig>>,
}

/// What memser says to a call.
pub(crate) enum Answer {
    /// `structuredContent`.
    Done(Value),
    /// Why this call is refused, and would be refused again, in words for a person.
    Refused(String),
}

/// Why a try came to nothing.
enum Failure {
    /// memser answered that it cannot now, and after how long it may: the connection is good.
    Busy { why: String, wait: Option<Duration> },
    /// Nothing came, or what is no answer: the next try makes a connection of its own.
    Away,
    /// Will not go well without somebody's doing.
    Never(anyhow::Error),
}

impl Memory {
    /// memser at `url`, which ends in `/mcp`. A call is repeated for as long as `patience`.
    #[must_use]
    pub fn new(url: String, token: String, patience: Duration) -> Self {
        Self { url, token, patience, client: None }
    }

    /// Calls a tool until memser answers. A call may arrive twice: it has to be harmless to repeat.
    ///
    /// # Errors
    /// When memser is away for longer than `patience`, or refuses the token.
    pub(crate) async fn call(&mut self, tool: &'static str, arguments: Map<String, Value>) -> Result<Answer> {
        let mut retry = Retry::new(self.patience, FIRST_PAUSE);
        let again = format!("calling {tool}");
        loop {
            let tried = timeout(TRY, self.once(tool, arguments.clone())).await.unwrap_or(Err(Failure::Away));
            let (asked, what) = match tried {
                Ok(answer) => return Ok(answer),
                Err(Failure::Never(error)) => return Err(error),
                Err(Failure::Busy { why, wait }) => (wait, format!("memser {why}")),
                Err(Failure::Away) => {
                    self.client = None;
                    (None, "memser is not reached".to_owned())
                }
            };
            retry.wait(asked, &what, &again).await?;
        }
    }

    async fn once(&mut self, tool: &'static str, arguments: Map<String, Value>) -> Result<Answer, Failure> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(connect(&self.url, &self.token).await?),
        };
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = client.call_tool(call).await.map_err(|error| match error {
            ServiceError::TransportSend(error) => transport(&error),
            ServiceError::McpError(error) => {
                Failure::Never(anyhow::Error::new(error).context("memser refuses a call"))
            }
            _ => Failure::Away,
        })?;
        let content = result.structured_content.context("an answer without data").map_err(Failure::Never)?;
        if result.is_error != Some(true) {
            return Ok(Answer::Done(content));
        }
        let error = &content["error"];
        match error["code"].as_str().unwrap_or_default() {
            code @ ("unavailable" | "timeout" | "rate_limited" | "internal") => {
                Err(Failure::Busy { why: format!("answers {code}"), wait: None })
            }
            code @ ("scope_not_granted" | "action_not_granted") => Err(Failure::Never(anyhow::anyhow!(
                "memser answers {code}: the token needs the grant telegram:*=write"
            ))),
            _ => Ok(Answer::Refused(error["message"].as_str().unwrap_or("memser refuses this").to_owned())),
        }
    }
}

async fn connect(url: &str, token: &str) -> Result<RunningService<RoleClient, ClientConfig>, Failure> {
    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned()).auth_header(token.to_owned());
    let client = ClientConfig::default().serve(StreamableHttpClientTransport::from_config(config)).await;
    client.map_err(|error| match error {
        ClientInitializeError::TransportError { error, .. } => transport(&error),
        _ => Failure::Away,
    })
}

/// What a failure on the way to memser means. Its own text is not passed on: it may hold what was sent.
fn transport(error: &DynamicTransportError) -> Failure {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::AuthRequired(_)) => {
            Failure::Never(anyhow::anyhow!("memser refuses the token"))
        }
        Some(StreamableHttpError::InsufficientScope(_)) => {
            Failure::Never(anyhow::anyhow!("the token may not write: it needs the grant telegram:*=write"))
        }
        Some(StreamableHttpError::HttpStatus(HttpStatusError { status, retry_after, .. })) => {
            let seconds = retry_after.as_deref().and_then(|seconds| seconds.parse().ok());
            Failure::Busy { why: format!("answers {status}"), wait: seconds.map(Duration::from_secs) }
        }
        _ => Failure::Away,
    }
}
