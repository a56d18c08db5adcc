//! The audit log: one row for every call, allowed or denied.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Result;

/// One row. `detail` never holds content, queries or tokens.
#[derive(Clone, Debug)]
pub struct AuditRow {
    /// When the call was made.
    pub at: DateTime<Utc>,
    /// The request's id.
    pub request_id: String,
    /// The token's name, or `memser` for sweeps.
    pub subject: String,
    /// Who acts, as the caller said.
    pub actor: Option<String>,
    /// The tool or sweep.
    pub action: &'static str,
    /// The scope's name.
    pub scope: Option<String>,
    /// The memory, where it is one.
    pub memory_id: Option<Uuid>,
    /// `ok`, or the error's code.
    pub outcome: &'static str,
    /// What else the action says of itself.
    pub detail: Value,
}

/// Appends rows, through a change's own transaction or another.
///
/// # Errors
/// When the connection is lost.
pub async fn append(conn: &mut PgConnection, rows: &[AuditRow]) -> Result<()> {
    let at: Vec<_> = rows.iter().map(|row| row.at).collect();
    let request_id: Vec<_> = rows.iter().map(|row| row.request_id.clone()).collect();
    let subject: Vec<_> = rows.iter().map(|row| row.subject.clone()).collect();
    let actor: Vec<_> = rows.iter().map(|row| row.actor.clone()).collect();
    let action: Vec<_> = rows.iter().map(|row| row.action.to_owned()).collect();
    let scope: Vec<_> = rows.iter().map(|row| row.scope.clone()).collect();
    let memory_id: Vec<_> = rows.iter().map(|row| row.memory_id).collect();
    let outcome: Vec<_> = rows.iter().map(|row| row.outcome.to_owned()).collect();
    let detail: Vec<_> = rows.iter().map(|row| Json(row.detail.clone())).collect();
    sqlx::query!(
        "insert into memory_audit_log
                (at, request_id, subject, actor, action, scope, memory_id, outcome, detail)
         select * from unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                              $7::uuid[], $8::text[], $9::jsonb[])",
        &at,
        &request_id,
        &subject,
        &actor as _,
        &action,
        &scope as _,
        &memory_id as _,
        &outcome,
        &detail as _
    )
    .execute(conn)
    .await?;
    Ok(())
}
