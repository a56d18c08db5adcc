//! The audit log: one row for every call, allowed or denied.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Db, Tx};
use crate::api::AuditEntry;
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

/// Drops up to `limit` rows of calls before a time, oldest first; answers how many.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn prune(db: &Db, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    let mut tx = Tx::all_scopes(db).await?;
    let pruned = sqlx::query!(
        // Materialised, or the planner may run the limited part more than once.
        "with old as materialized (
             select audit_id from memory_audit_log where at < $1 order by at limit $2 for update skip locked
         )
         delete from memory_audit_log l using old o where l.audit_id = o.audit_id",
        before,
        limit
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(pruned.rows_affected())
}

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Only calls for this scope.
    pub scope: Option<String>,
    /// Only calls of this token.
    pub subject: Option<String>,
    /// Only calls of this tool.
    pub action: Option<String>,
    /// Only calls that ended so.
    pub outcome: Option<String>,
    /// Only calls about this memory.
    pub memory_id: Option<Uuid>,
    /// Only calls at or after this time.
    pub after: Option<DateTime<Utc>>,
    /// Only calls before this time.
    pub before: Option<DateTime<Utc>>,
    /// The time and the number of the last row of the page before.
    pub beyond: Option<(DateTime<Utc>, i64)>,
    /// At most so many.
    pub limit: i64,
}

/// A page of rows, newest first: of the transaction's scope alone, or of all where it sees all.
///
/// # Errors
/// When the connection is lost.
pub async fn page(tx: &mut Tx, page: &Page) -> Result<Vec<AuditEntry>> {
    let beyond = page.beyond.unzip();
    let rows = sqlx::query_as!(
        AuditEntry,
        "select audit_id as id, at, request_id, subject, actor, action, scope, memory_id, outcome, detail
           from memory_audit_log
          where ($1::text is null or scope = $1)
            and ($2::text is null or subject = $2)
            and ($3::text is null or action = $3)
            and ($4::text is null or outcome = $4)
            and ($5::uuid is null or memory_id = $5)
            and ($6::timestamptz is null or at >= $6)
            and ($7::timestamptz is null or at < $7)
            and ($8::timestamptz is null or (at, audit_id) < ($8, $9))
          order by at desc, audit_id desc
          limit $10",
        page.scope,
        page.subject,
        page.action,
        page.outcome,
        page.memory_id,
        page.after,
        page.before,
        beyond.0,
        beyond.1,
        page.limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows)
}
