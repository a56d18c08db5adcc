//! `GET /v1/jobs`: how sweeps are.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::auth::Challenge;
use super::reply;
use crate::auth::Caller;
use crate::engine::Engine;
use crate::model::Action;

/// Shows the jobs to callers that administer any scope.
pub(super) async fn show(
    State((engine, challenge)): State<(Arc<Engine>, Challenge)>,
    Extension(caller): Extension<Caller>,
) -> Response {
    if !caller.may_somewhere(Action::Admin) {
        return challenge.insufficient(Action::Admin);
    }
    match engine.jobs(&caller).await {
        Ok(jobs) => Json(jobs).into_response(),
        Err(error) => reply::failed(&error),
    }
}
