//! Writing what a file holds, many rows in a statement. Whatever is there already stays as it is.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Db, ScopeId, Tx, scope};
use crate::error::{Error, Result};
use crate::model::{Scope, Tier};
use crate::port::line::{ConflictLine, MemoryLine};
use crate::text::Analysis;

/// A memory to write.
#[derive(Clone, Debug)]
pub struct NewRow {
    /// What the file says of it, with its place in its source.
    pub memory: MemoryLine,
    /// SHA-256 of its normalised text.
    pub content_hash: [u8; 32],
    /// Its terms.
    pub analysis: Analysis,
}

/// A memory that is there, and the hash of its text where it is active.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its id.
    pub id: Uuid,
    /// `None` for history.
    pub active_hash: Option<Vec<u8>>,
}

/// A place in a source that a memory would take.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The source.
    pub source: String,
    /// The place.
    pub seq: i64,
    /// Whether another memory has it.
    pub is_taken: bool,
    /// The last place that any has.
    pub last: i64,
}

/// Opens a transaction on a scope, which exists once the transaction commits.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn enter(
    db: &Db,
    name: &Scope,
    created_at: DateTime<Utc>,
    created_by: Option<&str>,
) -> Result<(Tx, ScopeId)> {
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!(
        "insert into scopes (name, created_at, created_by) values ($1, $2, $3) on conflict (name) do nothing",
        name.as_str(),
        created_at,
        created_by
    )
    .execute(tx.conn())
    .await?;
    let id = sqlx::query_scalar!("select scope_id from scopes where name = $1", name.as_str())
        .fetch_optional(tx.conn())
        .await?;
    let id = id.map(ScopeId).ok_or_else(|| Error::internal("a scope that was just made is not there"))?;
    tx.narrow_to(id).await?;
    Ok((tx, id))
}

/// The memories that have one of these ids, and the active ones that have one of these texts.
///
/// # Errors
/// When the connection is lost.
pub async fn known(tx: &mut Tx, scope: ScopeId, ids: &[Uuid], hashes: &[Vec<u8>]) -> Result<Vec<Known>> {
    let rows = sqlx::query!(
        r#"select id as "id!", case when valid_to is null then content_hash end as active_hash
             from memories where scope_id = $1 and id = any($2)
           union all
           select id, content_hash from memories where scope_id = $1 and content_hash = any($3) and valid_to is null"#,
        scope.0,
        ids,
        hashes
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| Known { id: row.id, active_hash: row.active_hash }).collect())
}

/// Which of these places are taken: the n-th place is `seqs[n]` in `sources[n]`.
///
/// # Errors
/// When the connection is lost.
pub async fn places(tx: &mut Tx, scope: ScopeId, sources: &[String], seqs: &[i64]) -> Result<Vec<Taken>> {
    Ok(sqlx::query_as!(
        Taken,
        r#"select asked.source as "source!", asked.seq as "seq!",
                  exists (select from memories m
                           where m.scope_id = $1 and m.source = asked.source and m.seq = asked.seq) as "is_taken!",
                  coalesce((select m.seq from memories m where m.scope_id = $1 and m.source = asked.source
                             order by m.seq desc limit 1), 0) as "last!"
             from unnest($2::text[], $3::bigint[]) as asked (source, seq)"#,
        scope.0,
        sources,
        seqs
    )
    .fetch_all(tx.conn())
    .await?)
}

/// A row of `memories` as the statement reads it.
#[derive(Serialize)]
struct Columns<'a> {
    #[serde(flatten)]
    memory: &'a MemoryLine,
    hash: String,
    tokens: i32,
}

/// Inserts memories with their postings, sources and counts of recalls, without vectors, and counts them. The caller
/// holds the scope's lock and has seen that none is there.
///
/// # Errors
/// When the connection is lost.
pub async fn insert(tx: &mut Tx, scope: ScopeId, rows: &[NewRow]) -> Result<()> {
    let tokens = |row: &NewRow| i32::try_from(row.analysis.tokens).unwrap_or(i32::MAX);
    let columns: Vec<Columns<'_>> = rows
        .iter()
        .map(|row| Columns { memory: &row.memory, hash: hex::encode(row.content_hash), tokens: tokens(row) })
        .collect();
    sqlx::query!(
        "insert into memories (scope_id, id, tier, content, content_hash, tags, source, actor, metadata, confidence,
                               support, created_at, occurred_at, valid_from, valid_to, superseded_reason, seq,
                               token_count, restated_at, decayed_at, kept_apart, looked_at)
         select $1, id, tier, content, decode(hash, 'hex'), coalesce(tags, '{}'), source, actor,
                coalesce(metadata, '{}'), confidence, support, created_at, occurred_at, valid_from, valid_to,
                superseded_reason, seq, tokens, restated_at, decayed_at, kept_apart, looked_at
           from jsonb_to_recordset($2::jsonb) as new (
                    id uuid, tier text, content text, hash text, tags text[], source text, actor text, metadata jsonb,
                    confidence real, support integer, created_at timestamptz, occurred_at timestamptz,
                    valid_from timestamptz, valid_to timestamptz, superseded_reason text, seq bigint, tokens integer,
                    restated_at timestamptz, decayed_at timestamptz, kept_apart boolean, looked_at boolean)",
        scope.0,
        Json(columns) as _
    )
    .execute(tx.conn())
    .await?;
    insert_terms(tx, scope, rows).await?;
    insert_uses(tx, scope, rows).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.memory.id).collect();
    tx.listed(scope, &ids);
    let is_todo = |row: &&NewRow| {
        let memory = &row.memory;
        memory.tier == Tier::Episodic && memory.valid_to.is_none() && !memory.looked_at
    };
    let bytes = rows.iter().map(|row| row.memory.content.len()).sum::<usize>();
    let change = scope::CounterChange {
        memories: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        tokens: rows.iter().map(|row| i64::from(tokens(row))).sum(),
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        unconsolidated: i64::try_from(rows.iter().filter(is_todo).count()).unwrap_or(i64::MAX),
    };
    scope::count(tx, scope, change).await
}

async fn insert_terms(tx: &mut Tx, scope: ScopeId, rows: &[NewRow]) -> Result<()> {
    // In the order of the primary key, so that neighbours in the index are written one after the other.
    let mut postings: Vec<(&str, Uuid, i32, i32)> = Vec::new();
    for row in rows {
        let len = i32::try_from(row.analysis.tokens).unwrap_or(i32::MAX);
        postings.extend(
            row.analysis.terms.iter().map(|(term, tf)| {
                (term.as_str(), row.memory.id, i32::try_from(*tf).unwrap_or(i32::MAX), len)
            }),
        );
    }
    postings.sort_unstable();
    let terms: Vec<String> = postings.iter().map(|posting| posting.0.to_owned()).collect();
    let ids: Vec<Uuid> = postings.iter().map(|posting| posting.1).collect();
    let frequencies: Vec<i32> = postings.iter().map(|posting| posting.2).collect();
    let lengths: Vec<i32> = postings.iter().map(|posting| posting.3).collect();
    sqlx::query!(
        "insert into memory_term (scope_id, term, memory_id, tf, len)
         select $1, term, id, tf, len
           from unnest($2::text[], $3::uuid[], $4::int[], $5::int[]) as posting (term, id, tf, len)",
        scope.0,
        &terms,
        &ids,
        &frequencies,
        &lengths
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Who stated the memories, and how often they were recalled.
async fn insert_uses(tx: &mut Tx, scope: ScopeId, rows: &[NewRow]) -> Result<()> {
    let (mut ids, mut sources, mut statements) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        for (source, stated) in &row.memory.sources {
            ids.push(row.memory.id);
            sources.push(source.clone());
            statements.push(*stated);
        }
    }
    sqlx::query!(
        "insert into memory_sources (scope_id, memory_id, source, statements)
         select $1, id, source, statements
           from unnest($2::uuid[], $3::text[], $4::int[]) as stated (id, source, statements)",
        scope.0,
        &ids,
        &sources,
        &statements
    )
    .execute(tx.conn())
    .await?;
    let recalled = rows.iter().filter_map(|row| {
        let memory = &row.memory;
        Some((memory.id, memory.access_count, memory.last_accessed_at?))
    });
    let (mut ids, mut counts, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for (id, count, at) in recalled {
        ids.push(id);
        counts.push(count);
        last.push(at);
    }
    sqlx::query!(
        "insert into memory_access (scope_id, memory_id, access_count, last_accessed_at)
         select $1, id, recalls, last_at
           from unnest($2::uuid[], $3::bigint[], $4::timestamptz[]) as used (id, recalls, last_at)",
        scope.0,
        &ids,
        &counts,
        &last
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Notes what superseded memories of the history, where both are there and nothing else did. Answers the numbers of the
/// pairs, from 1 on, that are so now.
///
/// # Errors
/// When the connection is lost.
pub async fn link(tx: &mut Tx, scope: ScopeId, ids: &[Uuid], successors: &[Uuid]) -> Result<Vec<i64>> {
    let linked = sqlx::query_scalar!(
        "update memories m set superseded_by = asked.successor
           from unnest($2::uuid[], $3::uuid[]) as asked (id, successor)
          where m.scope_id = $1 and m.id = asked.id and m.valid_to is not null and m.superseded_by is null
            and m.superseded_reason <> 'undone'
            and exists (select from memories n where n.scope_id = $1 and n.id = asked.successor)
      returning m.id",
        scope.0,
        ids,
        successors
    )
    .fetch_all(tx.conn())
    .await?;
    tx.changed(scope, &linked);
    Ok(sqlx::query_scalar!(
        r#"select asked.n as "n!" from unnest($2::uuid[], $3::uuid[]) with ordinality as asked (id, successor, n)
             join memories m on m.scope_id = $1 and m.id = asked.id and m.superseded_by = asked.successor"#,
        scope.0,
        ids,
        successors
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Notes what facts were made from, where both are there. Answers the numbers of the pairs, from 1 on, that are so now.
///
/// # Errors
/// When the connection is lost.
pub async fn add_origins(tx: &mut Tx, scope: ScopeId, facts: &[Uuid], origins: &[Uuid]) -> Result<Vec<i64>> {
    sqlx::query!(
        "insert into memory_origin (scope_id, memory_id, origin_id)
         select $1, fact.id, origin.id
           from unnest($2::uuid[], $3::uuid[]) as asked (fact, origin)
           join memories fact on fact.scope_id = $1 and fact.id = asked.fact
           join memories origin on origin.scope_id = $1 and origin.id = asked.origin
             on conflict do nothing",
        scope.0,
        facts,
        origins
    )
    .execute(tx.conn())
    .await?;
    Ok(sqlx::query_scalar!(
        r#"select asked.n as "n!" from unnest($2::uuid[], $3::uuid[]) with ordinality as asked (fact, origin, n)
             join memory_origin o on o.scope_id = $1 and o.memory_id = asked.fact and o.origin_id = asked.origin"#,
        scope.0,
        facts,
        origins
    )
    .fetch_all(tx.conn())
    .await?)
}

/// Writes contradictions, where both memories are there and the pair is not known. Answers the numbers of the pairs, from
/// 1 on, that are known now.
///
/// # Errors
/// When the connection is lost.
pub async fn add_conflicts(tx: &mut Tx, scope: ScopeId, lines: &[&ConflictLine]) -> Result<Vec<i64>> {
    sqlx::query!(
        r#"insert into conflicts (scope_id, conflict_id, new_id, old_id, similarity, status, resolution, resolved_by,
                                  resolved_at, created_at)
           select $1, asked.id, n.id, o.id, similarity, status, resolution, resolved_by, resolved_at, asked.created_at
             from jsonb_to_recordset($2::jsonb) as asked (
                      id uuid, "new" uuid, "old" uuid, similarity real, status text, resolution text,
                      resolved_by text, resolved_at timestamptz, created_at timestamptz)
             join memories n on n.scope_id = $1 and n.id = asked."new"
             join memories o on o.scope_id = $1 and o.id = asked."old"
               on conflict do nothing"#,
        scope.0,
        Json(lines) as _
    )
    .execute(tx.conn())
    .await?;
    let pairs: (Vec<Uuid>, Vec<Uuid>) = lines.iter().map(|line| (line.new, line.old)).unzip();
    Ok(sqlx::query_scalar!(
        r#"select asked.n as "n!" from unnest($2::uuid[], $3::uuid[]) with ordinality as asked (newer, older, n)
             join conflicts c on c.scope_id = $1 and c.new_id = asked.newer and c.old_id = asked.older"#,
        scope.0,
        &pairs.0,
        &pairs.1
    )
    .fetch_all(tx.conn())
    .await?)
}
