//! A memser for the one client that started it: no port, and no token but its own.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::core::Core;
use super::keeper::{Keeper, share_for_good};
use super::{handler, http_settings};
use crate::auth::{Auth, Grant, random_token};
use crate::clock::Clock;
use crate::config::Config;
use crate::http::{self, Ends};
use crate::stdio::{self, Upstream};

/// Whom the audit log shows.
const SUBJECT: &str = "stdio";

/// A memser that serves standard input and output.
#[derive(Debug)]
pub struct Local {
    core: Core,
    keeper: Keeper,
    upstream: Upstream,
    ends: Ends,
    shutdown_timeout: Duration,
}

impl Local {
    /// Builds the parts for a client with these grants, on the private Postgres of a memser that runs where there is one.
    ///
    /// # Errors
    /// When a part does not start; the message says what to do.
    pub async fn start(config: &Config, clock: Clock, grants: Vec<Grant>) -> anyhow::Result<Self> {
        let (keeper, database) = share_for_good(config).await?;
        let core = match Core::start(config, clock.clone(), database).await {
            Ok(core) => core,
            Err(error) => {
                keeper.stop().await?;
                return Err(error);
            }
        };
        // What the process sends to itself takes the way of every request, so that it is checked, audited and answered
        // like one.
        let token = random_token();
        let mut auth = Auth::default();
        auth.add_token(SUBJECT, &token, grants);
        let ends = Ends::default();
        let settings = http_settings(config, Url::parse(Upstream::HERE)?);
        let handler = handler(config, &core.engine, &ends);
        let engine = Arc::clone(&core.engine);
        let router = http::router(handler, engine, Arc::new(auth), clock, &settings, ends.clone());
        let upstream = Upstream::here(router, &token)?;
        Ok(Self { core, keeper, upstream, ends, shutdown_timeout: config.shutdown_timeout })
    }

    /// Serves until standard input ends or `stop` resolves; then lets calls under way finish for a while, answers the
    /// rest with an error, writes what waits to be written, and stops every part.
    ///
    /// # Errors
    /// When a part does not stop.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let scheduler = self.core.schedule().await?;
        stdio::serve(self.upstream, self.shutdown_timeout, stop).await;
        self.ends.subscriptions.cancel();
        self.ends.calls.cancel();
        self.ends.streams.cancel();
        if let Some(mut scheduler) = scheduler {
            scheduler.shutdown().await?;
        }
        self.core.stop().await;
        self.keeper.stop().await
    }
}
