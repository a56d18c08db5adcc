//! Durable memories: inserting, supporting, reading.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pgvector::Vector;
use sqlx::types::Json;
use uuid::Uuid;

use super::{ScopeId, Tx, scope};
use crate::error::{Error, Result};
use crate::model::{Memory, Tier};
use crate::text::Analysis;

/// Everything that a new row needs.
#[derive(Debug)]
pub struct NewMemory<'a> {
    /// The memory, active or history already.
    pub memory: &'a Memory,
    /// SHA-256 of its normalised text.
    pub content_hash: [u8; 32],
    /// Its terms.
    pub analysis: &'a Analysis,
    /// Its vector in a space; without one it is pending.
    pub embedding: Option<(i32, &'a [f32])>,
}

/// Inserts a memory with its postings, its vector and its source, and counts it. The caller holds the scope's lock.
///
/// # Errors
/// When the connection is lost or an active memory with the same text exists.
pub async fn insert(tx: &mut Tx, scope: ScopeId, new: &NewMemory<'_>) -> Result<()> {
    let memory = new.memory;
    let token_count = i32::try_from(new.analysis.tokens).unwrap_or(i32::MAX);
    sqlx::query!(
        "insert into memories (scope_id, id, tier, content, content_hash, tags, source, actor, metadata, confidence,
                               support, created_at, occurred_at, valid_from, token_count, valid_to, superseded_by,
                               superseded_reason, seq)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                 (select coalesce(max(seq), 0) + 1 from memories where scope_id = $1 and source = $7))",
        scope.0,
        memory.id,
        memory.tier.as_str(),
        memory.content,
        &new.content_hash,
        &memory.tags,
        memory.source,
        memory.actor,
        Json(&memory.metadata) as _,
        memory.confidence,
        memory.support,
        memory.created_at,
        memory.occurred_at,
        memory.valid_from,
        token_count,
        memory.valid_to,
        memory.superseded_by,
        memory.superseded_reason
    )
    .execute(tx.conn())
    .await?;
    let (terms, frequencies): (Vec<String>, Vec<i32>) = new
        .analysis
        .terms
        .iter()
        .map(|(term, tf)| (term.clone(), i32::try_from(*tf).unwrap_or(i32::MAX)))
        .unzip();
    sqlx::query!(
        "insert into memory_term (scope_id, term, memory_id, tf, len)
         select $1, term, $2, tf, $5 from unnest($3::text[], $4::int[]) as posting (term, tf)",
        scope.0,
        memory.id,
        &terms,
        &frequencies,
        token_count
    )
    .execute(tx.conn())
    .await?;
    if let Some((space, vector)) = new.embedding {
        sqlx::query!(
            "insert into memory_embedding (scope_id, memory_id, space_id, embedding) values ($1, $2, $3, $4)",
            scope.0,
            memory.id,
            space,
            Vector::from(vector.to_vec()) as _
        )
        .execute(tx.conn())
        .await?;
    }
    sqlx::query!(
        "insert into memory_sources (scope_id, memory_id, source) values ($1, $2, coalesce($3, ''))",
        scope.0,
        memory.id,
        memory.source
    )
    .execute(tx.conn())
    .await?;
    tx.listed(scope, &[memory.id]);
    let change = scope::CounterChange {
        memories: 1,
        tokens: i64::from(token_count),
        bytes: i64::try_from(memory.content.len()).unwrap_or(i64::MAX),
        unconsolidated: i64::from(memory.tier == Tier::Episodic && memory.valid_to.is_none()),
    };
    scope::count(tx, scope, change).await
}

/// The active memory with this text.
///
/// # Errors
/// When the connection is lost.
pub async fn active_with_hash(tx: &mut Tx, scope: ScopeId, hash: &[u8; 32]) -> Result<Option<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select id from memories where scope_id = $1 and content_hash = $2 and valid_to is null",
        scope.0,
        hash
    )
    .fetch_optional(tx.conn())
    .await?)
}

/// The active memory with this text, or the active fact that one with this text became part of.
///
/// # Errors
/// When the connection is lost.
pub async fn stated(tx: &mut Tx, scope: ScopeId, hash: &[u8; 32]) -> Result<Option<Uuid>> {
    Ok(sqlx::query_scalar!(
        r#"select coalesce(
               (select id from memories where scope_id = $1 and content_hash = $2 and valid_to is null),
               (select f.id from memories o join memories f on f.scope_id = $1 and f.id = o.superseded_by
                 where o.scope_id = $1 and o.content_hash = $2 and o.valid_to is not null
                   and o.superseded_reason = 'consolidated' and f.valid_to is null
                 order by f.id limit 1))"#,
        scope.0,
        hash
    )
    .fetch_one(tx.conn())
    .await?)
}

/// One more statement of a known memory. Answers support and confidence.
///
/// Support counts every one; confidence closes `rise` of the gap to 1 once for each source that had not stated it before;
/// decay starts anew.
///
/// # Errors
/// `not_found` when the memory is gone; otherwise when the connection is lost.
pub async fn support(
    tx: &mut Tx,
    scope: ScopeId,
    id: Uuid,
    source: Option<&str>,
    rise: f32,
    now: DateTime<Utc>,
) -> Result<(i32, f32)> {
    let statements = sqlx::query_scalar!(
        "insert into memory_sources as known (scope_id, memory_id, source) values ($1, $2, coalesce($3, ''))
             on conflict (scope_id, memory_id, source) do update set statements = known.statements + 1
         returning statements",
        scope.0,
        id,
        source
    )
    .fetch_one(tx.conn())
    .await?;
    let rise = if statements == 1 { rise } else { 0.0 };
    let row = sqlx::query!(
        "update memories
            set support = support + 1, confidence = confidence + (1 - confidence) * $3::real, restated_at = $4
          where scope_id = $1 and id = $2
      returning support, confidence",
        scope.0,
        id,
        rise,
        now
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or(Error::NotFound)?;
    tx.changed(scope, &[id]);
    Ok((row.support, row.confidence))
}

/// A memory with what other tables know of it.
#[derive(Clone, Debug)]
pub struct StoredMemory {
    /// The memory.
    pub memory: Memory,
    /// Memories it has an open conflict with.
    pub conflicts_with: Vec<Uuid>,
    /// What a semantic memory was made from.
    pub origin: Vec<Uuid>,
    /// How often it was recalled.
    pub access_count: i64,
    /// The memories stored just before and after it with the same source.
    pub previous: Option<Uuid>,
    /// See `previous`.
    pub next: Option<Uuid>,
}

/// Which of these memories are active, in no order.
///
/// # Errors
/// When the connection is lost.
pub async fn active(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select id from memories where scope_id = $1 and id = any($2) and valid_to is null",
        scope.0,
        ids
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Reads memories by id, in no order; ids that are not there are left out.
///
/// # Errors
/// When the connection is lost.
pub async fn fetch(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<StoredMemory>> {
    read(tx, scope, ids, false).await
}

/// Reads memories by id and what ranking them takes: the memories before and after each of the same source, and the facts
/// that any of these were consolidated into.
///
/// # Errors
/// When the connection is lost.
pub async fn fetch_related(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<StoredMemory>> {
    read(tx, scope, ids, true).await
}

/// Each memory is looked up by its key: joined in any other way, Postgres was seen to read a whole index of the scope.
async fn read(tx: &mut Tx, scope: ScopeId, ids: &[Uuid], related: bool) -> Result<Vec<StoredMemory>> {
    let rows = sqlx::query!(
        r#"with hit as materialized (
               select source, seq, case when superseded_reason = 'consolidated' then superseded_by end as fact
                 from memories where $3 and scope_id = $1 and id = any($2)
           ), beside as materialized (
               select near.id, case when near.superseded_reason = 'consolidated' then near.superseded_by end as fact
                 from hit cross join lateral (
                     (select p.id, p.superseded_by, p.superseded_reason from memories p
                       where p.scope_id = $1 and p.source = hit.source and p.seq < hit.seq
                       order by p.seq desc limit 1)
                     union all
                     (select n.id, n.superseded_by, n.superseded_reason from memories n
                       where n.scope_id = $1 and n.source = hit.source and n.seq > hit.seq
                       order by n.seq limit 1)) near
           ), wanted as materialized (
               select id from unnest($2::uuid[]) as given (id)
               union select fact from hit
               union select id from beside
               union select fact from beside
           )
           select m.id, m.tier, m.content, m.tags, m.source, m.actor,
                  m.metadata as "metadata: Json<BTreeMap<String, serde_json::Value>>",
                  m.confidence, m.support, m.created_at, m.occurred_at, m.valid_from, m.valid_to, m.superseded_by,
                  m.superseded_reason,
                  coalesce((select a.access_count from memory_access a
                             where a.scope_id = $1 and a.memory_id = m.id), 0) as "access_count!",
                  array(select o.origin_id from memory_origin o
                         where o.scope_id = $1 and o.memory_id = m.id order by o.origin_id) as "origin!",
                  case when m.valid_to is null then array(
                      select other.id from conflicts c
                        join memories other on other.scope_id = $1 and other.id in (c.new_id, c.old_id)
                                           and other.id <> m.id and other.valid_to is null
                       where c.scope_id = $1 and c.status = 'open' and (c.new_id = m.id or c.old_id = m.id)
                       order by other.id) else '{}' end as "conflicts_with!",
                  (select p.id from memories p
                    where p.scope_id = $1 and p.source = m.source and p.seq < m.seq
                    order by p.seq desc limit 1) as previous,
                  (select n.id from memories n
                    where n.scope_id = $1 and n.source = m.source and n.seq > m.seq
                    order by n.seq limit 1) as next
             from wanted cross join lateral (
                 select * from memories where scope_id = $1 and memories.id = wanted.id limit 1) m"#,
        scope.0,
        ids,
        related
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(StoredMemory {
                memory: Memory {
                    id: row.id,
                    tier: Tier::from_db(&row.tier)?,
                    content: row.content,
                    tags: row.tags,
                    source: row.source,
                    actor: row.actor,
                    metadata: row.metadata.0,
                    confidence: row.confidence,
                    support: row.support,
                    created_at: row.created_at,
                    occurred_at: row.occurred_at,
                    valid_from: row.valid_from,
                    valid_to: row.valid_to,
                    superseded_by: row.superseded_by,
                    superseded_reason: row.superseded_reason,
                    expires_at: None,
                },
                conflicts_with: row.conflicts_with,
                origin: row.origin,
                access_count: row.access_count,
                previous: row.previous,
                next: row.next,
            })
        })
        .collect()
}
