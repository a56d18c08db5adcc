//! Recall's candidates: which memories share words or meaning with a query. Ranking them is the engine's business.
//!
//! A recall is three statements: [`by_words`], which also tells what the other two need to know of the scope,
//! [`by_meaning`], and [`fetch_related`](super::memory::fetch_related) of what both found and of what belongs to it.

mod meaning;
mod words;

pub use meaning::by_meaning;
pub use words::{Asked, Found, by_words};

use chrono::{DateTime, Utc};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

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

impl Filter {
    /// Whether it may leave out much of what is active.
    const fn is_narrow(&self) -> bool {
        !self.tags.is_empty()
            || self.source.is_some()
            || !self.tiers.is_empty()
            || self.occurred_after.is_some()
            || self.occurred_before.is_some()
            || self.as_of.is_some()
    }

    /// Binds the parameters of [`FILTER`].
    fn bind<'q>(&'q self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        query
            .bind(&self.tags)
            .bind(self.any_tag)
            .bind(&self.source)
            .bind(&self.tiers)
            .bind(self.occurred_after)
            .bind(self.occurred_before)
            .bind(self.as_of)
            .bind(self.superseded)
            .bind(self.originals)
    }
}

/// What a memory `m` has to be like. Every statement that asks for candidates has the scope and what is asked for as its
/// first two parameters, and then the filter's.
const FILTER: &str = "(cardinality($3::text[]) = 0 or case when $4 then m.tags && $3 else m.tags @> $3 end)
            and ($5::text is null or m.source = $5)
            and (cardinality($6::text[]) = 0 or m.tier = any($6))
            and ($7::timestamptz is null or coalesce(m.occurred_at, m.created_at) >= $7)
            and ($8::timestamptz is null or coalesce(m.occurred_at, m.created_at) < $8)
            and case when $9::timestamptz is not null
                     then m.valid_from <= $9 and (m.valid_to is null or m.valid_to > $9)
                     else $10 or m.valid_to is null or ($11 and m.superseded_reason = 'consolidated') end";

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
    /// Vectors of all scopes, as Postgres estimates them.
    pub vectors: i64,
}

/// The scope's size as its counters have it, and the embedding space that is active.
///
/// # Errors
/// When the connection is lost.
pub async fn size(tx: &mut Tx, scope: ScopeId) -> Result<(ScopeSize, i32)> {
    let row = sqlx::query!(
        r#"select memories, greatest(tokens::float8 / greatest(memories, 1), 1) as "average_tokens!",
                  (select reltuples::bigint from pg_class where oid = 'memory_embedding'::regclass) as "vectors!",
                  (select space_id from embedding_spaces where state = 'active') as "active!"
             from scopes where scope_id = $1"#,
        scope.0
    )
    .fetch_one(tx.conn())
    .await?;
    let size = ScopeSize { memories: row.memories, average_tokens: row.average_tokens, vectors: row.vectors };
    Ok((size, row.active))
}
