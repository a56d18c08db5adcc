//! The HTTP service: `/mcp` with the layers in front of it, health, what operators look at, and the metadata that OAuth
//! clients look for.
//!
//! From the outside in: request id and log line, what is left of a refused body, requests of two meanings, panics, `Host`
//! and `Origin`, CORS, token and rate limit, the message's envelope, life signs for silent calls, rmcp.

mod access;
mod ambiguous;
mod auth;
mod body;
mod drain;
mod envelope;
mod health;
mod keepalive;
mod limits;
mod listen;
mod metrics;
mod origin;
mod reply;
mod rest;
mod serve;
mod trace;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any_service, get};
use axum::{Json, Router};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use url::Url;

use self::auth::{Challenge, Gate, METADATA_PATH};
use self::envelope::Envelope;
use self::keepalive::Patience;
use self::limits::Limits;
pub use self::metrics::listener as metrics_listener;
use self::origin::Allowed;
pub use self::serve::{ConnectionLimits, serve};
use crate::auth::{Auth, TokenLimits};
use crate::clock::Clock;
use crate::engine::Engine;

/// How the service presents itself and what it puts up with.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The address clients use, without `/mcp`.
    pub public_url: Url,
    /// Further `Host` names, with or without a port; the public URL's host and loopback are always allowed.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, such as `https://app.example:443` or `http://localhost:*`.
    pub allowed_origins: Vec<String>,
    /// The largest body taken.
    pub max_body_bytes: usize,
    /// When a tool call is stopped.
    pub call_timeout: Duration,
    /// Where OAuth clients get tokens, where there is such a place.
    pub issuer: Option<String>,
    /// What each token may ask for.
    pub token_limits: TokenLimits,
    /// When a call that has not answered gets an event stream.
    pub silent_after: Duration,
    /// How often such a stream shows a sign of life.
    pub comment_every: Duration,
}

/// How a shutdown ends what is still under way. In this order.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Cancelled, it ends the streams that wait for changes: at once, because no time would be enough for them.
    pub subscriptions: CancellationToken,
    /// Cancelled, it stops the calls that still run when their time is up; each is answered with an error.
    pub calls: CancellationToken,
    /// Cancelled, it cuts the streams that are open even then.
    pub streams: CancellationToken,
}

/// The service, with `handler` behind `/mcp`.
pub fn router<H: ServerHandler + Clone>(
    handler: H,
    engine: Arc<Engine>,
    auth: Arc<Auth>,
    clock: Clock,
    settings: &HttpSettings,
    ends: Ends,
) -> Router {
    let allowed =
        Arc::new(Allowed::new(&settings.public_url, &settings.allowed_hosts, &settings.allowed_origins));
    let metrics = engine.metrics().clone();
    let challenge = Challenge::new(&settings.public_url, settings.issuer.as_deref());
    let limits = Limits::new(settings.token_limits);
    let gate = Arc::new(Gate { auth, clock: clock.clone(), challenge: challenge.clone(), limits });
    let metadata = challenge.metadata();
    let metadata = get(move || std::future::ready(Json(metadata.clone())));
    let rest = rest::router(
        Arc::clone(&engine),
        Arc::clone(&gate),
        settings.max_body_bytes,
        settings.call_timeout,
        ends.calls.clone(),
    );
    let guarded = Router::new()
        .route(METADATA_PATH, metadata.clone())
        .route(&format!("{METADATA_PATH}/mcp"), metadata)
        .merge(rest)
        .merge(mcp(handler, &engine, Arc::clone(&gate), settings, challenge.clone(), &allowed, ends))
        // Within the layers below: a preflight is a method that a path has not.
        .method_not_allowed_fallback(reply::method_not_allowed)
        .route_layer(origin::cors(Arc::clone(&allowed)))
        .route_layer(from_fn_with_state(allowed, origin::check));
    // A scraper names the server as it likes: a token is asked for, and no browser sends one by itself.
    let scrape = Router::new()
        .route("/metrics", get(metrics::show).with_state((Arc::clone(&engine), challenge)))
        // Behind the gate as well, so that nobody learns without a token what is served.
        .method_not_allowed_fallback(reply::method_not_allowed)
        .route_layer(from_fn_with_state(gate, auth::identify));
    Router::new()
        .merge(scrape)
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready).with_state(engine))
        .merge(guarded)
        .fallback(not_found)
        .method_not_allowed_fallback(reply::method_not_allowed)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(ambiguous::refuse))
        .layer(from_fn(drain::drain))
        .layer(from_fn_with_state((clock, metrics), access::record))
}

/// Both spellings of the endpoint: a redirect would drop the body or the token.
fn mcp<H: ServerHandler + Clone>(
    handler: H,
    engine: &Arc<Engine>,
    gate: Arc<Gate>,
    settings: &HttpSettings,
    challenge: Challenge,
    allowed: &Allowed,
    ends: Ends,
) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(Some(settings.comment_every))
        .with_max_request_body_bytes(settings.max_body_bytes)
        .with_allowed_hosts(allowed.hosts().to_vec())
        .with_allowed_origins(allowed.origins().to_vec())
        .with_cancellation_token(ends.streams);
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let envelope =
        Envelope { engine: Arc::clone(engine), challenge, max_body_bytes: settings.max_body_bytes };
    let patience = Patience { silent_after: settings.silent_after, comment_every: settings.comment_every };
    let layers = ServiceBuilder::new()
        .layer(from_fn_with_state(gate, auth::identify))
        .layer(from_fn_with_state(Arc::new(envelope), envelope::open))
        .layer(from_fn_with_state(patience, keepalive::keep_alive));
    Router::new()
        .route("/mcp", any_service(service.clone()))
        .route("/mcp/", any_service(service))
        .route_layer(layers)
}

/// 404 for every path that is not served, in the shape that clients of its neighbours expect.
async fn not_found(uri: Uri) -> Response {
    if uri.path().starts_with("/v1/") { rest::not_found() } else { reply::not_found() }
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a handler panicked");
    let hint = "The operator finds the cause in the log by the request id.";
    reply::refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error", hint)
}
