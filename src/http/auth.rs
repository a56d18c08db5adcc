//! Bearer token -> caller, the limit on its requests, and the metadata by which OAuth clients find their way.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use serde_json::{Value, json};
use url::Url;

use super::access::{RequestId, Subject};
use super::reply::{rate_limited, refusal};
use crate::auth::Auth;
use crate::clock::Clock;
use crate::error::Error;
use crate::model::Action;

pub(super) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// From this many subjects on, the limiter drops those that are at rest.
const SUBJECTS_KEPT: usize = 10_000;

/// What the authentication layer needs.
pub(super) struct Gate {
    pub(super) auth: Arc<Auth>,
    pub(super) clock: Clock,
    pub(super) challenge: Challenge,
    pub(super) limiter: Option<DefaultKeyedRateLimiter<String>>,
}

/// Where OAuth clients learn how to get a token.
#[derive(Clone, Debug)]
pub(super) struct Challenge {
    base: String,
}

impl Challenge {
    pub(super) fn new(public_url: &Url) -> Self {
        Self { base: public_url.as_str().trim_end_matches('/').to_owned() }
    }

    /// The protected resource's metadata (RFC 9728).
    pub(super) fn metadata(&self) -> Value {
        json!({
            "resource": format!("{}/mcp", self.base),
            "resource_name": "memser",
            "bearer_methods_supported": ["header"],
            "scopes_supported": [scope_name(Action::Read), scope_name(Action::Write)],
        })
    }

    fn header(&self, scope: Action, error: Option<&str>) -> Option<HeaderValue> {
        let error = error.map(|error| format!("error=\"{error}\", ")).unwrap_or_default();
        let scope = scope_name(scope);
        let metadata = format!("{}{METADATA_PATH}/mcp", self.base);
        HeaderValue::from_str(&format!("Bearer {error}resource_metadata=\"{metadata}\", scope=\"{scope}\""))
            .ok()
    }

    fn unauthorised(&self, token_sent: bool) -> Response {
        let message =
            if token_sent { "the token is unknown or has expired" } else { "a bearer token is needed" };
        let hint = "Send the header Authorization: Bearer <token>.";
        let response = refusal(StatusCode::UNAUTHORIZED, "unauthorised", message, hint);
        self.attach(response, Action::Read, token_sent.then_some("invalid_token"))
    }

    /// 403 for a token that lacks `action` on every scope.
    pub(super) fn insufficient(&self, action: Action) -> Response {
        let message = format!("this token lacks the {action} grant on every scope");
        let hint = format!("Ask the operator for a grant that includes {action}.");
        let response = refusal(StatusCode::FORBIDDEN, "action_not_granted", &message, &hint);
        self.attach(response, action, Some("insufficient_scope"))
    }

    fn attach(&self, mut response: Response, scope: Action, error: Option<&str>) -> Response {
        if let Some(value) = self.header(scope, error) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        response
    }
}

fn scope_name(action: Action) -> String {
    format!("memory:{action}")
}

/// A limiter of requests a second, for each subject.
pub(super) fn limiter(per_second: NonZeroU32) -> DefaultKeyedRateLimiter<String> {
    RateLimiter::keyed(Quota::per_second(per_second))
}

/// Lets identified callers through, whatever the method; the caller travels in the request's extensions.
pub(super) async fn identify(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let token = match bearer(request.headers()) {
        Bearer::Token(token) => token,
        Bearer::None => return gate.challenge.unauthorised(false),
        Bearer::Ambiguous => return gate.challenge.unauthorised(true),
    };
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let Some(caller) = gate.auth.identify(token, request_id, gate.clock.now()) else {
        return gate.challenge.unauthorised(true);
    };
    let subject = Subject(caller.subject.clone());
    let mut response = if let Some(wait) = gate.over_limit(&caller.subject) {
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
        rate_limited(&Error::RateLimited { retry_after: Duration::from_secs(seconds) }, seconds)
    } else {
        request.extensions_mut().insert(caller);
        next.run(request).await
    };
    response.extensions_mut().insert(subject);
    response
}

impl Gate {
    /// How long the subject has to wait, if it asked too often.
    fn over_limit(&self, subject: &str) -> Option<Duration> {
        let limiter = self.limiter.as_ref()?;
        if limiter.len() > SUBJECTS_KEPT {
            limiter.retain_recent();
        }
        let refused = limiter.check_key(&subject.to_owned()).err()?;
        Some(refused.wait_time_from(DefaultClock::default().now()))
    }
}

enum Bearer<'a> {
    Token(&'a str),
    None,
    Ambiguous,
}

/// The one bearer token of the `Authorization` header; a token anywhere else is never looked at.
fn bearer(headers: &HeaderMap) -> Bearer<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Bearer::None;
    };
    if values.next().is_some() {
        return Bearer::Ambiguous;
    }
    let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return Bearer::None;
    };
    match token.trim() {
        token if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() => Bearer::Token(token),
        _ => Bearer::None,
    }
}
