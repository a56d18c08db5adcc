//! Which `Host` and `Origin` headers are taken, against DNS rebinding, and CORS for the origins that are.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use tower_http::cors::{AllowOrigin, CorsLayer};
use url::Url;

use super::reply::refusal;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The hosts and origins that are allowed.
#[derive(Debug)]
pub(super) struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Allowed {
    /// The given ones, the public URL's own, and loopback: its hosts always, its origins where memser is local.
    pub(super) fn new(public_url: &Url, hosts: &[String], origins: &[String]) -> Self {
        let own_host = public_url.host_str().unwrap_or_default().to_owned();
        let local = LOOPBACK.contains(&own_host.as_str());
        let loopback = LOOPBACK.iter().map(|host| format!("http://{host}:*")).filter(|_| local);
        let port = public_url.port_or_known_default().unwrap_or_default();
        let own_origin = format!("{}://{own_host}:{port}", public_url.scheme());
        Self {
            hosts: LOOPBACK
                .map(str::to_owned)
                .into_iter()
                .chain([own_host])
                .chain(hosts.iter().cloned())
                .collect(),
            origins: origins
                .iter()
                .map(|origin| with_port(origin))
                .chain([own_origin])
                .chain(loopback)
                .collect(),
        }
    }

    /// For rmcp, which checks again.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// For rmcp, which checks again; each with its port.
    pub(super) fn origins(&self) -> &[String] {
        &self.origins
    }

    /// A host without a port stands for every port of it.
    fn host(&self, authority: &Authority) -> bool {
        self.hosts.iter().filter_map(|allowed| allowed.parse::<Authority>().ok()).any(|allowed| {
            allowed.host().eq_ignore_ascii_case(authority.host())
                && (allowed.port_u16().is_none() || allowed.port_u16() == authority.port_u16())
        })
    }

    fn origin(&self, origin: &HeaderValue) -> bool {
        let Some(origin) = origin.to_str().ok().filter(|origin| *origin != "null") else {
            return false;
        };
        let origin = with_port(origin);
        self.origins.iter().any(|allowed| match allowed.strip_suffix(":*") {
            Some(start) => origin.rsplit_once(':').is_some_and(|(host, _)| host.eq_ignore_ascii_case(start)),
            None => allowed.eq_ignore_ascii_case(&origin),
        })
    }
}

/// An origin with its scheme's port where it names none.
fn with_port(origin: &str) -> String {
    let origin = origin.trim().trim_end_matches('/');
    match origin.parse::<Url>() {
        Ok(url) if url.host_str().is_some() && url.path() == "/" && !origin.contains('@') => format!(
            "{}://{}:{}",
            url.scheme(),
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default()
        ),
        _ => origin.to_owned(),
    }
}

/// Refuses requests to other hosts and from other origins, before anything else is looked at.
pub(super) async fn check(State(allowed): State<Arc<Allowed>>, request: Request, next: Next) -> Response {
    let host = authority(request.headers()).or_else(|| request.uri().authority().cloned());
    // A user has no place in it, and whoever reads the header otherwise would take it for the host.
    let plain = |host: &Authority| !host.as_str().contains('@');
    if !host.is_some_and(|host| plain(&host) && allowed.host(&host)) {
        let hint = "The operator names the hosts in MEMSER_PUBLIC_URL and MEMSER_ALLOWED_HOSTS.";
        return refusal(StatusCode::FORBIDDEN, "host_not_allowed", "this Host is not allowed", hint);
    }
    if request.headers().get(header::ORIGIN).is_some_and(|origin| !allowed.origin(origin)) {
        let hint = "The operator names the origins in MEMSER_ALLOWED_ORIGINS.";
        return refusal(StatusCode::FORBIDDEN, "origin_not_allowed", "this Origin is not allowed", hint);
    }
    next.run(request).await
}

fn authority(headers: &HeaderMap) -> Option<Authority> {
    headers.get(header::HOST)?.to_str().ok()?.parse().ok()
}

/// CORS for the allowed origins, on refusals too; a preflight is answered here, before any token is asked for.
pub(super) fn cors(allowed: Arc<Allowed>) -> CorsLayer {
    let predicate = move |origin: &HeaderValue, _: &request::Parts| allowed.origin(origin);
    let exposed =
        ["www-authenticate", "mcp-session-id", "x-request-id", "retry-after"].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(predicate))
        .allow_methods([Method::GET, Method::POST, Method::DELETE, Method::OPTIONS])
        // Mirrored, because of the open-ended mcp-param-* of 2026-07-28.
        .allow_headers(tower_http::cors::AllowHeaders::mirror_request())
        .expose_headers(exposed)
}
