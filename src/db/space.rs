//! Embedding spaces: which model made which vector. Vectors of two spaces are never compared.

use chrono::{DateTime, Utc};
use sqlx::AssertSqlSafe;

use super::{Db, Tx};
use crate::error::Result;

/// pgvector indexes half-precision vectors of up to this many dimensions with HNSW.
const INDEXED_UP_TO: i32 = 4_000;

/// Guards the making of a space: replicas that start at once must not make it twice.
const LOCK: i64 = -1_000;

/// The space that this memser writes and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its number.
    pub id: i32,
    /// Its width.
    pub dimensions: i32,
}

impl Space {
    /// Whether it has an HNSW index; wider ones are scanned exactly.
    #[must_use]
    pub const fn is_indexed(self) -> bool {
        self.dimensions <= INDEXED_UP_TO
    }
}

/// The space of this model, made if it is new. The first space is active at once; a later one is building until every
/// memory has a vector in it.
///
/// # Errors
/// When the database does not answer.
pub async fn open(
    db: &Db,
    provider: &str,
    model: &str,
    dimensions: i32,
    now: DateTime<Utc>,
) -> Result<Space> {
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK).fetch_one(tx.conn()).await?;
    let id = sqlx::query_scalar!(
        "insert into embedding_spaces as known (provider, model, dimensions, state, created_at)
         values ($1, $2, $3,
                 case when exists (select from embedding_spaces where state <> 'retired') then 'building'
                      else 'active' end, $4)
             on conflict (provider, model, dimensions) do update
                set state = case known.state when 'retired' then 'building' else known.state end
         returning space_id",
        provider,
        model,
        dimensions,
        now
    )
    .fetch_one(tx.conn())
    .await?;
    let space = Space { id, dimensions };
    if space.is_indexed() {
        // DDL takes no parameters; both numbers are integers of our own.
        let statement = format!(
            "create index if not exists memory_embedding_hnsw_{id} on memory_embedding
                 using hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops) where space_id = {id}"
        );
        sqlx::query(AssertSqlSafe(statement)).execute(tx.conn()).await?;
    }
    tx.commit().await?;
    Ok(space)
}

/// Whether memories still wait for their vector in a space that is building.
///
/// # Errors
/// When the database does not answer.
pub async fn is_building(db: &Db, space: Space) -> Result<bool> {
    Ok(sqlx::query_scalar!("select state = 'building' from embedding_spaces where space_id = $1", space.id)
        .fetch_one(&db.pool)
        .await?
        .unwrap_or(false))
}

/// Makes a space that was building the active one and retires the others.
///
/// # Errors
/// When the database does not answer.
pub async fn activate(db: &Db, space: Space) -> Result<()> {
    sqlx::query!(
        "update embedding_spaces set state = case space_id when $1 then 'active' else 'retired' end
          where exists (select from embedding_spaces where space_id = $1 and state = 'building')",
        space.id
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}
