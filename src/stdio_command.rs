//! `memser stdio`: for clients that start a command and talk to it.

use anyhow::Context;
use clap::Args;
use memser::app::Local;
use memser::auth::Grant;
use memser::clock::Clock;
use memser::config::Config;
use memser::stdio::{self, Upstream};
use url::Url;

/// Whose memories, and where they are.
#[derive(Args)]
pub(crate) struct StdioCommand {
    /// What the client may do where, such as `user:anna=write`; may be given several times. With one exact scope, calls
    /// may leave `scope` out.
    #[arg(long = "grant", value_name = "SCOPE=ACTION", default_value = "user:me=admin")]
    grants: Vec<Grant>,
    /// Use the memser at this address, such as `https://memory.example.com/mcp`, with the token in `MEMSER_CLIENT_TOKEN`.
    #[arg(long, conflicts_with = "grants")]
    url: Option<Url>,
}

/// Serves until standard input ends or `stop` resolves.
pub(crate) async fn run(
    command: StdioCommand,
    config: &Config,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let mut stop = Box::pin(stop);
    if let Some(url) = command.url {
        let token = config.client_token.clone();
        let token =
            token.context("--url needs a token: set MEMSER_CLIENT_TOKEN or MEMSER_CLIENT_TOKEN_FILE")?;
        stdio::serve(Upstream::there(url, &token)?, config.shutdown_timeout, stop).await;
        return Ok(());
    }
    let local = tokio::select! {
        started = Local::start(config, Clock::System, command.grants) => started?,
        () = &mut stop => return Ok(()),
    };
    local.run_until(stop).await
}
