//! The messages under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use futures::StreamExt;
use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use sse_stream::SseStream;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::message::{Message, not_served, refused};
use super::pipe::Lines;
use super::upstream::Upstream;

/// The longest answer that comes in one piece.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;
const TRY_AGAIN: &str = "Try again; if it stays so, look at memser's log.";

/// Every message that was passed on and is not done.
pub(super) struct Calls {
    line: Line,
    tasks: JoinSet<()>,
    /// By the request's id as JSON, so that `1` and `"1"` are two.
    requests: HashMap<String, AbortHandle>,
    /// Streams that the client keeps open for as long as it lives.
    subscriptions: CancellationToken,
    cut: CancellationToken,
}

/// What a message needs on its way.
#[derive(Clone)]
struct Line {
    upstream: Upstream,
    output: Lines,
    /// The version that the client and memser agreed on, where they shook hands.
    version: Arc<RwLock<Option<String>>>,
}

impl Calls {
    pub(super) fn new(upstream: Upstream, output: Lines) -> Self {
        Self {
            line: Line { upstream, output, version: Arc::default() },
            tasks: JoinSet::new(),
            requests: HashMap::new(),
            subscriptions: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Passes a message on.
    pub(super) async fn take(&mut self, message: Message) {
        if message.is_answer() {
            return tracing::debug!("the client answered a request that memser did not make");
        }
        if let Some(id) = message.cancelled() {
            // Over HTTP a call is called off by hanging up.
            if let Some(request) = self.requests.remove(&id.to_string()) {
                request.abort();
            }
            return;
        }
        let cut = if message.method() == Some("subscriptions/listen") {
            self.subscriptions.clone()
        } else {
            self.cut.clone()
        };
        // What comes after the handshake waits for it, because it needs the version.
        let handshake = if message.method() == Some("initialize") {
            Some(Arc::clone(&self.line.version).write_owned().await)
        } else {
            None
        };
        let (line, id) = (self.line.clone(), message.id().cloned());
        let known = id.as_ref().map(ToString::to_string);
        let task = self.tasks.spawn(async move {
            let (is_notification, output) = (message.is_notification(), line.output.clone());
            let error = tokio::select! {
                passed = line.pass(&message, handshake) => match passed {
                    Ok(()) => return,
                    Err(error) => error,
                },
                () = cut.cancelled() => not_served(id.as_ref(), "memser stops", "Start it again."),
            };
            if is_notification {
                tracing::warn!("a notification was not taken: {}", error["error"]["message"]);
            } else {
                output.write(&error).await;
            }
        });
        if let Some(id) = known {
            self.requests.insert(id, task);
        }
    }

    /// Forgets what has ended; resolves when something has.
    pub(super) async fn ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            return std::future::pending().await;
        }
        self.requests.retain(|_, request| !request.is_finished());
    }

    /// Waits for the answers of what is under way, and answers with an error what takes longer than `patience`.
    pub(super) async fn finish(mut self, patience: Duration) {
        self.subscriptions.cancel();
        let done = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, done).await.is_err() {
            self.cut.cancel();
            while self.tasks.join_next().await.is_some() {}
        }
    }
}

impl Line {
    /// Sends a message and writes what comes back; gives what to answer instead where nothing does.
    async fn pass(
        self,
        message: &Message,
        handshake: Option<OwnedRwLockWriteGuard<Option<String>>>,
    ) -> Result<(), Value> {
        let id = message.id();
        let lost = |error: anyhow::Error| not_served(id, &format!("{error:#}"), TRY_AGAIN);
        let version = match &handshake {
            Some(_) => None,
            None => self.version.read().await.clone(),
        };
        let headers = message.headers(version.as_deref());
        let response = self.upstream.post(headers, message.body.clone()).await.map_err(lost)?;
        let status = response.status();
        if is_events(&response) {
            return self.pass_events(id, response.into_body()).await.map_err(lost);
        }
        let body =
            to_bytes(response.into_body(), ANSWER_MAX_BYTES).await.map_err(|error| lost(error.into()))?;
        if message.is_notification() && status.is_success() {
            return Ok(());
        }
        let answer: Value = match serde_json::from_slice(&body) {
            Ok(Value::Object(answer)) if status.is_success() && answer.contains_key("jsonrpc") => {
                answer.into()
            }
            _ => return Err(refused(id, status, &body)),
        };
        if let Some(mut agreed) = handshake {
            *agreed = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        }
        self.output.write(&answer).await;
        Ok(())
    }

    async fn pass_events(&self, id: Option<&Value>, body: Body) -> anyhow::Result<()> {
        let mut events = SseStream::new(body);
        while let Some(event) = events.next().await {
            let Some(data) = event?.data.filter(|data| !data.trim().is_empty()) else {
                continue;
            };
            let said: Value = serde_json::from_str(&data)?;
            self.output.write(&said).await;
            if said.get("method").is_none() && said.get("id") == id {
                return Ok(());
            }
        }
        anyhow::bail!("the answer broke off")
    }
}

fn is_events(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}
