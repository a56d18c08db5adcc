//! Bearer token -> caller, and the metadata by which OAuth clients find their way.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};
use url::Url;

use super::access::{RequestId, Subject};
use super::limits::Limits;
use super::reply::refusal;
use crate::auth::{Auth, Refusal, Standing};
use crate::clock::Clock;
use crate::model::Action;

pub(super) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// When to ask again while the issuer's keys are not to be had, in seconds.
const KEYS_RETRY_SECONDS: u64 = 30;

/// What the authentication layer needs.
pub(super) struct Gate {
    pub(super) auth: Arc<Auth>,
    pub(super) clock: Clock,
    pub(super) challenge: Challenge,
    pub(super) limits: Limits,
}

/// Where OAuth clients learn how to get a token.
#[derive(Clone, Debug)]
pub(super) struct Challenge {
    base: String,
    issuer: Option<String>,
}

impl Challenge {
    pub(super) fn new(public_url: &Url, issuer: Option<&str>) -> Self {
        Self { base: public_url.as_str().trim_end_matches('/').to_owned(), issuer: issuer.map(str::to_owned) }
    }

    /// The protected resource's metadata (RFC 9728).
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({
            "resource": format!("{}/mcp", self.base),
            "resource_name": "memser",
            "bearer_methods_supported": ["header"],
            "scopes_supported": [scope_name(Action::Read), scope_name(Action::Write)],
        });
        if let Some(issuer) = &self.issuer {
            metadata["authorization_servers"] = json!([issuer]);
        }
        metadata
    }

    fn header(&self, scope: Action, error: Option<&str>) -> Option<HeaderValue> {
        let error = error.map(|error| format!("error=\"{error}\", ")).unwrap_or_default();
        let scope = scope_name(scope);
        let metadata = format!("{}{METADATA_PATH}/mcp", self.base);
        HeaderValue::from_str(&format!("Bearer {error}resource_metadata=\"{metadata}\", scope=\"{scope}\""))
            .ok()
    }

    /// 401; `error` only where a token was looked at (RFC 6750, 3.1).
    fn unauthorised(&self, message: &str, error: Option<&str>) -> Response {
        let hint = "Send the header Authorization: Bearer <token>, once.";
        let response = refusal(StatusCode::UNAUTHORIZED, "unauthorised", message, hint);
        self.attach(response, Action::Read, error)
    }

    fn invalid(&self) -> Response {
        self.unauthorised("the token is unknown or has expired", Some("invalid_token"))
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

/// Lets identified callers through, whatever the method; the caller travels in the request's extensions.
pub(super) async fn identify(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let token = match bearer(request.headers()) {
        Bearer::Token(token) => token,
        Bearer::None => return gate.challenge.unauthorised("a bearer token is needed", None),
        Bearer::Ambiguous => {
            return gate.challenge.unauthorised("there are two Authorization headers", None);
        }
    };
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let caller = match gate.auth.identify(token, request_id, gate.clock.now()).await {
        Ok(caller) => caller,
        Err(Refusal::Invalid) => return gate.challenge.invalid(),
        Err(Refusal::Unavailable) => return keys_unavailable(),
    };
    let subject = caller.subject.clone();
    let standing = Standing::new(&gate.auth, token, gate.clock.clone());
    request.extensions_mut().insert(standing);
    request.extensions_mut().insert(caller);
    let mut response = gate.limits.run(&subject, next.run(request)).await;
    response.extensions_mut().insert(Subject(subject));
    response
}

/// 503 for a JWT that nobody can check now: 401 would make the client throw away a good token.
fn keys_unavailable() -> Response {
    let hint = format!("Try again in {KEYS_RETRY_SECONDS} s.");
    let message = "the token issuer's keys are unavailable";
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message, &hint);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(KEYS_RETRY_SECONDS));
    response
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
