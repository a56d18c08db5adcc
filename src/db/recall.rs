//! Recall's candidates: which memories share words or meaning with a query. Ranking them is the engine's business.

use chrono::{DateTime, Utc};
use pgvector::Vector;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::space::Space;
use super::{ScopeId, Tx};
use crate::error::Result;

/// Which memories count. Every arm applies the whole of it.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only with these tags.
    pub tags: Vec<String>,
    /// One tag is enough.
    pub any_tag: bool,
    /// Only of this source.
    pub source: Option<String>,
    /// Only of these durable tiers; empty means all.
    pub tiers: Vec<String>,
    /// Only what happened at or after.
    pub occurred_after: Option<DateTime<Utc>>,
    /// Only what happened before.
    pub occurred_before: Option<DateTime<Utc>>,
    /// Only what was valid then.
    pub as_of: Option<DateTime<Utc>>,
    /// Also what was superseded.
    pub superseded: bool,
    /// Also the originals of consolidated facts, which lend the fact their score.
    pub originals: bool,
}

/// A candidate of one arm with that arm's raw score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The memory.
    pub id: Uuid,
    /// BM25, or cosine similarity.
    pub score: f32,
}

/// How much a scope holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScopeSize {
    /// Rows.
    pub memories: i64,
    /// Average terms of a row.
    pub average_tokens: f64,
}

/// The scope's size as its counters have it, and the embedding space that is active.
///
/// # Errors
/// When the connection is lost.
pub async fn size(tx: &mut Tx, scope: ScopeId) -> Result<(ScopeSize, i32)> {
    let row = sqlx::query!(
        r#"select memories, tokens::float8 / greatest(memories, 1) as "average_tokens!",
                  (select space_id from embedding_spaces where state = 'active') as "active!"
             from scopes where scope_id = $1"#,
        scope.0
    )
    .fetch_one(tx.conn())
    .await?;
    let size = ScopeSize { memories: row.memories, average_tokens: row.average_tokens.max(1.0) };
    Ok((size, row.active))
}

/// The best `limit` memories by words: BM25 over the OR of the terms.
///
/// Document frequencies are exact: they are counted in the postings. `k1` and `b` as in Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
/// (2009).
///
/// # Errors
/// When the connection is lost.
pub async fn by_words(
    tx: &mut Tx,
    scope: ScopeId,
    terms: &[String],
    size: ScopeSize,
    (k1, b): (f64, f64),
    filter: &Filter,
    limit: i64,
) -> Result<Vec<Hit>> {
    let rows = sqlx::query!(
        r#"with posting as materialized (
               select term, memory_id, tf, len from memory_term where scope_id = $1 and term = any($2)
           ), weight as (
               select term, ln(1 + (greatest($3::bigint, count(*)) - count(*) + 0.5) / (count(*) + 0.5)) as idf
                 from posting group by term
           ), scored as (
               select memory_id,
                      sum(idf * tf * ($5::float8 + 1) / (tf + $5 * (1 - $6::float8 + $6 * len / $4::float8))) as score
                 from posting join weight using (term) group by memory_id
           )
           select m.id, s.score::real as "score!"
             from scored s join memories m on m.scope_id = $1 and m.id = s.memory_id
            where (cardinality($7::text[]) = 0 or case when $8 then m.tags && $7 else m.tags @> $7 end)
              and ($9::text is null or m.source = $9)
              and (cardinality($10::text[]) = 0 or m.tier = any($10))
              and ($11::timestamptz is null or coalesce(m.occurred_at, m.created_at) >= $11)
              and ($12::timestamptz is null or coalesce(m.occurred_at, m.created_at) < $12)
              and case when $13::timestamptz is not null
                       then m.valid_from <= $13 and (m.valid_to is null or m.valid_to > $13)
                       else $14 or m.valid_to is null or ($15 and m.superseded_reason = 'consolidated') end
            order by s.score desc, m.id desc
            limit $16"#,
        scope.0,
        terms,
        size.memories,
        size.average_tokens,
        k1,
        b,
        &filter.tags,
        filter.any_tag,
        filter.source,
        &filter.tiers,
        filter.occurred_after,
        filter.occurred_before,
        filter.as_of,
        filter.superseded,
        filter.originals,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| Hit { id: row.id, score: row.score }).collect())
}

/// Scopes of up to this many rows are scanned exactly: that is fast enough and always right.
const EXACT_UP_TO: i64 = 10_000;

/// The best `limit` memories by meaning.
///
/// Small scopes are scanned exactly; large ones go through the HNSW index, and
/// through the exact scan again when that returns less than was asked for, as it does under a narrow filter.
///
/// # Errors
/// When the connection is lost.
pub async fn by_meaning(
    tx: &mut Tx,
    scope: ScopeId,
    space: Space,
    vector: &[f32],
    size: ScopeSize,
    filter: &Filter,
    limit: i64,
) -> Result<Vec<Hit>> {
    if size.memories > EXACT_UP_TO && space.is_indexed() {
        sqlx::raw_sql("set local hnsw.iterative_scan = strict_order; set local hnsw.ef_search = 100")
            .execute(tx.conn())
            .await?;
        let hits = scan(tx, scope, space, vector, filter, limit, true).await?;
        if i64::try_from(hits.len()).unwrap_or(i64::MAX) >= limit {
            return Ok(hits);
        }
    }
    scan(tx, scope, space, vector, filter, limit, false).await
}

/// One scan of the vectors of a space. The space's number and width stand in the text, because the partial index and
/// its cast are found only by literals; both are integers of our own. `+ 0` keeps the exact scan off the index.
async fn scan(
    tx: &mut Tx,
    scope: ScopeId,
    space: Space,
    vector: &[f32],
    filter: &Filter,
    limit: i64,
    indexed: bool,
) -> Result<Vec<Hit>> {
    let (number, width) = (space.id, space.dimensions);
    let (distance, order) = if indexed {
        let distance = format!("(e.embedding::halfvec({width}) <=> $2::vector::halfvec({width}))");
        (distance.clone(), distance)
    } else {
        ("(e.embedding <=> $2)".to_owned(), "(e.embedding <=> $2) + 0".to_owned())
    };
    let statement = format!(
        "select m.id, (1 - {distance})::real as score
           from memory_embedding e join memories m on m.scope_id = e.scope_id and m.id = e.memory_id
          where e.scope_id = $1 and e.space_id = {number}
            and (cardinality($3::text[]) = 0 or case when $4 then m.tags && $3 else m.tags @> $3 end)
            and ($5::text is null or m.source = $5)
            and (cardinality($6::text[]) = 0 or m.tier = any($6))
            and ($7::timestamptz is null or coalesce(m.occurred_at, m.created_at) >= $7)
            and ($8::timestamptz is null or coalesce(m.occurred_at, m.created_at) < $8)
            and case when $9::timestamptz is not null
                     then m.valid_from <= $9 and (m.valid_to is null or m.valid_to > $9)
                     else $10 or m.valid_to is null or ($11 and m.superseded_reason = 'consolidated') end
          order by {order}
          limit $12"
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(scope.0)
        .bind(Vector::from(vector.to_vec()))
        .bind(&filter.tags)
        .bind(filter.any_tag)
        .bind(&filter.source)
        .bind(&filter.tiers)
        .bind(filter.occurred_after)
        .bind(filter.occurred_before)
        .bind(filter.as_of)
        .bind(filter.superseded)
        .bind(filter.originals)
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    rows.iter().map(|row| Ok(Hit { id: row.try_get("id")?, score: row.try_get("score")? })).collect()
}

/// Document frequencies of terms, for scoring what lives outside the postings.
///
/// # Errors
/// When the connection is lost.
pub async fn frequencies(tx: &mut Tx, scope: ScopeId, terms: &[String]) -> Result<Vec<(String, i64)>> {
    let rows = sqlx::query!(
        r#"select term, count(*) as "df!" from memory_term where scope_id = $1 and term = any($2) group by term"#,
        scope.0,
        terms
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.term, row.df)).collect())
}
