//! Everything that is stored, page by page within one snapshot ([`Tx::snapshot`]), but for vectors, which are computed
//! anew, and for what is kept of calls.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::error::Result;
use crate::model::Tier;
use crate::port::line::{ConflictLine, MemoryLine, OriginLine, SupersededLine};

/// A scope.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its number.
    pub id: ScopeId,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Whose token made it.
    pub created_by: Option<String>,
}

/// The next scopes by name after `after`: those named exactly, and those whose names begin with one of the prefixes.
///
/// # Errors
/// When the connection is lost.
pub async fn scopes(
    tx: &mut Tx,
    exact: &[String],
    prefixes: &[String],
    after: &str,
    limit: i64,
) -> Result<Vec<Listed>> {
    let rows = sqlx::query!(
        "select scope_id, name, created_at, created_by from scopes
          where name > $3
            and (name = any($1) or exists (select from unnest($2::text[]) p where starts_with(name, p)))
          order by name limit $4",
        exact,
        prefixes,
        after,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    let listed = rows.into_iter().map(|row| Listed {
        id: ScopeId(row.scope_id),
        name: row.name,
        created_at: row.created_at,
        created_by: row.created_by,
    });
    Ok(listed.collect())
}

/// The next memories of the scope `name` by id after `after`.
///
/// # Errors
/// When the connection is lost.
pub async fn memories(
    tx: &mut Tx,
    scope: ScopeId,
    name: &str,
    after: Uuid,
    limit: i64,
) -> Result<Vec<MemoryLine>> {
    let rows = sqlx::query!(
        r#"select m.id, m.tier, m.content, m.tags, m.source, m.seq, m.actor,
                  m.metadata as "metadata: Json<BTreeMap<String, serde_json::Value>>", m.confidence, m.support,
                  (select coalesce(jsonb_object_agg(s.source, s.statements), '{}') from memory_sources s
                    where s.scope_id = $1 and s.memory_id = m.id) as "sources!: Json<BTreeMap<String, i32>>",
                  m.created_at, m.occurred_at, m.valid_from, m.valid_to, m.superseded_reason,
                  coalesce(a.access_count, 0) as "access_count!", a.last_accessed_at as "last_accessed_at?",
                  m.restated_at, m.decayed_at, m.kept_apart, m.looked_at
             from memories m left join memory_access a on a.scope_id = $1 and a.memory_id = m.id
            where m.scope_id = $1 and m.id > $2
            order by m.id limit $3"#,
        scope.0,
        after,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(MemoryLine {
                scope: name.to_owned(),
                id: row.id,
                tier: Tier::from_db(&row.tier)?,
                content: row.content,
                tags: row.tags,
                source: row.source,
                seq: Some(row.seq),
                actor: row.actor,
                metadata: row.metadata.0,
                confidence: row.confidence,
                support: row.support,
                sources: row.sources.0,
                created_at: row.created_at,
                occurred_at: row.occurred_at,
                valid_from: row.valid_from,
                valid_to: row.valid_to,
                superseded_reason: row.superseded_reason,
                access_count: row.access_count,
                last_accessed_at: row.last_accessed_at,
                restated_at: row.restated_at,
                decayed_at: row.decayed_at,
                kept_apart: row.kept_apart,
                looked_at: row.looked_at,
            })
        })
        .collect()
}

/// What superseded the next memories by id after `after`.
///
/// # Errors
/// When the connection is lost.
pub async fn superseded(
    tx: &mut Tx,
    scope: ScopeId,
    name: &str,
    after: Uuid,
    limit: i64,
) -> Result<Vec<SupersededLine>> {
    let rows = sqlx::query!(
        r#"select id, superseded_by as "by!" from memories
            where scope_id = $1 and id > $2 and superseded_by is not null
            order by id limit $3"#,
        scope.0,
        after,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    let lines = rows.into_iter().map(|row| SupersededLine { scope: name.to_owned(), id: row.id, by: row.by });
    Ok(lines.collect())
}

/// The next origins of facts, by fact and origin after `after`.
///
/// # Errors
/// When the connection is lost.
pub async fn origins(
    tx: &mut Tx,
    scope: ScopeId,
    name: &str,
    after: (Uuid, Uuid),
    limit: i64,
) -> Result<Vec<OriginLine>> {
    let rows = sqlx::query!(
        "select memory_id, origin_id from memory_origin
          where scope_id = $1 and (memory_id, origin_id) > ($2, $3)
          order by memory_id, origin_id limit $4",
        scope.0,
        after.0,
        after.1,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    let line = |id, origin| OriginLine { scope: name.to_owned(), id, origin };
    Ok(rows.into_iter().map(|row| line(row.memory_id, row.origin_id)).collect())
}

/// The next contradictions by id after `after`.
///
/// # Errors
/// When the connection is lost.
pub async fn conflicts(
    tx: &mut Tx,
    scope: ScopeId,
    name: &str,
    after: Uuid,
    limit: i64,
) -> Result<Vec<ConflictLine>> {
    let rows = sqlx::query!(
        "select conflict_id, new_id, old_id, similarity, status, resolution, resolved_by, resolved_at, created_at
           from conflicts where scope_id = $1 and conflict_id > $2 order by conflict_id limit $3",
        scope.0,
        after,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    let lines = rows.into_iter().map(|row| ConflictLine {
        scope: name.to_owned(),
        id: row.conflict_id,
        new: row.new_id,
        old: row.old_id,
        similarity: row.similarity,
        status: row.status,
        created_at: row.created_at,
        resolution: row.resolution,
        resolved_by: row.resolved_by,
        resolved_at: row.resolved_at,
    });
    Ok(lines.collect())
}
