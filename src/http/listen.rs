//! Readies a request for `subscriptions/listen`: rmcp confirms to the client what it will be told before any handler
//! sees who calls, so that what the caller may not read is left out of the request here.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::reply::{INTERNAL_ERROR, INVALID_PARAMS, rpc_error};
use crate::auth::Caller;
use crate::db::feed::Subscription;
use crate::engine::Engine;
use crate::mcp;

pub(super) const METHOD: &str = "subscriptions/listen";
/// How many resources one stream may watch.
const MAX_WATCHED: usize = 100;

/// Leaves the URIs that the caller may read, and subscribes before anything is confirmed.
pub(super) async fn ready(
    engine: &Engine,
    caller: &Caller,
    message: &mut Value,
) -> Result<Subscription, Box<Response>> {
    let id = message.get("id").cloned();
    let watched = message.pointer_mut("/params/notifications/resourceSubscriptions");
    if let Some(uris) = watched.and_then(Value::as_array_mut) {
        if uris.len() > MAX_WATCHED {
            let words = format!(
                "params.notifications.resourceSubscriptions names {} resources: at most {MAX_WATCHED} a stream; for \
                 more, ask for resourcesListChanged",
                uris.len()
            );
            return Err(Box::new(rpc_error(StatusCode::BAD_REQUEST, id, INVALID_PARAMS, &words)));
        }
        // What is no text is left to rmcp to refuse.
        uris.retain(|uri| uri.as_str().is_none_or(|uri| mcp::may_watch(caller, uri)));
    }
    engine.changes().await.map_err(|error| {
        let words = format!("{error}. {}", error.hint());
        Box::new(rpc_error(StatusCode::SERVICE_UNAVAILABLE, id, INTERNAL_ERROR, &words))
    })
}
