//! Candidates by words: BM25 over the postings.

use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{FILTER, Filter, Hit, ScopeSize};
use crate::db::tx::PLAN_FOR_VALUES;
use crate::db::{ScopeId, Tx, working};
use crate::error::Result;

/// Of a scope with more memories than this, a word that over a quarter of them hold is weighed only on the best
/// candidates of the other words.
const LARGE: i64 = 10_000;

/// How many of those candidates. Such a word adds at most `(k1 + 1) ln 4` to a score, so that what it could lift from
/// below is no answer.
const WEIGHED: i64 = 1_000;

/// What is asked for, with the parameters of BM25.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The spellings of all words.
    pub terms: &'a [String],
    /// For each spelling the number of its word: spellings of one word weigh the same.
    pub words: &'a [i32],
    /// How slowly repeats saturate.
    pub k1: f32,
    /// How much long memories are discounted.
    pub b: f32,
}

/// What the words found, and what else a recall needs to know of the scope.
#[derive(Clone, Debug)]
pub struct Found {
    /// The scope's size.
    pub size: ScopeSize,
    /// The embedding space that is active.
    pub active: i32,
    /// How many memories hold each word that any holds.
    pub frequencies: Vec<(i32, i64)>,
    /// Best first.
    pub hits: Vec<Hit>,
    /// The working memories that the database holds.
    pub working: Vec<working::Row>,
}

/// The best `limit` memories by words: BM25 over any of the words.
///
/// `k1` and `b` as in Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
/// Document frequencies are exact: they are counted in the postings, where a memory with two spellings of one word
/// counts twice. Memories are looked up in the order of their scores, until `limit` of them pass the filter.
/// Working memories are answered where `alive_at` says when they have to be alive, whatever they hold.
///
/// # Errors
/// When the connection is lost.
pub async fn by_words(
    tx: &mut Tx,
    scope: ScopeId,
    asked: Asked<'_>,
    alive_at: Option<DateTime<Utc>>,
    filter: &Filter,
    limit: i64,
) -> Result<Found> {
    let query = sqlx::query(AssertSqlSafe(STATEMENT.as_str())).bind(scope.0).bind(asked.terms);
    let row = filter
        .bind(query)
        .bind(limit)
        .bind(asked.words)
        .bind(f64::from(asked.k1))
        .bind(f64::from(asked.b))
        .bind(WEIGHED)
        .bind(LARGE)
        .bind(alive_at)
        .fetch_one(tx.conn())
        .await?;
    let (ids, scores): (Vec<Uuid>, Vec<f32>) = (row.try_get("ids")?, row.try_get("scores")?);
    let (words, frequencies): (Vec<i32>, Vec<i64>) = (row.try_get("words")?, row.try_get("frequencies")?);
    let working: Json<Vec<working::Row>> = row.try_get("working")?;
    Ok(Found {
        size: ScopeSize {
            memories: row.try_get("memories")?,
            average_tokens: row.try_get("average")?,
            vectors: row.try_get("vectors")?,
        },
        active: row.try_get("active")?,
        frequencies: words.into_iter().zip(frequencies).collect(),
        hits: ids.into_iter().zip(scores).map(|(id, score)| Hit { id, score }).collect(),
        working: working.0,
    })
}

/// Of one shape for every scope and filter, so that its plan may be kept ([`Tx::for_recall`]), also where it was made while
/// the tables were empty and every plan seemed as good. `lateral` with `offset` or `limit` has each word and each memory
/// looked up by itself. Conditions are ranges of one value, because these have an order, which the primary key alone gives
/// without sorting: equalities would let Postgres take any index that begins with the scope.
///
/// Four times as many of the best as are asked for are usually enough for a filter that drops the superseded; sorting
/// only these takes a fraction of sorting all. Where they are not enough, all are scored again.
static STATEMENT: LazyLock<String> = LazyLock::new(|| {
    let postings = "t.scope_id = $1 and t.term >= asked.term and t.term <= asked.term";
    let score = "gain * tf / (tf + base + slope * len)";
    let admitted = format!(
        "cross join lateral (
                     select from memories m
                      where m.scope_id = $1 and m.id >= best.memory_id and m.id <= best.memory_id and {FILTER}
                      order by m.id limit 1) m
                order by score desc, memory_id desc limit (select size from pool)"
    );
    format!(
        "with scope as materialized (
               select memories, greatest(tokens::float8 / greatest(memories, 1), 1) as average
                 from scopes where scope_id = $1
           ), asked as materialized (
               select term, word from unnest($2::text[], $13::int[]) as asked (term, word)
           ), counted as materialized (
               select word, sum((select count(*) from (
                          select from memory_term t where {postings} order by t.term offset 0) posting))::bigint as df
                 from asked group by word
           ), weight as materialized (
               select word, df, $14::float8 * (1 - $15::float8) as base, $14 * $15 / average as slope,
                      ($14 + 1) * ln(1 + (memories - least(df, memories) + 0.5::float8) / (df + 0.5::float8)) as gain,
                      memories > $17::bigint and df > memories / 4
                          and row_number() over (order by df, word) > 1 as is_frequent
                 from scope, counted where df > 0
           ), pool as materialized (
               select coalesce(bool_or(is_frequent), false) as has_frequent,
                      case when bool_or(is_frequent) then greatest($12::bigint, $16::bigint) else $12 end as size
                 from weight
           ), rough as not materialized (
               select memory_id, sum({score}) as score
                 from asked join weight using (word) cross join lateral (
                     select memory_id, tf, len from memory_term t where {postings} order by t.term offset 0) posting
                where not is_frequent
                group by memory_id
           ), first as materialized (
               select memory_id as id, score
                 from (select memory_id, score from rough
                        order by score desc, memory_id desc limit 4 * (select size from pool)) best
                 {admitted}
           ), rest as materialized (
               select memory_id as id, score
                 from (select memory_id, score from rough where (select count(*) from first) < (select size from pool)
                        order by score desc, memory_id desc offset 0) best
                 {admitted}
           ), candidate as materialized (
               select id, score from first where (select count(*) from first) >= (select size from pool)
               union all
               select id, score from rest
           ), best as materialized (
               select id, score + case when (select has_frequent from pool) then
                          coalesce((select sum({score})
                                      from asked join weight using (word) cross join lateral (
                                          select tf, len from memory_term t
                                           where {postings} and t.memory_id >= candidate.id and t.memory_id <= candidate.id
                                           order by t.term, t.memory_id limit 1) posting
                                     where is_frequent), 0)
                          else 0 end as score
                 from candidate order by score desc, id desc limit $12
           )
           select scope.memories, scope.average,
                  (select reltuples::bigint from pg_class where oid = 'memory_embedding'::regclass) as vectors,
                  (select space_id from embedding_spaces where state = 'active') as active,
                  array(select word from weight order by word) as words,
                  array(select df from weight order by word) as frequencies,
                  array(select id from best order by score desc, id desc) as ids,
                  array(select score::real from best order by score desc, id desc) as scores,
                  (select coalesce(jsonb_agg(jsonb_build_object(
                              'id', w.id, 'support', (w.entry ->> 'support')::integer,
                              'entry', w.entry, 'expires_at', w.expires_at)), '[]')
                     from working_memories w
                    where w.scope_id = $1 and w.expires_at > $18::timestamptz) as working,
                  {PLAN_FOR_VALUES}
             from scope"
    )
});
