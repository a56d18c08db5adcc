//! Whether the process lives and whether it can serve.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::engine::Engine;

/// Touches nothing: a slow database must not get healthy processes restarted.
pub(super) async fn live() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Ready exactly while Postgres answers; the other parts only narrow what is served.
pub(super) async fn ready(State(engine): State<Arc<Engine>>) -> Response {
    let parts = engine.readiness().await;
    let status = if parts.postgres { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = |up| if up { "ok" } else { "down" };
    let mut body = json!({
        "status": word(parts.postgres),
        "postgres": word(parts.postgres),
        "working": word(parts.working),
        "embedder": word(parts.embedder),
    });
    if let Some(llm) = parts.llm {
        body["llm"] = json!(word(llm));
    }
    (status, Json(body)).into_response()
}
