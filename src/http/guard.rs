//! Host and Origin, before anything else: a browser that was led here by DNS rebinding gets nowhere.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{StatusCode, header};

use super::{Context, HttpSettings, problem};

pub(super) async fn layer(State(context): State<Context>, request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // HTTP/2 has no Host header: the authority stands in the URI.
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
    if !host.is_some_and(|host| is_allowed_host(host, &context.settings)) {
        return problem::answer(
            StatusCode::FORBIDDEN,
            "host_not_allowed",
            "This host name is not allowed; the operator allows it with MEMSER_PUBLIC_URL or MEMSER_ALLOWED_HOSTS.",
        );
    }
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    if !origins.all(|origin| {
        origin
            .to_str()
            .is_ok_and(|origin| is_allowed_origin(origin, &context.settings))
    }) {
        return problem::answer(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "This origin is not allowed; the operator allows it with MEMSER_ALLOWED_ORIGINS.",
        );
    }
    next.run(request).await
}

/// Loopback, the public host and the allowed ones; an entry without a port stands for every port.
fn is_allowed_host(host: &str, settings: &HttpSettings) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    if matches!(name, "localhost" | "127.0.0.1" | "::1") {
        return true;
    }
    let public = settings
        .public_url
        .host_str()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    name.eq_ignore_ascii_case(public)
        || settings.allowed_hosts.iter().any(|allowed| {
            allowed.eq_ignore_ascii_case(authority.as_str())
                || allowed
                    .trim_start_matches('[')
                    .trim_end_matches(']')
                    .eq_ignore_ascii_case(name)
        })
}

/// The origins that were allowed, the public URL's own, and pages served from loopback.
fn is_allowed_origin(origin: &str, settings: &HttpSettings) -> bool {
    if settings
        .allowed_origins
        .iter()
        .any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
    {
        return true;
    }
    url::Url::parse(origin).is_ok_and(|parsed| {
        let is_loopback = matches!(parsed.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        parsed.origin().is_tuple() && (is_loopback || parsed.origin() == settings.public_url.origin())
    })
}
