//! What superseded what, and the way back. A memory is active exactly while its `valid_to` is null.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{ScopeId, Tx, scope};
use crate::error::Result;

/// Supersedes active memories; answers how many were active. The caller holds the scope's lock and inserts
/// `successor` in the same transaction, if it is not there yet.
///
/// # Errors
/// When the connection is lost.
pub async fn supersede(
    tx: &mut Tx,
    scope: ScopeId,
    ids: &[Uuid],
    successor: Uuid,
    reason: &str,
    at: DateTime<Utc>,
) -> Result<u64> {
    // Most stores supersede nothing.
    if ids.is_empty() {
        return Ok(0);
    }
    let rows = sqlx::query!(
        r#"update memories
            set superseded_by = $3, superseded_reason = $4, valid_to = greatest($5, valid_from)
          where scope_id = $1 and id = any($2) and valid_to is null
      returning id, tier = 'episodic' and not looked_at as "todo!""#,
        scope.0,
        ids,
        successor,
        reason,
        at
    )
    .fetch_all(tx.conn())
    .await?;
    let superseded: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    tx.listed(scope, &superseded);
    let todo = rows.iter().filter(|row| row.todo).count();
    count_todo(tx, scope, -i64::try_from(todo).unwrap_or(0)).await?;
    Ok(rows.len() as u64)
}

/// What conflicts superseded on the way to `last`, directly or over others, of all that held at `at` or later.
///
/// # Errors
/// When the connection is lost.
pub async fn chain_to(tx: &mut Tx, scope: ScopeId, last: Uuid, at: DateTime<Utc>) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        // `union` without `all` ends a chain that would bite its own tail.
        r#"with recursive chain as (
               select id from memories
                where scope_id = $1 and superseded_by = $2 and superseded_reason = 'conflict' and valid_to > $3
               union
               select m.id
                 from chain c join memories m on m.scope_id = $1 and m.superseded_by = c.id
                where m.superseded_reason = 'conflict' and m.valid_to > $3
           )
           select id as "id!" from chain order by id"#,
        scope.0,
        last,
        at
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Lets superseded memories end earlier, at a successor that came between.
///
/// # Errors
/// When the connection is lost.
pub async fn end_earlier(
    tx: &mut Tx,
    scope: ScopeId,
    ids: &[Uuid],
    successor: Uuid,
    at: DateTime<Utc>,
) -> Result<()> {
    sqlx::query!(
        "update memories set superseded_by = $3, valid_to = greatest($4, valid_from)
          where scope_id = $1 and id = any($2) and valid_to is not null",
        scope.0,
        ids,
        successor,
        at
    )
    .execute(tx.conn())
    .await?;
    tx.changed(scope, ids);
    Ok(())
}

/// The superseded memory that tells the same of the same time.
///
/// # Errors
/// When the connection is lost.
pub async fn told_before(
    tx: &mut Tx,
    scope: ScopeId,
    hash: &[u8; 32],
    occurred_at: DateTime<Utc>,
) -> Result<Option<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select id from memories
          where scope_id = $1 and content_hash = $2 and valid_to is not null and occurred_at = $3
          order by id limit 1",
        scope.0,
        hash,
        occurred_at
    )
    .fetch_optional(tx.conn())
    .await?)
}

/// The active memory at the end of the chain that starts with `first`; `None` where it ends in history.
///
/// # Errors
/// When the connection is lost.
pub async fn active_end(tx: &mut Tx, scope: ScopeId, first: Uuid) -> Result<Option<Uuid>> {
    // `union` without `all` ends a chain that would bite its own tail.
    Ok(sqlx::query_scalar!(
        r#"with recursive chain as (
               select id, superseded_by, valid_to from memories where scope_id = $1 and id = $2
               union
               select m.id, m.superseded_by, m.valid_to
                 from chain c join memories m on m.scope_id = $1 and m.id = c.superseded_by
           )
           select id as "id!" from chain where valid_to is null"#,
        scope.0,
        first
    )
    .fetch_optional(tx.conn())
    .await?)
}

/// Makes a superseded memory active again; `apart` keeps it out of later consolidations. The caller has seen that no
/// active memory has the same text.
///
/// # Errors
/// When the connection is lost.
pub async fn restore(tx: &mut Tx, scope: ScopeId, id: Uuid, apart: bool) -> Result<()> {
    let todo = sqlx::query_scalar!(
        r#"update memories
            set valid_to = null, superseded_by = null, superseded_reason = null, kept_apart = kept_apart or $3,
                looked_at = kept_apart or $3
          where scope_id = $1 and id = $2 and valid_to is not null
      returning tier = 'episodic' and not looked_at as "todo!""#,
        scope.0,
        id,
        apart
    )
    .fetch_optional(tx.conn())
    .await?;
    tx.listed(scope, &[id]);
    count_todo(tx, scope, i64::from(todo == Some(true))).await
}

/// Takes consolidated facts out of use, without a successor.
///
/// # Errors
/// When the connection is lost.
pub async fn retire(tx: &mut Tx, scope: ScopeId, facts: &[Uuid], at: DateTime<Utc>) -> Result<()> {
    sqlx::query!(
        "update memories
            set superseded_by = null, superseded_reason = 'undone', valid_to = greatest($3, valid_from)
          where scope_id = $1 and id = any($2)",
        scope.0,
        facts,
        at
    )
    .execute(tx.conn())
    .await?;
    tx.listed(scope, facts);
    Ok(())
}

/// Makes the surviving originals of retired facts active again, so that the next consolidation derives from what is
/// left; answers which.
///
/// Of several with one text, and where that text is active already, history stays history.
///
/// # Errors
/// When the connection is lost.
pub async fn reactivate_originals(
    tx: &mut Tx,
    scope: ScopeId,
    facts: &[Uuid],
    gone: &[Uuid],
) -> Result<Vec<Uuid>> {
    let reactivated = sqlx::query!(
        r#"update memories m
            set valid_to = null, superseded_by = null, superseded_reason = null, looked_at = kept_apart
           from (select distinct on (o.content_hash) o.id
                   from memories o
                  where o.scope_id = $1 and o.superseded_by = any($2) and o.superseded_reason = 'consolidated'
                    and o.tier = 'episodic' and o.id <> all($3)
                    and not exists (select from memories a
                                     where a.scope_id = $1 and a.content_hash = o.content_hash
                                       and a.valid_to is null)
                  order by o.content_hash, o.id) as survivor
          where m.scope_id = $1 and m.id = survivor.id
      returning m.id, not m.looked_at as "todo!""#,
        scope.0,
        facts,
        gone
    )
    .fetch_all(tx.conn())
    .await?;
    let todo = reactivated.iter().filter(|row| row.todo).count();
    count_todo(tx, scope, i64::try_from(todo).unwrap_or(0)).await?;
    let reactivated: Vec<Uuid> = reactivated.into_iter().map(|row| row.id).collect();
    tx.listed(scope, &reactivated);
    Ok(reactivated)
}

/// Counts memories that consolidation has to look at.
async fn count_todo(tx: &mut Tx, scope: ScopeId, todo: i64) -> Result<()> {
    if todo == 0 {
        return Ok(());
    }
    let change = scope::CounterChange { unconsolidated: todo, ..scope::CounterChange::default() };
    scope::count(tx, scope, change).await
}
