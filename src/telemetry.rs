//! What is logged, and how.

use std::io::IsTerminal;

use anyhow::Context;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Crates whose finer logs hold what passes through them: rmcp logs whole calls, with the memories in them. No filter
/// opens these below `info`.
const CAPPED: [&str; 3] = ["rmcp", "sqlx", "hyper"];

/// Starts logging to standard error: standard output belongs to what a command prints.
///
/// # Errors
/// When the filter is malformed, or logging was started before.
pub fn start(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("MEMSER_LOG={filter:?}"))?;
    let subscriber = tracing_subscriber::registry().with(filter).with(filter_fn(harmless));
    // Colours are for a terminal: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let started =
        if json { subscriber.with(text.json()).try_init() } else { subscriber.with(text).try_init() };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}

fn harmless(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target().split("::").next().unwrap_or_default();
    *metadata.level() <= Level::INFO || !CAPPED.contains(&target)
}
