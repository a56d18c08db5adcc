//! What is logged, how, and which traces are sent on.
//!
//! Neither holds what is stored, asked or answered, nor a token. Of memser's own lines and spans that is looked after; other
//! crates are heard only where they have something to say to an operator.

mod export;
mod trace;

use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::time::Duration;

use anyhow::Context;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

pub use self::export::Traces;
pub use self::trace::{TraceParent, current_traceparent, trace_id};

/// How long the last spans may take on their way.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// What is logged and sent on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is logged, as `tracing` filters write it.
    pub log: String,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// Where traces go, where they do.
    pub traces: Option<Traces>,
}

/// What runs until [`stop`](Self::stop).
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Starts logging to standard error: standard output belongs to what a command prints. Starts sending traces, where that is
/// set.
///
/// # Errors
/// When the filter is malformed, the way to the collector cannot be, or logging was started before.
pub fn start(settings: &Settings) -> anyhow::Result<Telemetry> {
    let filter =
        EnvFilter::try_new(&settings.log).with_context(|| format!("MEMSER_LOG={:?}", settings.log))?;
    let json = settings.json;
    // A line of text says what it has to say; in JSON, the call that it belongs to is one more field.
    let shown = filter.and(filter_fn(move |metadata| {
        if metadata.is_span() { json && is_own(metadata) } else { is_harmless(metadata) }
    }));
    // Colours are for a terminal: in a file they are noise.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = if json { lines.json().with_current_span(false).boxed() } else { lines.boxed() };
    let traces = settings.traces.as_ref().map(Traces::start).transpose()?;
    let spans = traces.as_ref().map(|traces| export::layer(traces).with_filter(filter_fn(is_own_span)));
    tracing_subscriber::registry()
        .with(lines.with_filter(shown))
        .with(spans)
        .try_init()
        .map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))?;
    std::panic::set_hook(Box::new(report_panic));
    Ok(Telemetry { traces })
}

/// Says where a thread panicked, which is enough to mend it. What it says itself may quote what it was at: a text that is cut
/// within a character is quoted.
fn report_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    tracing::error!(place, "a thread panicked");
}

impl Telemetry {
    /// Sends on the spans that wait, for a while.
    pub async fn stop(self) {
        let Some(traces) = self.traces else {
            return;
        };
        // It blocks.
        let stopped = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(LAST_SPANS)).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!("the last traces were not sent: {error}");
        }
    }
}

/// Who says something, as the crate's name.
fn speaker<'a>(metadata: &Metadata<'a>) -> &'a str {
    metadata.target().split("::").next().unwrap_or_default()
}

fn is_own(metadata: &Metadata<'_>) -> bool {
    speaker(metadata) == "memser"
}

/// The finer logs of other crates hold what passes through them, and no filter opens those. rmcp's hold it in all but its
/// errors: it informs of whole notifications, and warns with what a client asked for.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    let finest = match speaker(metadata) {
        "memser" => Level::TRACE,
        "rmcp" => Level::ERROR,
        _ => Level::INFO,
    };
    *metadata.level() <= finest
}

fn is_own_span(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && is_own(metadata)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::panic::{catch_unwind, set_hook, take_hook};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_tells_its_place_and_not_what_it_was_at() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let before = take_hook();
        set_hook(Box::new(report_panic));
        let cut = |text: &str, at: usize| text[..at].len();
        let ended =
            tracing::subscriber::with_default(subscriber, || catch_unwind(|| cut("née Quixandrel", 2)));
        set_hook(before);
        assert!(ended.is_err());
        let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(logged.contains("a thread panicked") && logged.contains("telemetry.rs"), "{logged}");
        assert!(!logged.contains("Quixandrel"), "{logged}");
    }
}
