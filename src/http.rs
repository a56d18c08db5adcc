//! The HTTP face: one router, in layers from the outside in.
//!
//! | layer | what it answers by itself |
//! |---|---|
//! | request id, access event, panic | 500 |
//! | CORS | preflight, before any token is asked for |
//! | Host and Origin (`guard`) | 403 |
//! | bearer token and rate (`auth`) | 401, 429 |
//! | JSON-RPC envelope (`envelope`) | 400, 403 insufficient_scope, 413, 415 |
//! | silence (`keepalive`) | opens the answer as a stream |
//! | rmcp | everything else |

mod auth;
mod envelope;
mod guard;
mod keepalive;
mod problem;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use url::Url;
use uuid::Uuid;

use crate::auth::{Auth, Caller};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::mcp::Handler;

/// What an operator can set of the transport.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Where clients reach memser, without `/mcp`.
    pub public_url: Url,
    /// Host names that requests may name beside the public one and loopback.
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call.
    pub allowed_origins: Vec<String>,
    /// The longest request body.
    pub max_body_bytes: usize,
    /// The longest tool call.
    pub call_timeout: Duration,
    /// Requests a second of one token.
    pub rate_limit: Option<NonZeroU32>,
    /// How long a call may be silent before its answer is opened as a stream.
    pub silent_after: Duration,
    /// How often such a stream says that it is alive.
    pub comment_every: Duration,
}

/// What the layers share.
#[derive(Clone)]
struct Context {
    engine: Arc<Engine>,
    auth: Arc<Auth>,
    clock: Clock,
    settings: Arc<HttpSettings>,
    limiter: Option<Arc<auth::Limiter>>,
}

impl Context {
    /// The challenge that tells a client how to get in.
    fn challenge(&self, error: Option<&str>) -> HeaderValue {
        let base = self.settings.public_url.as_str().trim_end_matches('/');
        let error = error.map(|error| format!(", {error}")).unwrap_or_default();
        let text =
            format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"{error}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Everything that memser answers to over HTTP.
pub fn router(
    engine: Arc<Engine>,
    auth: Arc<Auth>,
    clock: Clock,
    settings: HttpSettings,
    shutdown: CancellationToken,
) -> Router {
    let limiter = settings.rate_limit.map(|rate| Arc::new(auth::limiter(rate)));
    let cors = cors(&settings);
    let service = mcp_service(engine.clone(), &settings, shutdown);
    let context = Context {
        engine,
        auth,
        clock,
        settings: Arc::new(settings),
        limiter,
    };
    let mcp = Router::new()
        .route_service("/mcp", service.clone())
        .route_service("/mcp/", service)
        .layer(from_fn_with_state(context.clone(), keepalive::layer))
        .layer(from_fn_with_state(context.clone(), envelope::layer))
        .layer(from_fn_with_state(context.clone(), auth::layer))
        .layer(from_fn_with_state(context.clone(), guard::layer));
    Router::new()
        .route("/livez", get(async || Json(json!({ "status": "ok" }))))
        .route("/readyz", get(readyz))
        .route("/.well-known/oauth-protected-resource", get(resource_metadata))
        .route(
            "/.well-known/oauth-protected-resource/mcp",
            get(resource_metadata),
        )
        .with_state(context)
        .merge(mcp)
        .fallback(async || {
            problem::answer(
                StatusCode::NOT_FOUND,
                "not_found",
                "There is nothing at this path.",
            )
        })
        .layer(cors)
        .layer(CatchPanicLayer::custom(|_panic| {
            tracing::error!("a request handler panicked");
            problem::answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "An internal error.",
            )
        }))
        .layer(from_fn(access))
}

/// Sessions are off, so that any replica can answer any request and nothing dies of idleness.
fn mcp_service(
    engine: Arc<Engine>,
    settings: &HttpSettings,
    shutdown: CancellationToken,
) -> StreamableHttpService<Handler, NeverSessionManager> {
    let handler = Handler::new(engine, settings.call_timeout);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // Checked by our own layer, in front of authentication.
        .disable_allowed_hosts()
        .with_max_request_body_bytes(settings.max_body_bytes)
        .with_cancellation_token(shutdown);
    StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), config)
}

/// Browsers may call from the origins that were allowed, and read what a client needs from the answers.
fn cors(settings: &HttpSettings) -> CorsLayer {
    let origins = settings
        .allowed_origins
        .iter()
        .filter_map(|origin| HeaderValue::from_str(origin).ok());
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(
            [
                "authorization",
                "content-type",
                "accept",
                "mcp-session-id",
                "mcp-protocol-version",
                "mcp-method",
                "mcp-name",
                "last-event-id",
                "x-request-id",
            ]
            .map(HeaderName::from_static),
        )
        .expose_headers(["mcp-session-id", "www-authenticate", "x-request-id"].map(HeaderName::from_static))
        .max_age(Duration::from_secs(3_600))
}

/// Names the request and writes its one access event: never its query, its headers or its body.
async fn access(mut request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(&REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .filter(|id| (1..=128).contains(&id.len()))
        .filter(|id| {
            id.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
        })
        .map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
    let (method, path, started) = (
        request.method().clone(),
        request.uri().path().to_owned(),
        Instant::now(),
    );
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let subject = response
        .extensions()
        .get::<Caller>()
        .map(|caller| caller.subject.clone());
    tracing::info!(
        request.id = %id,
        %method,
        path,
        status = response.status().as_u16(),
        subject = subject.as_deref().unwrap_or("-"),
        duration_ms = started.elapsed().as_secs_f64() * 1_000.0,
        "{method} {path} {}",
        response.status().as_u16()
    );
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID.clone(), id);
    }
    response
}

/// The id that a request has throughout memser.
#[derive(Clone, Debug)]
struct RequestId(String);

async fn readyz(State(context): State<Context>) -> Response {
    let ready = context.engine.readiness().await;
    let word = |up| if up { "ok" } else { "down" };
    let status = if ready.postgres {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = json!({
        "status": if ready.postgres { "ready" } else { "unready" },
        "postgres": word(ready.postgres),
        "working": word(ready.working),
        "embedder": word(ready.embedder),
    });
    (status, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// RFC 9728. memser issues no tokens itself; with static tokens there is no authorization server to name.
async fn resource_metadata(State(context): State<Context>) -> Response {
    let base = context.settings.public_url.as_str().trim_end_matches('/');
    Json(json!({
        "resource": format!("{base}/mcp"),
        "resource_name": "memser",
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["memory:read", "memory:write"],
    }))
    .into_response()
}
