//! Trying again for as long as somebody has patience.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};
use tracing::warn;

/// The longest pause, unless a longer one is asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is left of the patience with one request, and the next pause.
pub(crate) struct Retry {
    started: Instant,
    patience: Duration,
    pause: Duration,
}

impl Retry {
    /// Begins now; `pause` is the first one.
    pub(crate) fn new(patience: Duration, pause: Duration) -> Self {
        Self { started: Instant::now(), patience, pause }
    }

    /// Waits before the next try, as long as was asked for, or twice as long as the last time. `what` is what happened, and
    /// `next` what is done then.
    ///
    /// # Errors
    /// When that would take longer than there is patience.
    pub(crate) async fn wait(&mut self, asked: Option<Duration>, what: &str, next: &str) -> Result<()> {
        let wait = asked.unwrap_or(self.pause);
        if self.started.elapsed() + wait > self.patience {
            bail!("{what} for over {} s", self.patience.as_secs());
        }
        warn!(wait_ms = wait.as_millis(), "{what}; {next} again");
        sleep(wait).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
