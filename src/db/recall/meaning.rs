//! Candidates by meaning: the nearest vectors of a space.

use pgvector::Vector;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{Filter, Hit, ScopeSize};
use crate::db::space::Space;
use crate::db::{ScopeId, Tx};
use crate::error::Result;

/// Scopes of up to this many rows are scanned exactly: that is fast enough and always right.
const EXACT_UP_TO: i64 = 10_000;

/// What the vectors found.
#[derive(Clone, Debug, Default)]
pub struct Near {
    /// Nearest first; the score is the cosine.
    pub hits: Vec<Hit>,
    /// As [`Found::related`](super::Found::related).
    pub related: Vec<Uuid>,
}

/// The best `limit` memories by meaning, in one statement.
///
/// Exact in a scope that is small, or small beside the table: the HNSW index is shared by all scopes, so that finding a
/// small one's rows in it takes long. Larger scopes go through the index with iterative scans, except where a filter
/// keeps under a twentieth of the rows. Whenever the index gives fewer than `limit`, the exact scan is made as well.
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
) -> Result<Near> {
    let exact_up_to = exact_up_to(size.vectors);
    let statement = if size.memories <= exact_up_to || !space.is_indexed() {
        exact_statement(space)
    } else if filter.is_narrow() {
        indexed_statement(space, Some(exact_up_to.max(size.memories / 20)))
    } else {
        indexed_statement(space, None)
    };
    let row = sqlx::query(AssertSqlSafe(statement))
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
        .fetch_one(tx.conn())
        .await?;
    let (ids, scores): (Vec<Uuid>, Vec<f32>) = (row.try_get("ids")?, row.try_get("scores")?);
    let hits = ids.into_iter().zip(scores).map(|(id, score)| Hit { id, score }).collect();
    Ok(Near { hits, related: row.try_get("related")? })
}

/// How many rows are scanned exactly in a table of `vectors`.
///
/// An exact scan was seen to take about 5 µs a row. That the index takes some 15 µs for each row that it visits is an
/// estimate; of a scope with a share `s` of the table it visits `50 / s` for a pool of 50. Both cost the same where the
/// scope has the square root of `150 * vectors` rows.
fn exact_up_to(vectors: i64) -> i64 {
    vectors.max(0).saturating_mul(150).isqrt().max(EXACT_UP_TO)
}

/// What a row has to be like: the conditions of [`by_words`](super::by_words), as a test below makes sure. They are not
/// shared, because a statement that is checked at build time has to be one literal.
const FILTER: &str = "(cardinality($3::text[]) = 0 or case when $4 then m.tags && $3 else m.tags @> $3 end)
            and ($5::text is null or m.source = $5)
            and (cardinality($6::text[]) = 0 or m.tier = any($6))
            and ($7::timestamptz is null or coalesce(m.occurred_at, m.created_at) >= $7)
            and ($8::timestamptz is null or coalesce(m.occurred_at, m.created_at) < $8)
            and case when $9::timestamptz is not null
                     then m.valid_from <= $9 and (m.valid_to is null or m.valid_to > $9)
                     else $10 or m.valid_to is null or ($11 and m.superseded_reason = 'consolidated') end";

/// The ids with their scores, and what else ranking them takes.
const ANSWER: &str = "select array(select id from best order by score desc, id desc) as ids,
            array(select score::real from best order by score desc, id desc) as scores,
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
                   where related.id is not null) as related";

/// The nearest rows under a further condition. The space's number and width stand in the text, because the partial index
/// and its cast are found only by literals; both are integers of our own.
fn nearest(space: Space, order: &str, condition: &str) -> String {
    let number = space.id;
    format!(
        "select m.id, 1 - (e.embedding <=> $2::vector) as score, m.source, m.seq, m.superseded_by, m.superseded_reason
           from memory_embedding e join memories m on m.scope_id = e.scope_id and m.id = e.memory_id
          where e.scope_id = $1 and e.space_id = {number} and {FILTER} and {condition}
          order by {order}
          limit $12"
    )
}

/// `+ 0` keeps it off the index.
const EXACT_ORDER: &str = "(e.embedding <=> $2::vector) + 0, m.id desc";

fn exact_statement(space: Space) -> String {
    let nearest = nearest(space, EXACT_ORDER, "true");
    format!("with best as materialized ({nearest}) {ANSWER}")
}

/// Goes through the index where the filter keeps more than `few` rows. Branches that are not taken are not executed:
/// their conditions are known before any row is.
fn indexed_statement(space: Space, few: Option<i64>) -> String {
    let width = space.dimensions;
    let order = format!("e.embedding::halfvec({width}) <=> $2::vector::halfvec({width})");
    let (matching, is_wide) = match few {
        Some(few) => (
            format!(
                "matching as materialized (select from memories m where m.scope_id = $1 and {FILTER} limit {few} + 1),"
            ),
            format!("(select count(*) from matching) > {few}"),
        ),
        None => (String::new(), "true".to_owned()),
    };
    let indexed = nearest(space, &order, &is_wide);
    let exact = nearest(space, EXACT_ORDER, "(select count(*) from indexed) < $12");
    format!(
        "with {matching}
              indexed as materialized ({indexed}),
              exact as materialized ({exact}),
              best as materialized (select * from indexed where (select count(*) from indexed) >= $12
                                    union all select * from exact)
         {ANSWER}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A statement without its layout, its parameters' numbers and their types.
    fn bare(sql: &str) -> String {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let mut parts = words.join(" ").split('$').map(str::to_owned).collect::<Vec<_>>();
        for part in parts.iter_mut().skip(1) {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            let rest = ["::text[]", "::text", "::timestamptz"]
                .iter()
                .find_map(|cast| rest.strip_prefix(cast))
                .unwrap_or(rest);
            *part = rest.to_owned();
        }
        parts.join("$")
    }

    #[test]
    fn both_arms_have_the_same_conditions_and_bring_the_same_relatives() {
        let words = bare(include_str!("words.rs"));
        assert!(words.contains(&bare(FILTER)));
        let (_, related) = ANSWER.split_once("array(select related.id").unwrap();
        assert!(words.contains(&bare(related.trim_end_matches(" as related"))));
        assert_eq!(bare("a = $12::text[] and  $1 < b"), "a = $ and $ < b");
    }

    #[test]
    fn what_is_scanned_exactly_grows_with_the_table() {
        assert_eq!([-1, 0, 200_000, 10_000_000].map(exact_up_to), [10_000, 10_000, 10_000, 38_729]);
    }
}
