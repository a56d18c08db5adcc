//! The composition root: [`build`] does everything that can fail, [`App::run_until`] serves.

mod backup;
mod core;
mod embedding;
mod keeper;
mod local;
mod port;
mod tokens;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rmcp::ServerHandler;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use self::backup::{backup, restore};
use self::core::Core;
use self::keeper::{Keeper, share_for_good};
pub use self::local::Local;
pub use self::port::Import;
pub use self::worker::Worker;
use crate::auth::Auth;
use crate::clock::Clock;
use crate::config::{Config, External, Storage};
use crate::engine::Engine;
use crate::http::{self, ConnectionLimits, Ends, HttpSettings};
use crate::jobs::Jobs;
use crate::mcp::Handler;

/// How long the answers of stopped calls may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a silent call waits before its answer is opened as a stream, and between the stream's comments.
const SILENT_AFTER: Duration = Duration::from_secs(3);
const COMMENT_EVERY: Duration = Duration::from_secs(5);

/// A memser that is ready to serve.
#[derive(Debug)]
pub struct App {
    listener: TcpListener,
    /// For `/metrics` alone.
    metrics: Option<TcpListener>,
    router: axum::Router,
    auth: Arc<Auth>,
    core: Core,
    keeper: Keeper,
    /// Stops taking requests, and sweeps.
    shutdown: CancellationToken,
    /// How long calls under way may go on then, and what ends them.
    shutdown_timeout: Duration,
    ends: Ends,
    welcome: Welcome,
}

/// What a person who starts memser needs to connect a client.
#[derive(Debug)]
pub struct Welcome {
    /// The MCP endpoint.
    pub mcp_url: Url,
    /// The first token, where this start made it.
    pub first_token: Option<SecretString>,
    /// Where the first token is kept, where memser keeps one.
    pub token_file: Option<PathBuf>,
    /// What embeds texts.
    pub embedder: String,
}

/// Builds everything and binds the listener. Whatever was started is stopped again when a later step fails.
///
/// # Errors
/// When a part does not start; the message says what to do.
pub async fn build(config: Config, clock: Clock) -> anyhow::Result<App> {
    build_with(config, clock, |handler| handler).await
}

/// [`build`], with what `around` makes of the MCP handler in its place.
///
/// # Errors
/// Those of [`build`].
pub async fn build_with<H: ServerHandler + Clone>(
    config: Config,
    clock: Clock,
    around: impl FnOnce(Handler) -> H,
) -> anyhow::Result<App> {
    let listener = listen("MEMSER_BIND", config.bind).await?;
    let metrics = match config.metrics_bind {
        Some(address) => Some(listen("MEMSER_METRICS_BIND", address).await?),
        None => None,
    };
    let (keeper, database) = share_for_good(&config).await?;
    match assemble(&config, clock, listener, database, around).await {
        Ok(mut app) => {
            (app.keeper, app.metrics) = (keeper, metrics);
            Ok(app)
        }
        Err(error) => {
            keeper.stop().await?;
            Err(error)
        }
    }
}

async fn listen(setting: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("{setting}={address}: cannot listen there"))
}

async fn assemble<H: ServerHandler + Clone>(
    config: &Config,
    clock: Clock,
    listener: TcpListener,
    database: External,
    around: impl FnOnce(Handler) -> H,
) -> anyhow::Result<App> {
    let core = Core::start(config, clock.clone(), database).await?;
    // What a replica committed just before a crash, it may have told nobody: this may be the one that comes in its place.
    core.db.tell_everything_changed().await?;
    let shutdown = core.jobs.shutdown.clone();
    let ends = Ends { subscriptions: shutdown.clone(), ..Ends::default() };
    let public_url = config.public_url(listener.local_addr()?)?;
    let mcp_url: Url = format!("{}/mcp", public_url.as_str().trim_end_matches('/')).parse()?;
    let tokens::Accepted { auth, first_token, token_file } = tokens::accept(config, &mcp_url, &clock).await?;
    let auth = Arc::new(auth);
    let http = http_settings(config, public_url);
    let embedder = core.embedder_name.clone();
    let handler = around(handler(config, &core.engine, &ends));
    let engine = Arc::clone(&core.engine);
    let router = http::router(handler, engine, Arc::clone(&auth), clock, &http, ends.clone());
    Ok(App {
        router,
        auth,
        shutdown_timeout: config.shutdown_timeout,
        ends,
        listener,
        metrics: None,
        core,
        keeper: Keeper::Other,
        shutdown,
        welcome: Welcome { mcp_url, first_token, token_file, embedder },
    })
}

fn handler(config: &Config, engine: &Arc<Engine>, ends: &Ends) -> Handler {
    let (stop, shutdown) = (ends.calls.clone(), ends.subscriptions.clone());
    Handler::new(Arc::clone(engine), config.connector_tools, config.call_timeout, stop, shutdown)
}

fn http_settings(config: &Config, public_url: Url) -> HttpSettings {
    HttpSettings {
        public_url,
        allowed_hosts: config.allowed_hosts.clone(),
        allowed_origins: config.allowed_origins.clone(),
        // Room for the longest content with every character escaped, and for the other arguments.
        max_body_bytes: config.decisions.max_content_bytes * 6 + 256 * 1024,
        call_timeout: config.call_timeout,
        issuer: config.authorization_server.clone(),
        token_limits: config.token_limits,
        silent_after: SILENT_AFTER,
        comment_every: COMMENT_EVERY,
    }
}

/// What a person knows the database by.
#[must_use]
pub const fn database_name(storage: &Storage) -> &'static str {
    match storage {
        Storage::Embedded(_) => "memser's own Postgres",
        Storage::External(_) => "DATABASE_URL",
    }
}

impl App {
    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Where it shows metrics without a token, where it does.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn metrics_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        Ok(self.metrics.as_ref().map(TcpListener::local_addr).transpose()?)
    }

    /// What a person needs to connect a client.
    #[must_use]
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Who is let in: to read the token file again on demand.
    #[must_use]
    pub const fn auth(&self) -> &Arc<Auth> {
        &self.auth
    }

    /// The sweeps, to be run on demand.
    #[must_use]
    pub const fn jobs(&self) -> &Jobs {
        &self.core.jobs
    }

    /// The engine that serves.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.core.engine
    }

    /// Serves until `stop` resolves; then takes no new request, lets those under way finish for a while, answers the
    /// rest with an error, writes what waits to be written, and stops every part.
    ///
    /// # Errors
    /// When serving or stopping a part fails.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        let scheduler = self.core.schedule().await?;
        let shutdown = self.shutdown.clone();
        let stopping = shutdown.clone();
        tokio::spawn(async move {
            stop.await;
            stopping.cancel();
        });
        let graceful = shutdown.clone();
        let limits = ConnectionLimits::default();
        let serve =
            async move { http::serve(self.listener, self.router, limits, graceful.cancelled()).await };
        let mut server = tokio::spawn(serve);
        if let Some(listener) = self.metrics {
            let (router, stop) = (http::metrics_listener(Arc::clone(&self.core.engine)), shutdown.clone());
            tokio::spawn(async move { http::serve(listener, router, limits, stop.cancelled()).await });
        }
        let (patience, ends) = (self.shutdown_timeout, self.ends);
        let outcome = tokio::select! {
            ended = &mut server => ended,
            () = async {
                shutdown.cancelled().await;
                tokio::time::sleep(patience).await;
            } => {
                tracing::warn!("calls that took longer than {} s were stopped", patience.as_secs());
                ends.calls.cancel();
                let answered = tokio::time::timeout(LAST_WORDS, &mut server).await;
                ends.streams.cancel();
                server.abort();
                answered.unwrap_or(Ok(()))
            }
        };
        shutdown.cancel();
        if let Some(mut scheduler) = scheduler {
            scheduler.shutdown().await?;
        }
        self.core.stop().await;
        self.keeper.stop().await?;
        outcome.context("the server stopped")?;
        Ok(())
    }
}
