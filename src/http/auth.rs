//! Who calls: a bearer token on every request, in the header and nowhere else.

use std::num::NonZeroU32;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::{Context, RequestId, problem};
use crate::error::Error;

/// Counts the requests of each token, on this replica.
pub(super) type Limiter = DefaultKeyedRateLimiter<String>;

/// As many requests a second, with one second's worth at once.
pub(super) fn limiter(rate: NonZeroU32) -> Limiter {
    RateLimiter::keyed(Quota::per_second(rate))
}

pub(super) async fn layer(State(context): State<Context>, mut request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        // Nothing was wrong with a token: there was none, and RFC 6750 wants no error code then.
        return unauthorised(&context, None);
    };
    let request_id = request
        .extensions()
        .get::<RequestId>()
        .map(|id| id.0.clone())
        .unwrap_or_default();
    let Some(caller) = context.auth.identify(token, request_id, context.clock.now()) else {
        return unauthorised(&context, Some(r#"error="invalid_token""#));
    };
    if let Some(limiter) = &context.limiter
        && let Err(not_until) = limiter.check_key(&caller.subject)
    {
        let retry_after = not_until.wait_time_from(DefaultClock::default().now());
        return too_many(&Error::RateLimited { retry_after }, retry_after.as_secs() + 1);
    }
    request.extensions_mut().insert(caller.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(caller);
    response
}

/// The token of the only `Authorization` header, where its scheme is Bearer.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorised(context: &Context, error: Option<&str>) -> Response {
    let message = "A bearer token is needed: Authorization: Bearer <token>.";
    let mut response = problem::answer(StatusCode::UNAUTHORIZED, "unauthorized", message);
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, context.challenge(error));
    response
}

fn too_many(error: &Error, seconds: u64) -> Response {
    let mut response = problem::answer(StatusCode::TOO_MANY_REQUESTS, error.code(), &error.hint());
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}
