//! Candidates by meaning: the nearest vectors of a space.

use pgvector::Vector;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{FILTER, Filter, Hit, ScopeSize};
use crate::db::space::Space;
use crate::db::{ScopeId, Tx};
use crate::error::Result;

/// Scopes of up to this many rows are scanned exactly: that is fast enough and always right.
const EXACT_UP_TO: i64 = 10_000;

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
) -> Result<Vec<Hit>> {
    let exact_up_to = exact_up_to(size.vectors);
    let statement = if size.memories <= exact_up_to || !space.is_indexed() {
        exact_statement(space)
    } else if filter.is_narrow() {
        indexed_statement(space, Some(exact_up_to.max(size.memories / 20)))
    } else {
        indexed_statement(space, None)
    };
    let query = sqlx::query(AssertSqlSafe(statement)).bind(scope.0).bind(Vector::from(vector.to_vec()));
    let row = filter.bind(query).bind(limit).fetch_one(tx.conn()).await?;
    let (ids, scores): (Vec<Uuid>, Vec<f32>) = (row.try_get("ids")?, row.try_get("scores")?);
    Ok(ids.into_iter().zip(scores).map(|(id, score)| Hit { id, score }).collect())
}

/// How many rows are scanned exactly in a table of `vectors`.
///
/// An exact scan was seen to take about 5 µs a row. That the index takes some 15 µs for each row that it visits is an
/// estimate; of a scope with a share `s` of the table it visits `50 / s` for a pool of 50. Both cost the same where the
/// scope has the square root of `150 * vectors` rows.
fn exact_up_to(vectors: i64) -> i64 {
    vectors.max(0).saturating_mul(150).isqrt().max(EXACT_UP_TO)
}

/// The ids with their scores.
const ANSWER: &str = "select array(select id from best order by score desc, id desc) as ids,
            array(select score::real from best order by score desc, id desc) as scores";

/// The nearest rows under a further condition. The space's number and width stand in the text, because the partial index
/// and its cast are found only by literals; both are integers of our own.
fn nearest(space: Space, order: &str, condition: &str) -> String {
    let number = space.id;
    format!(
        "select m.id, 1 - (e.embedding <=> $2::vector) as score
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

    #[test]
    fn what_is_scanned_exactly_grows_with_the_table() {
        assert_eq!([-1, 0, 200_000, 10_000_000].map(exact_up_to), [10_000, 10_000, 10_000, 38_729]);
    }
}
