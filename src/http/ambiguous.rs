//! Requests that two readers could read differently are refused: what a proxy decided by one header must not be undone
//! by another of the same name.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::reply::refusal;

/// Headers that say one thing, and by which a proxy may decide. `Authorization` has an answer of its own.
const SINGLE: [&str; 6] =
    ["host", "content-type", "origin", "mcp-protocol-version", "mcp-method", "mcp-name"];

/// Refuses what is ambiguous, whatever the path.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    match ambiguity(&request) {
        Some(what) => {
            let hint = "Send each of these once and with one meaning.";
            refusal(StatusCode::BAD_REQUEST, "ambiguous_request", what, hint)
        }
        None => next.run(request).await,
    }
}

fn ambiguity(request: &Request) -> Option<&'static str> {
    let headers = request.headers();
    if SINGLE.iter().any(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        return Some("a header that must not be repeated is there twice");
    }
    let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    if let (Some(target), Some(host)) = (target, host)
        && !target.eq_ignore_ascii_case(host)
    {
        return Some("the request's target and its Host header name different hosts");
    }
    is_coded_otherwise(headers).then_some("Transfer-Encoding has to be chunked, once")
}

/// hyper goes by the last coding and by the last header.
fn is_coded_otherwise(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = codings.next();
    codings.next().is_some()
        || first.is_some_and(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
}
