//! Candidates by words: BM25 over the postings.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Filter, Hit, ScopeSize};
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
    /// What ranking the hits takes: the memories before and after each of the same source, and the facts that they were
    /// consolidated into.
    pub related: Vec<Uuid>,
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
#[expect(clippy::too_many_lines, reason = "one statement")]
pub async fn by_words(
    tx: &mut Tx,
    scope: ScopeId,
    asked: Asked<'_>,
    alive_at: Option<DateTime<Utc>>,
    filter: &Filter,
    limit: i64,
) -> Result<Found> {
    let row = sqlx::query!(
        r#"with scope as materialized (
               select memories, greatest(tokens::float8 / greatest(memories, 1), 1) as average
                 from scopes where scope_id = $1
           ), asked as materialized (
               select term, word from unnest($2::text[], $3::int[]) as asked (term, word)
           ), counted as materialized (
               select word, sum((select count(*) from memory_term t
                                  where t.scope_id = $1 and t.term = asked.term))::bigint as df
                 from asked group by word
           ), weight as materialized (
               select word, df, ln(1 + (memories - least(df, memories) + 0.5::float8) / (df + 0.5::float8)) as idf,
                      memories > $17 and df > memories / 4 and row_number() over (order by df, word) > 1 as is_frequent
                 from scope, counted where df > 0
           ), rough as materialized (
               select t.memory_id, sum(idf * tf * ($4::float8 + 1)
                                       / (tf + $4 * (1 - $5::float8 + $5 * len / (select average from scope)))) as score
                 from asked join weight using (word)
                 join memory_term t on t.scope_id = $1 and t.term = asked.term
                where not is_frequent
                group by t.memory_id
           ), candidate as materialized (
               select m.id, best.score, m.source, m.seq, m.superseded_by, m.superseded_reason
                 from (select memory_id, score from rough order by score desc, memory_id desc offset 0) best
                 join memories m on m.scope_id = $1 and m.id = best.memory_id
                where (cardinality($6::text[]) = 0 or case when $7 then m.tags && $6 else m.tags @> $6 end)
                  and ($8::text is null or m.source = $8)
                  and (cardinality($9::text[]) = 0 or m.tier = any($9))
                  and ($10::timestamptz is null or coalesce(m.occurred_at, m.created_at) >= $10)
                  and ($11::timestamptz is null or coalesce(m.occurred_at, m.created_at) < $11)
                  and case when $12::timestamptz is not null
                           then m.valid_from <= $12 and (m.valid_to is null or m.valid_to > $12)
                           else $13 or m.valid_to is null or ($14 and m.superseded_reason = 'consolidated') end
                order by best.score desc, best.memory_id desc
                limit case when exists (select from weight where is_frequent)
                           then greatest($15::bigint, $16::bigint) else $15 end
           ), best as materialized (
               select id, source, seq, superseded_by, superseded_reason,
                      score + case when exists (select from weight where is_frequent) then
                          coalesce((select sum(idf * tf * ($4 + 1)
                                               / (tf + $4 * (1 - $5 + $5 * len / (select average from scope))))
                                      from weight join asked using (word)
                                      join memory_term t on t.scope_id = $1 and t.term = asked.term
                                                        and t.memory_id = candidate.id
                                     where is_frequent), 0)
                          else 0 end as score
                 from candidate order by score desc, id desc limit $15
           )
           select scope.memories as "memories!", scope.average as "average!",
                  (select reltuples::bigint from pg_class where oid = 'memory_embedding'::regclass) as "vectors!",
                  (select space_id from embedding_spaces where state = 'active') as "active!",
                  array(select word from weight order by word) as "words!",
                  array(select df from weight order by word) as "frequencies!",
                  array(select id from best order by score desc, id desc) as "ids!",
                  array(select score::real from best order by score desc, id desc) as "scores!",
                  array(select related.id from best, lateral (
                            select best.superseded_by as id where best.superseded_reason = 'consolidated'
                            union all
                            select beside.id
                              from ((select p.id, p.superseded_by, p.superseded_reason from memories p
                                      where p.scope_id = $1 and p.source = best.source and p.seq < best.seq
                                      order by p.seq desc limit 1)
                                    union all
                                    (select n.id, n.superseded_by, n.superseded_reason from memories n
                                      where n.scope_id = $1 and n.source = best.source and n.seq > best.seq
                                      order by n.seq limit 1)) near,
                                   lateral (values (near.id), (case when near.superseded_reason = 'consolidated'
                                                                    then near.superseded_by end)) beside (id)) related
                         where related.id is not null) as "related!",
                  (select coalesce(jsonb_agg(jsonb_build_object(
                              'id', w.id, 'support', (w.entry ->> 'support')::integer,
                              'entry', w.entry, 'expires_at', w.expires_at)), '[]')
                     from working_memories w
                    where w.scope_id = $1 and w.expires_at > $18) as "working!: Json<Vec<working::Row>>"
             from scope"#,
        scope.0,
        asked.terms,
        asked.words,
        f64::from(asked.k1),
        f64::from(asked.b),
        &filter.tags,
        filter.any_tag,
        filter.source,
        &filter.tiers,
        filter.occurred_after,
        filter.occurred_before,
        filter.as_of,
        filter.superseded,
        filter.originals,
        limit,
        WEIGHED,
        LARGE,
        alive_at
    )
    .fetch_one(tx.conn())
    .await?;
    let hits = row.ids.into_iter().zip(row.scores).map(|(id, score)| Hit { id, score }).collect();
    Ok(Found {
        size: ScopeSize { memories: row.memories, average_tokens: row.average, vectors: row.vectors },
        active: row.active,
        frequencies: row.words.into_iter().zip(row.frequencies).collect(),
        hits,
        related: row.related,
        working: row.working.0,
    })
}
