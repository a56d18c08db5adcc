//! The bot as a program: settings from the environment, the log on standard error.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use memser_telegram_bot::{Memory, run};
use teloxide_core::Bot;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// For how long a call is repeated. After that the bot ends, and whatever runs it starts it again.
const PATIENCE: Duration = Duration::from_mins(10);

#[tokio::main]
async fn main() -> Result<()> {
    // Libraries log addresses, and the Bot API's hold the token: only the bot itself is heard.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("off,memser_telegram_bot=info"))
        .with_writer(std::io::stderr)
        .init();
    let mut bot = Bot::new(setting("TELEGRAM_BOT_TOKEN")?);
    if let Ok(url) = env::var("TELEGRAM_API_URL") {
        bot = bot.set_api_url(url.parse().context("TELEGRAM_API_URL is no address")?);
    }
    let url = format!("{}/mcp", setting("MEMSER_URL")?.trim_end_matches('/'));
    let mut memory = Memory::new(url, setting("MEMSER_CLIENT_TOKEN")?, PATIENCE);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // At any moment: what is under way was not acknowledged, and comes again.
    tokio::select! {
        ended = run(&bot, &mut memory, PATIENCE) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

fn setting(name: &str) -> Result<String> {
    env::var(name).ok().filter(|value| !value.is_empty()).with_context(|| format!("{name} is not set"))
}
