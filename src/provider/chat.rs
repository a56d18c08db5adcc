//! An OpenAI-compatible chat endpoint that answers in JSON of a given schema.
//!
//! A question is asked once: whoever asks has another way to decide. An endpoint that goes on failing is left alone for a
//! while, as the embedder's is, and is then tried with the question at hand.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use schemars::{JsonSchema, schema_for};
use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::Instrument;

use super::breaker::{Breaker, Event, Pass};
use super::link::{Fault, Link, Names};
use super::span;
use crate::clock::Clock;
use crate::error::Result;
use crate::metrics::{Asked, Metrics};

/// No answer is read beyond this.
const ANSWER_BYTES: usize = 256 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How to reach a chat endpoint.
#[derive(Clone, Debug)]
pub struct ChatSettings {
    /// What comes before `/chat/completions`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The bearer key; servers on the same machine often want none.
    pub key: Option<SecretString>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Who says something to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// memser: what is to be done.
    System,
    /// What it is to be done with.
    User,
}

/// One message of a conversation.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// A client of a chat endpoint.
pub struct Chat {
    link: Link,
    model: String,
    timeout: Duration,
    clock: Clock,
    breaker: Mutex<Breaker>,
    metrics: Metrics,
}

impl std::fmt::Debug for Chat {
    /// Without the endpoint, which may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chat").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Why there is no answer. Never carries a text, a key or what the endpoint wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// No connection, or one that broke.
    #[error("the chat endpoint cannot be reached")]
    Unreachable,
    /// No answer in time.
    #[error("the chat endpoint did not answer in time")]
    Timeout,
    /// It failed a moment ago, and is not asked until a wait is over.
    #[error("the chat endpoint failed a moment ago and is left alone")]
    LeftAlone,
    /// An answer that says no.
    #[error("the chat endpoint answered {0}")]
    Status(StatusCode),
    /// An answer that is not what was asked for.
    #[error("the chat endpoint's answer is unusable: {0}")]
    Unusable(&'static str),
}

impl Chat {
    /// A client; it connects at the first question.
    ///
    /// # Errors
    /// `invalid_argument` on the setting at fault: the URL or the key.
    pub fn new(settings: &ChatSettings, clock: Clock) -> Result<Self> {
        let names = Names { url: "LLM_URL", key: "LLM_API_KEY" };
        let path = ["chat", "completions"];
        Ok(Self {
            link: Link::new(names, &settings.base_url, &path, settings.key.as_ref(), CONNECT_TIMEOUT)?,
            model: settings.model.clone(),
            timeout: settings.timeout,
            clock,
            breaker: Mutex::new(Breaker::CLOSED),
            metrics: Metrics::default(),
        })
    }

    /// Counts its questions there.
    #[must_use]
    pub fn counted_in(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The answer to a conversation as a value of `T`, whose JSON schema the endpoint is given under `name`. `T` has to
    /// refuse unknown fields, which strict endpoints ask of a schema. `max_tokens` bounds the answer, where something does.
    ///
    /// # Errors
    /// Whatever keeps the endpoint from giving such a value in time.
    pub async fn ask<T: DeserializeOwned + JsonSchema>(
        &self,
        name: &str,
        messages: &[Message],
        max_tokens: Option<usize>,
    ) -> std::result::Result<T, ChatError> {
        self.answer(self.admit()?, name, messages, max_tokens).await
    }

    /// As [`ask`](Self::ask), also while the endpoint is left alone: for a question that is to show whether it works.
    ///
    /// # Errors
    /// As there.
    pub async fn probe<T: DeserializeOwned + JsonSchema>(
        &self,
        name: &str,
        messages: &[Message],
        max_tokens: Option<usize>,
    ) -> std::result::Result<T, ChatError> {
        let request = self.admit().unwrap_or_else(|_| self.admitted(Pass::Free));
        self.answer(request, name, messages, max_tokens).await
    }

    async fn answer<T: DeserializeOwned + JsonSchema>(
        &self,
        mut request: Admitted<'_>,
        name: &str,
        messages: &[Message],
        max_tokens: Option<usize>,
    ) -> std::result::Result<T, ChatError> {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": { "name": name, "strict": true, "schema": schema_of::<T>() },
            },
        });
        if let Some(max_tokens) = max_tokens {
            body["max_tokens"] = json!(max_tokens);
        }
        let started = Instant::now();
        let span = span::of_question("chat", &self.model);
        let posted = self.link.post(&body, self.timeout, ANSWER_BYTES).instrument(span.clone()).await;
        span::ended(&span, posted.is_ok());
        self.metrics.asked(Asked::Llm, posted.is_ok(), started.elapsed());
        request.event = match &posted {
            Ok(_) => Event::Success,
            Err(Fault::Status { status, retry_after }) if *status == StatusCode::TOO_MANY_REQUESTS => {
                (request.is_busy, request.retry_after) = (true, *retry_after);
                Event::Refusal
            }
            Err(Fault::Status { status, .. }) if status.is_client_error() => Event::Refusal,
            Err(_) => Event::Failure,
        };
        drop(request);
        let bytes = posted.map_err(|fault| match fault {
            Fault::Unreachable => ChatError::Unreachable,
            Fault::Timeout => ChatError::Timeout,
            Fault::Status { status, .. } => ChatError::Status(status),
            Fault::TooLong => ChatError::Unusable("it is too long"),
        })?;
        // The parser's own words may quote the answer.
        let completion: Completion =
            serde_json::from_slice(&bytes).map_err(|_| ChatError::Unusable("it is not the expected JSON"))?;
        let content = completion.choices.into_iter().next().and_then(|choice| choice.message.content);
        let content = content.ok_or(ChatError::Unusable("it says nothing"))?;
        serde_json::from_str(&content).map_err(|_| ChatError::Unusable("it does not follow the schema"))
    }

    /// Whether its last answer, if there was any, says that it works.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner).is_up()
    }

    fn admit(&self) -> std::result::Result<Admitted<'_>, ChatError> {
        let mut state = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, pass) = state.admit(self.clock.now()).ok_or(ChatError::LeftAlone)?;
        *state = next;
        Ok(self.admitted(pass))
    }

    const fn admitted(&self, pass: Pass) -> Admitted<'_> {
        Admitted { chat: self, pass, event: Event::Abandoned, is_busy: false, retry_after: None }
    }
}

/// A request under way. Dropped with whatever became of it, so that a caller who goes away leaves no probe open.
struct Admitted<'a> {
    chat: &'a Chat,
    pass: Pass,
    event: Event,
    /// The endpoint has no time, and may have said for how long.
    is_busy: bool,
    retry_after: Option<Duration>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let now = self.chat.clock.now();
        let mut state = self.chat.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.after(self.pass, self.event, now);
        if self.is_busy {
            *state = state.after_busy(self.retry_after, now);
        }
    }
}

/// The schema without what names its dialect, which some endpoints refuse.
fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schema_for!(T).to_value();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
    }
    schema
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
}
