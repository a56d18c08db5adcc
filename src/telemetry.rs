//! What is logged, and how.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Starts logging to standard error: standard output belongs to what a command prints.
///
/// # Errors
/// When the filter is malformed, or logging was started before.
pub fn start(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("MEMSER_LOG={filter:?}"))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = if json {
        subscriber.json().try_init()
    } else {
        subscriber.try_init()
    };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}
