//! What consolidation and decay read and write.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pgvector::Vector;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::recall::{Hit, ScopeSize};
use super::space::Space;
use super::{ScopeId, Tx, scope};
use crate::error::Result;
use crate::model::Tier;

/// What a statement of Postgres takes before it writes to disk, in bytes: the default of `work_mem`.
const WORK_MEM: i64 = 4 << 20;
/// What a row takes there beside its vector, in bytes.
const ROW_OVERHEAD: i64 = 64;
/// More rows than this cost more than a lookup through the index, however short their vectors are.
const IN_MEMORY: i64 = 2_500;

/// A memory that consolidation reads.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its id.
    pub id: Uuid,
    /// Its tier.
    pub tier: Tier,
    /// Its text.
    pub content: String,
    /// Its labels.
    pub tags: Vec<String>,
    /// Where it comes from.
    pub source: Option<String>,
    /// 0 to 1.
    pub confidence: f32,
    /// How often it was stated.
    pub support: i32,
    /// When it happened, or was stored.
    pub happened_at: DateTime<Utc>,
    /// Whether it is active and nobody keeps it apart.
    pub is_free: bool,
    /// Its vector in the space; empty while it is pending.
    pub vector: Vec<f32>,
    /// How many memories a fact was made from.
    pub origins: usize,
}

/// The next memories to look at after the place `after`, in id order. They have a vector in the space.
///
/// # Errors
/// When the connection is lost.
pub async fn queue(tx: &mut Tx, scope: ScopeId, space: Space, after: Uuid, limit: i64) -> Result<Vec<Uuid>> {
    Ok(sqlx::query_scalar!(
        "select m.id from memories m
          where m.scope_id = $1 and m.tier = 'episodic' and m.valid_to is null and not m.looked_at and m.id > $3
            and exists (select from memory_embedding e
                         where e.scope_id = $1 and e.memory_id = m.id and e.space_id = $2)
          order by m.id limit $4",
        scope.0,
        space.id,
        after,
        limit
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Reads memories by id, in id order, also superseded ones; ids that are not there are left out.
///
/// # Errors
/// When the connection is lost.
pub async fn members(tx: &mut Tx, scope: ScopeId, space: Space, ids: &[Uuid]) -> Result<Vec<Member>> {
    let rows = sqlx::query!(
        r#"select m.id, m.tier, m.content, m.tags, m.source, m.confidence, m.support,
                  coalesce(m.occurred_at, m.created_at) as "happened_at!",
                  m.valid_to is null and not m.kept_apart as "is_free!",
                  e.embedding as "embedding?: Vector",
                  (select count(*) from memory_origin o where o.scope_id = $1 and o.memory_id = m.id) as "origins!"
             from memories m
             left join memory_embedding e on e.scope_id = $1 and e.memory_id = m.id and e.space_id = $2
            where m.scope_id = $1 and m.id = any($3)
            order by m.id"#,
        scope.0,
        space.id,
        ids
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Member {
                id: row.id,
                tier: Tier::from_db(&row.tier)?,
                content: row.content,
                tags: row.tags,
                source: row.source,
                confidence: row.confidence,
                support: row.support,
                happened_at: row.happened_at,
                is_free: row.is_free,
                vector: row.embedding.map(Vec::from).unwrap_or_default(),
                origins: usize::try_from(row.origins).unwrap_or(0),
            })
        })
        .collect()
}

/// The nearest active memories of each vector that nobody keeps apart, in one statement; each vector's own memory is
/// among them. Facts count as well.
///
/// Exact in a scope that is small, by itself or beside the table, because the index is shared by all scopes; through the
/// index in others, so that the cost of a lookup hardly grows with the scope.
///
/// # Errors
/// When the connection is lost.
pub async fn nearest(
    tx: &mut Tx,
    scope: ScopeId,
    space: Space,
    vectors: &[&[f32]],
    size: ScopeSize,
    limit: i64,
) -> Result<Vec<Vec<Hit>>> {
    let Space { id, dimensions } = space;
    let own = format!(
        "from memory_embedding e join memories m on m.scope_id = e.scope_id and m.id = e.memory_id
          where e.scope_id = $1 and e.space_id = {id} and m.valid_to is null and not m.kept_apart"
    );
    // The space's number and width stand in the text: the partial index and its cast are found only by literals.
    let (shared, nearest) = if size.memories <= exact_up_to(size.vectors, dimensions) || !space.is_indexed() {
        // Joined once for all lookups, and each distance computed once.
        (
            format!("with own as materialized (select m.id, e.embedding {own})"),
            "select id, embedding <=> s.embedding as distance from own order by distance limit $3".to_owned(),
        )
    } else {
        let order = format!("e.embedding::halfvec({dimensions}) <=> s.embedding::halfvec({dimensions})");
        (
            String::new(),
            format!("select m.id, e.embedding <=> s.embedding as distance {own} order by {order} limit $3"),
        )
    };
    let statement = format!(
        "{shared}
         select s.place, near.id, (1 - near.distance)::real as score
           from unnest($2::vector[]) with ordinality as s (embedding, place)
          cross join lateral ({nearest}) near
          order by s.place, near.distance, near.id"
    );
    let vectors: Vec<Vector> = vectors.iter().map(|vector| Vector::from(vector.to_vec())).collect();
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(scope.0)
        .bind(&vectors)
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    let mut near = vec![Vec::new(); vectors.len()];
    for row in rows {
        let place: i64 = row.try_get("place")?;
        let hits = usize::try_from(place - 1).ok().and_then(|place| near.get_mut(place));
        if let Some(hits) = hits {
            hits.push(Hit { id: row.try_get("id")?, score: row.try_get("score")? });
        }
    }
    Ok(near)
}

/// How many rows are scanned exactly in a table of `vectors`: as many as cost the same through the index, of which a
/// lookup visits more the smaller a scope's share of it is, and as many as Postgres joins in memory, where a row costs a
/// third of what it costs on disk (docs/benchmarks.md).
fn exact_up_to(vectors: i64, dimensions: i32) -> i64 {
    let in_memory = (WORK_MEM / (4 * i64::from(dimensions) + ROW_OVERHEAD)).min(IN_MEMORY);
    vectors.max(0).saturating_mul(150).isqrt().max(in_memory)
}

/// Which memories facts were made from: pairs of fact and original.
///
/// # Errors
/// When the connection is lost.
pub async fn origins(tx: &mut Tx, scope: ScopeId, facts: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>> {
    let rows = sqlx::query!(
        "select memory_id, origin_id from memory_origin
          where scope_id = $1 and memory_id = any($2) order by memory_id, origin_id",
        scope.0,
        facts
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.memory_id, row.origin_id)).collect())
}

/// The pairs among these memories that contradict each other and wait for a reviewer, or were decided about.
///
/// # Errors
/// When the connection is lost.
pub async fn contested(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<(Uuid, Uuid)>> {
    let rows = sqlx::query!(
        "select new_id, old_id from conflicts where scope_id = $1 and new_id = any($2) and old_id = any($2)",
        scope.0,
        ids
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.new_id, row.old_id)).collect())
}

/// Notes that memories were looked at. The caller holds the scope's lock.
///
/// # Errors
/// When the connection is lost.
pub async fn looked_at(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<()> {
    let changed = sqlx::query!(
        "update memories set looked_at = true
          where scope_id = $1 and id = any($2) and tier = 'episodic' and valid_to is null and not looked_at",
        scope.0,
        ids
    )
    .execute(tx.conn())
    .await?;
    let seen = i64::try_from(changed.rows_affected()).unwrap_or(0);
    let change = scope::CounterChange { unconsolidated: -seen, ..scope::CounterChange::default() };
    scope::count(tx, scope, change).await
}

/// Lets every active memory be looked at again, save those that a reviewer keeps apart; answers how many. The caller holds
/// the scope's lock.
///
/// # Errors
/// When the connection is lost.
pub async fn look_again(tx: &mut Tx, scope: ScopeId) -> Result<u64> {
    let changed = sqlx::query!(
        "update memories set looked_at = false
          where scope_id = $1 and tier = 'episodic' and valid_to is null and looked_at and not kept_apart",
        scope.0
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    let unconsolidated = i64::try_from(changed).unwrap_or(0);
    scope::count(tx, scope, scope::CounterChange { unconsolidated, ..scope::CounterChange::default() })
        .await?;
    Ok(changed)
}

/// Lets what became part of `old` be part of `new`, which `old` became part of.
///
/// # Errors
/// When the connection is lost.
pub async fn take_over(tx: &mut Tx, scope: ScopeId, old: Uuid, new: Uuid) -> Result<()> {
    let moved = sqlx::query_scalar!(
        "update memories set superseded_by = $3
          where scope_id = $1 and superseded_by = $2 and superseded_reason = 'consolidated'
      returning id",
        scope.0,
        old,
        new
    )
    .fetch_all(tx.conn())
    .await?;
    tx.changed(scope, &moved);
    Ok(())
}

/// What a fact knows of its originals.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Their labels.
    pub tags: Vec<String>,
    /// Their time span and sources.
    pub metadata: BTreeMap<String, Value>,
    /// As sure as the surest.
    pub confidence: f32,
    /// How often they were stated, together.
    pub support: i32,
    /// When the last of them happened.
    pub last: DateTime<Utc>,
}

/// Gives a known fact more evidence for what it says: that of its new originals.
///
/// # Errors
/// When the connection is lost.
pub async fn reinforce(tx: &mut Tx, scope: ScopeId, fact: Uuid, evidence: &Evidence) -> Result<()> {
    sqlx::query!(
        "update memories
            set tags = $3, metadata = metadata || $4::jsonb, confidence = greatest(confidence, $5), support = support + $6,
                occurred_at = greatest(occurred_at, $7)
          where scope_id = $1 and id = $2",
        scope.0,
        fact,
        &evidence.tags,
        Json(&evidence.metadata) as _,
        evidence.confidence,
        evidence.support,
        evidence.last
    )
    .execute(tx.conn())
    .await?;
    tx.changed(scope, &[fact]);
    Ok(())
}

/// Notes by which sources a fact's originals were stated: what one of them says again proves nothing new.
///
/// # Errors
/// When the connection is lost.
pub async fn take_sources(tx: &mut Tx, scope: ScopeId, fact: Uuid) -> Result<()> {
    sqlx::query!("delete from memory_sources where scope_id = $1 and memory_id = $2", scope.0, fact)
        .execute(tx.conn())
        .await?;
    sqlx::query!(
        "insert into memory_sources (scope_id, memory_id, source, statements)
         select $1, $2, s.source, sum(s.statements)::int
           from memory_origin o join memory_sources s on s.scope_id = $1 and s.memory_id = o.origin_id
          where o.scope_id = $1 and o.memory_id = $2
          group by s.source",
        scope.0,
        fact
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Notes what a fact was made from.
///
/// # Errors
/// When the connection is lost.
pub async fn add_origins(tx: &mut Tx, scope: ScopeId, fact: Uuid, origins: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "insert into memory_origin (scope_id, memory_id, origin_id) select $1, $2, unnest($3::uuid[])
             on conflict do nothing",
        scope.0,
        fact,
        origins
    )
    .execute(tx.conn())
    .await?;
    tx.changed(scope, &[fact]);
    Ok(())
}
