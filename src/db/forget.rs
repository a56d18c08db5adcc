//! Forgetting: the only statements that delete a memory.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Db, ScopeId, Tx, scope};
use crate::error::Result;
use crate::model::Tier;

/// Which durable memories to forget.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// This one.
    pub id: Option<Uuid>,
    /// Those of this tier.
    pub tier: Option<&'static str>,
    /// Those with all of these tags.
    pub tags: Vec<String>,
}

/// A memory that is or would be forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten {
    /// Its id.
    pub id: Uuid,
    /// Its tier.
    pub tier: Tier,
}

/// Who forgets, when, and how thoroughly.
#[derive(Clone, Copy, Debug)]
pub struct Forgetting<'a> {
    /// The token's name.
    pub by: &'a str,
    /// Now.
    pub at: DateTime<Utc>,
    /// Keep no copy of the text.
    pub erase: bool,
}

/// The first `limit` memories that a selector means, oldest first.
///
/// # Errors
/// When the connection is lost.
pub async fn select(tx: &mut Tx, scope: ScopeId, selector: &Selector, limit: i64) -> Result<Vec<Forgotten>> {
    let rows = sqlx::query!(
        "select id, tier from memories
          where scope_id = $1
            and ($2::uuid is null or id = $2)
            and ($3::text is null or tier = $3)
            and (cardinality($4::text[]) = 0 or tags @> $4)
          order by id limit $5",
        scope.0,
        selector.id,
        selector.tier,
        &selector.tags,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(Forgotten { id: row.id, tier: Tier::from_db(&row.tier)? })).collect()
}

/// Those of the memories that are there still, locked in id order: batches of access counts and vectors come in that
/// order too, and would deadlock with another.
///
/// # Errors
/// When the connection is lost.
pub async fn lock(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Forgotten>> {
    let rows = sqlx::query!(
        "select id, tier from memories where scope_id = $1 and id = any($2) order by id for update",
        scope.0,
        ids
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(|row| Ok(Forgotten { id: row.id, tier: Tier::from_db(&row.tier)? })).collect()
}

/// The facts that were made from one of these memories.
///
/// # Errors
/// When the connection is lost.
pub async fn derived(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select distinct memory_id from memory_origin
          where scope_id = $1 and origin_id = any($2) order by memory_id",
        scope.0,
        ids
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Deletes memories with all that hangs on them, after taking the last copy. The caller holds the scope's lock.
///
/// A consolidated fact leaves no text: it could tell of an original that is erased later.
///
/// # Errors
/// When the connection is lost.
pub async fn delete(tx: &mut Tx, scope: ScopeId, ids: &[Uuid], how: Forgetting<'_>) -> Result<()> {
    if how.erase {
        erase_traces(tx, scope, ids).await?;
    }
    sqlx::query!(
        "insert into memory_snapshot (scope_id, memory_id, tier, content, content_hash, tags, source, metadata,
                                      created_at, forgotten_at, forgotten_by)
         select scope_id, id, tier, case when $3 or tier = 'semantic' then null else content end, content_hash,
                case when $3 then '{}' else tags end, case when $3 then null else source end,
                case when $3 then '{}' else metadata end, created_at, $4, $5
           from memories where scope_id = $1 and id = any($2)",
        scope.0,
        ids,
        how.erase,
        how.at,
        how.by
    )
    .execute(tx.conn())
    .await?;
    // At once: the foreign keys would delete these too, but row by row.
    sqlx::query!("delete from memory_term where scope_id = $1 and memory_id = any($2)", scope.0, ids)
        .execute(tx.conn())
        .await?;
    sqlx::query!("delete from memory_embedding where scope_id = $1 and memory_id = any($2)", scope.0, ids)
        .execute(tx.conn())
        .await?;
    let gone = sqlx::query!(
        r#"with gone as (
               delete from memories where scope_id = $1 and id = any($2)
               returning token_count, octet_length(content) as bytes, valid_to is null and tier = 'episodic' and not looked_at as todo
           )
           select count(*) as "memories!", coalesce(sum(token_count), 0)::bigint as "tokens!",
                  coalesce(sum(bytes), 0)::bigint as "bytes!", count(*) filter (where todo) as "unconsolidated!"
             from gone"#,
        scope.0,
        ids
    )
    .fetch_one(tx.conn())
    .await?;
    tx.listed(scope, ids);
    let change = scope::CounterChange {
        memories: -gone.memories,
        tokens: -gone.tokens,
        bytes: -gone.bytes,
        unconsolidated: -gone.unconsolidated,
    };
    scope::count(tx, scope, change).await
}

/// Empties what else tells of memories that are about to be erased: snapshots of earlier lives of the same text,
/// answers kept for idempotency keys, and details in the audit log.
async fn erase_traces(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "update memory_snapshot set content = null, tags = '{}', source = null, metadata = '{}'
          where scope_id = $1 and content_hash in (select content_hash from memories
                                                    where scope_id = $1 and id = any($2))",
        scope.0,
        ids
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "delete from idempotency_keys where scope_id = $1 and (answer->>'id')::uuid = any($2)",
        scope.0,
        ids
    )
    .execute(tx.conn())
    .await?;
    erase_audit(tx, scope, ids).await
}

async fn erase_audit(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "update memory_audit_log set detail = '{}'
          where scope = (select name from scopes where scope_id = $1) and memory_id = any($2)",
        scope.0,
        ids
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The memories forgotten earlier that a selector means and whose text is kept still.
///
/// # Errors
/// When the connection is lost.
pub async fn kept_snapshots(tx: &mut Tx, scope: ScopeId, selector: &Selector) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select memory_id from memory_snapshot
          where scope_id = $1 and content is not null
            and ($2::uuid is null or memory_id = $2)
            and ($3::text is null or tier = $3)
            and (cardinality($4::text[]) = 0 or tags @> $4)
          order by memory_id",
        scope.0,
        selector.id,
        selector.tier,
        &selector.tags
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Leaves only the hash of memories that were forgotten earlier.
///
/// # Errors
/// When the connection is lost.
pub async fn erase_snapshots(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "update memory_snapshot set content = null, tags = '{}', source = null, metadata = '{}'
          where scope_id = $1 and memory_id = any($2)",
        scope.0,
        ids
    )
    .execute(tx.conn())
    .await?;
    erase_audit(tx, scope, ids).await
}

/// Drops up to `limit` snapshots of what was forgotten before a time; answers how many.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn prune_snapshots(db: &Db, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    let mut tx = Tx::all_scopes(db).await?;
    let pruned = sqlx::query!(
        // Materialised, or the planner may run the limited part more than once.
        "with old as materialized (
             select scope_id, memory_id from memory_snapshot
              where forgotten_at < $1 order by forgotten_at limit $2 for update skip locked
         )
         delete from memory_snapshot s using old o where s.scope_id = o.scope_id and s.memory_id = o.memory_id",
        before,
        limit
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(pruned.rows_affected())
}
