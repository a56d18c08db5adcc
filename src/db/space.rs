//! Embedding spaces: which model made which vector. Vectors of two spaces are never compared.
//!
//! The first space is active at once. A memser that starts with another model opens a further one, which is *building*
//! while a sweep fills it; once every memory has its vector there and its index stands, it becomes the active one in one
//! step, and the one before is *retired*. Its vectors stay for a while, for a change back.

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Db, Tx};
use crate::error::{Error, Result};

/// pgvector indexes half-precision vectors of up to this many dimensions with HNSW.
pub const INDEXED_UP_TO: i32 = 4_000;

/// Held while spaces are opened or change their state: replicas that start at once must not make one twice.
const LOCK: i64 = -1_000;

/// Where the vectors of one model are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its number.
    pub id: i32,
    /// Its width.
    pub dimensions: i32,
}

/// How far a space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Being filled; not yet every memory has its vector.
    Building,
    /// In use. One space is, always.
    Active,
    /// No longer in use.
    Retired,
}

/// A space with the model that makes its vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The space.
    pub space: Space,
    /// The model's provider, as [`Embedder::provider`](crate::provider::embed::Embedder::provider) names it.
    pub provider: String,
    /// The model's name.
    pub model: String,
}

/// All spaces and what they are measured by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// In the order of their making.
    pub spaces: Vec<Progress>,
    /// Episodic memories of all scopes.
    pub episodic: i64,
    /// Semantic memories of all scopes.
    pub semantic: i64,
}

/// How full a space is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The space.
    pub known: Known,
    /// How far it is.
    pub state: State,
    /// Memories that have a vector in it.
    pub vectors: i64,
    /// Whether its index can be used; never for spaces that are too wide for one.
    pub has_index: bool,
}

impl Space {
    /// Whether it has an HNSW index; wider ones are scanned exactly.
    #[must_use]
    pub const fn is_indexed(self) -> bool {
        self.dimensions <= INDEXED_UP_TO
    }

    fn index(self) -> String {
        format!("memory_embedding_hnsw_{}", self.id)
    }

    /// DDL takes no parameters; both numbers are integers of our own.
    fn index_definition(self) -> String {
        let Self { id, dimensions } = self;
        format!(
            "on memory_embedding using hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops)
              where space_id = {id}"
        )
    }
}

impl State {
    /// As the database names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Active => "active",
            Self::Retired => "retired",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        let known =
            [Self::Building, Self::Active, Self::Retired].into_iter().find(|state| state.name() == name);
        known.ok_or_else(|| Error::internal("an embedding space is in a state of another version"))
    }
}

/// Opens the space of a model: answers it and the one that is active, which may be the same.
///
/// Whoever comes last decides: a space that was retired, or is no longer wanted because a third model came, changes its
/// state accordingly.
///
/// # Errors
/// When the database does not answer.
pub async fn open(
    db: &Db,
    provider: &str,
    model: &str,
    dimensions: i32,
    now: DateTime<Utc>,
) -> Result<(Space, Known)> {
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK).fetch_one(tx.conn()).await?;
    let own = sqlx::query!(
        "insert into embedding_spaces as known (provider, model, dimensions, state, created_at, activated_at)
         select $1, $2, $3, case when is_first then 'active' else 'building' end, $4,
                case when is_first then $4::timestamptz end
           from (select not exists (select from embedding_spaces where state = 'active')) as it (is_first)
             on conflict (provider, model, dimensions) do update
                set state = case known.state when 'retired' then 'building' else known.state end, retired_at = null
         returning space_id, state",
        provider,
        model,
        dimensions,
        now
    )
    .fetch_one(tx.conn())
    .await?;
    let space = Space { id: own.space_id, dimensions };
    if State::parse(&own.state)? == State::Building {
        sqlx::query!(
            "update embedding_spaces set state = 'retired', retired_at = $2
              where state = 'building' and space_id <> $1",
            space.id,
            now
        )
        .execute(tx.conn())
        .await?;
    }
    let active = sqlx::query!(
        r#"select space_id, dimensions, provider, model,
                  exists (select from memory_embedding e where e.space_id = s.space_id) as "is_used!"
             from embedding_spaces s where state = 'active'"#
    )
    .fetch_one(tx.conn())
    .await?;
    let known = Known {
        space: Space { id: active.space_id, dimensions: active.dimensions },
        provider: active.provider,
        model: active.model,
    };
    // Quick while there is nothing to index; later the embed sweep makes it without blocking stores.
    if space == known.space && space.is_indexed() && !active.is_used {
        let statement = format!("create index if not exists {} {}", space.index(), space.index_definition());
        sqlx::query(AssertSqlSafe(statement)).execute(tx.conn()).await?;
    }
    tx.commit().await?;
    Ok((space, known))
}

/// The active space and the state of `own`.
///
/// # Errors
/// When the database does not answer.
pub async fn states(db: &Db, own: Space) -> Result<(i32, State)> {
    let mut tx = Tx::of_no_scope(db).await?;
    let row = sqlx::query!(
        r#"select (select space_id from embedding_spaces where state = 'active') as "active!",
                  (select state from embedding_spaces where space_id = $1) as "own!""#,
        own.id
    )
    .fetch_one(tx.conn())
    .await?;
    tx.commit().await?;
    Ok((row.active, State::parse(&row.own)?))
}

/// Makes a building space the active one and retires the one before, in one step. Answers false where it was not
/// building (any more).
///
/// # Errors
/// When the database does not answer.
pub async fn activate(db: &Db, space: Space, now: DateTime<Utc>) -> Result<bool> {
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK).fetch_one(tx.conn()).await?;
    sqlx::query!(
        "update embedding_spaces set state = 'retired', retired_at = $2
          where state = 'active' and exists (select from embedding_spaces where space_id = $1 and state = 'building')",
        space.id,
        now
    )
    .execute(tx.conn())
    .await?;
    let activated = sqlx::query!(
        "update embedding_spaces set state = 'active', activated_at = $2, retired_at = null
          where space_id = $1 and state = 'building'",
        space.id,
        now
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    tx.commit().await?;
    Ok(activated > 0)
}

/// Makes the index of a space unless it is there, without blocking anyone; answers whether it had to be made.
///
/// One that an interrupted build left behind is made anew. `connection` must be in no transaction.
///
/// # Errors
/// When the connection is lost or the server has no room.
pub async fn build_index(connection: &mut PgConnection, space: Space) -> Result<bool> {
    if !space.is_indexed() || has_index(connection, space).await? {
        return Ok(false);
    }
    drop_index(connection, space).await?;
    let statement = format!("create index concurrently {} {}", space.index(), space.index_definition());
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(true)
}

async fn has_index(connection: &mut PgConnection, space: Space) -> Result<bool> {
    let valid = sqlx::query_scalar!(
        "select indisvalid from pg_index where indexrelid = to_regclass($1)::oid",
        space.index()
    )
    .fetch_optional(connection)
    .await?;
    Ok(valid == Some(true))
}

async fn drop_index(connection: &mut PgConnection, space: Space) -> Result<()> {
    let statement = format!("drop index concurrently if exists {}", space.index());
    sqlx::query(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

/// Drops the indexes of retired spaces. `connection` must be in no transaction.
///
/// # Errors
/// When the connection is lost.
pub async fn drop_retired_indexes(connection: &mut PgConnection) -> Result<()> {
    let retired = sqlx::query_as!(
        Space,
        "select space_id as id, dimensions from embedding_spaces
          where state = 'retired' and to_regclass('memory_embedding_hnsw_' || space_id) is not null"
    )
    .fetch_all(&mut *connection)
    .await?;
    for space in retired {
        drop_index(connection, space).await?;
    }
    Ok(())
}

/// Deletes up to `limit` vectors of spaces that were retired before `before`; answers how many.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn prune(db: &Db, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    let mut tx = Tx::all_scopes(db).await?;
    let deleted = sqlx::query!(
        "delete from memory_embedding where ctid in (
             select e.ctid from memory_embedding e join embedding_spaces s using (space_id)
              where s.state = 'retired' and s.retired_at < $1 limit $2)",
        before,
        limit
    )
    .execute(tx.conn())
    .await?
    .rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Counts every vector of every space, and all memories.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn census(db: &Db) -> Result<Census> {
    let mut tx = Tx::all_scopes(db).await?;
    let rows = sqlx::query!(
        r#"select space_id, provider, model, dimensions, state,
                  (select count(*) from memory_embedding e where e.space_id = s.space_id) as "vectors!",
                  coalesce((select indisvalid from pg_index
                             where indexrelid = to_regclass('memory_embedding_hnsw_' || space_id)::oid), false)
                      as "has_index!"
             from embedding_spaces s order by space_id"#
    )
    .fetch_all(tx.conn())
    .await?;
    let tiers = sqlx::query!(
        r#"select count(*) filter (where tier = 'episodic') as "episodic!",
                  count(*) filter (where tier = 'semantic') as "semantic!" from memories"#
    )
    .fetch_one(tx.conn())
    .await?;
    let spaces = rows.into_iter().map(|row| {
        Ok(Progress {
            known: Known {
                space: Space { id: row.space_id, dimensions: row.dimensions },
                provider: row.provider,
                model: row.model,
            },
            state: State::parse(&row.state)?,
            vectors: row.vectors,
            has_index: row.has_index,
        })
    });
    Ok(Census { spaces: spaces.collect::<Result<_>>()?, episodic: tiers.episodic, semantic: tiers.semantic })
}
