//! An OpenAI-compatible embeddings endpoint.
//!
//! Texts go out in batches. A text of more than [`OpenAiSettings::max_text_bytes`] is cut, and its vector is the mean of
//! its pieces' vectors, weighted by their lengths. Of one text at most 32 pieces and 256 KiB count: what comes after is
//! found by its words alone.
//!
//! A request that fails for a reason that may pass is sent again while its caller has time: once, and up to four times to
//! an endpoint that is busy. When it still fails, a text of memser's own tells whether the endpoint does. One that goes on
//! failing is left alone for a while: then calls fail at once, and now and then one of them first sends that text.

mod wire;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use secrecy::SecretString;
use tokio::time::Instant;

use self::wire::Wire;
pub use self::wire::native_dimensions;
use super::breaker::{Breaker, Event, Pass};
use super::embed::{Effort, EmbedError, HARMLESS};
use super::pieces::{PIECES_MAX, pieces, pool};
use crate::clock::Clock;
use crate::error::Result;

/// The most inputs of one request: what common servers take without being told otherwise. At least the pieces of a text.
const BATCH_MAX: usize = PIECES_MAX;
/// The most bytes of text in one request. No token is shorter than a byte, and OpenAI takes 300,000 tokens at once.
pub const BATCH_BYTES_MAX: usize = 256 * 1024;
/// How often a busy endpoint is asked again.
const RETRIES_MAX: usize = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
/// How long [`HARMLESS`] may take: calls wait for it.
const HARMLESS_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// How long a call waits at most, all its retries included.
    pub call_timeout: Duration,
    /// How long one request of a sweep may take, for which nobody waits.
    pub sweep_timeout: Duration,
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
            call_timeout: Duration::from_secs(8),
            sweep_timeout: Duration::from_secs(30),
        }
    }
}

/// A client of an OpenAI-compatible endpoint.
pub struct OpenAi {
    wire: Wire,
    max_text_bytes: usize,
    request_timeout: Duration,
    call_timeout: Duration,
    sweep_timeout: Duration,
    clock: Clock,
    breaker: Mutex<Breaker>,
}

impl std::fmt::Debug for OpenAi {
    /// Without the endpoint and the client, either of which may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi")
            .field("model", &self.wire.model)
            .field("dimensions", &self.wire.dimensions)
            .finish_non_exhaustive()
    }
}

impl OpenAi {
    /// A client; it connects at the first call. The clock says when an endpoint that failed is tried again.
    ///
    /// # Errors
    /// `invalid_argument` on the setting at fault: the URL, the key, or the dimensions of a model that memser does not
    /// know.
    pub fn new(settings: &OpenAiSettings, clock: Clock) -> Result<Self> {
        Ok(Self {
            wire: Wire::new(settings)?,
            max_text_bytes: settings.max_text_bytes.min(BATCH_BYTES_MAX),
            request_timeout: settings.request_timeout,
            call_timeout: settings.call_timeout,
            sweep_timeout: settings.sweep_timeout,
            clock,
            breaker: Mutex::new(Breaker::CLOSED),
        })
    }

    pub(super) fn model(&self) -> &str {
        &self.wire.model
    }

    pub(super) const fn dimensions(&self) -> usize {
        self.wire.dimensions
    }

    /// Whether the last answer says that the endpoint works.
    pub(super) fn is_up(&self) -> bool {
        self.state().is_up()
    }

    pub(super) async fn embed(&self, texts: &[&str], effort: Effort) -> Vectors {
        let cut: Vec<Vec<&str>> = texts
            .iter()
            .map(|text| pieces(&text[..text.floor_char_boundary(BATCH_BYTES_MAX)], self.max_text_bytes))
            .collect();
        let inputs = cut.concat();
        let mut vectors = Vec::with_capacity(inputs.len());
        for batch in batches(&inputs) {
            vectors.extend(match effort {
                Effort::Call => self.embed_for_call(batch).await?,
                Effort::Sweep => self.embed_for_sweep(batch).await?,
            });
        }
        let mut vectors = vectors.into_iter();
        let pooled = cut.iter().map(|pieces| pool(pieces, vectors.by_ref().take(pieces.len())));
        pooled.map(|vector| vector.map_err(EmbedError::Unusable)).collect()
    }

    /// Whether the endpoint embeds a text that nothing can be said against.
    pub(super) async fn check(&self) -> std::result::Result<(), EmbedError> {
        self.probe(self.admit()?).await
    }

    /// The inputs' vectors, after as many retries as there is time for.
    async fn embed_for_call(&self, inputs: &[&str]) -> Vectors {
        let deadline = Instant::now() + self.call_timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY_DELAY_MIN)
            .with_max_times(RETRIES_MAX)
            .with_jitter();
        let mut failures = 0;
        (|| self.attempt(inputs, left().min(self.request_timeout)))
            .retry(backoff)
            .when(EmbedError::is_transient)
            .adjust(|error, delay| {
                failures += usize::from(!error.is_busy());
                let delay = delay?.saturating_add(error.retry_after().unwrap_or_default());
                // A retry that could not be over in time says no more than the error at hand, and an endpoint that is
                // left alone gives none.
                let worthwhile =
                    failures < 2 && delay < left() && matches!(self.state(), Breaker::Closed { .. });
                worthwhile.then_some(delay)
            })
            .await
            .inspect_err(|error| self.give_up(error))
    }

    /// The inputs' vectors from one request: a sweep comes again by itself, and that the endpoint has no time for this much
    /// keeps no call from it.
    async fn embed_for_sweep(&self, inputs: &[&str]) -> Vectors {
        let vectors = self.attempt(inputs, self.sweep_timeout).await;
        vectors.inspect_err(|error| {
            if error.retry_after().is_some() {
                self.give_up(error);
            }
        })
    }

    /// Nobody asks again before the time that the endpoint named.
    fn give_up(&self, error: &EmbedError) {
        if error.is_busy() || error.retry_after().is_some() {
            let now = self.clock.now();
            self.change(|state| state.after_busy(error.retry_after(), now));
        }
    }

    async fn attempt(&self, inputs: &[&str], timeout: Duration) -> Vectors {
        let mut request = match self.admit()? {
            probe if probe.pass == Pass::Probe => {
                // The text at hand may be what the endpoint failed on.
                self.probe(probe).await?;
                self.admit()?
            }
            free => free,
        };
        let vectors = self.wire.ask(inputs, timeout).await;
        request.event = match &vectors {
            Ok(_) => Event::Success,
            Err(error) if error.is_busy() || error.is_refusal() => Event::Refusal,
            Err(_) => Event::Failure,
        };
        vectors
    }

    async fn probe(&self, mut request: Admitted<'_>) -> std::result::Result<(), EmbedError> {
        let answer = self.wire.ask(&[HARMLESS], self.request_timeout.min(HARMLESS_TIMEOUT)).await;
        request.event = match &answer {
            Ok(_) => Event::Success,
            Err(error) if error.is_busy() => Event::Refusal,
            Err(_) => Event::Failure,
        };
        drop(request);
        answer.map(drop).inspect_err(|error| self.give_up(error))
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
