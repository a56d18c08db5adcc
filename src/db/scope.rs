//! Scopes by name and their counters.

use chrono::{DateTime, Utc};

use super::{Db, Tx};
use crate::error::{Error, Result};
use crate::model::Scope;

/// The first key of the lock under which a subject makes scopes.
const SCOPES_OF_SUBJECT: i32 = 1;

/// A scope's number: what the database and Redis know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId(pub i64);

impl std::fmt::Display for ScopeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a change does to a scope's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterChange {
    /// Rows in `memories`.
    pub memories: i64,
    /// Sum of their tokens.
    pub tokens: i64,
    /// Sum of their content's bytes.
    pub bytes: i64,
    /// Active episodic rows that consolidation has not looked at.
    pub unconsolidated: i64,
}

/// The id of a scope that something was stored in.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn find(db: &Db, name: &Scope) -> Result<Option<ScopeId>> {
    let mut tx = Tx::all_scopes(db).await?;
    id_of(&mut tx, name).await
}

/// The name of a scope.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn name_of(db: &Db, id: ScopeId) -> Result<Option<Scope>> {
    let mut tx = Tx::for_scope(db, id).await?;
    let name = sqlx::query_scalar!("select name from scopes where scope_id = $1", id.0)
        .fetch_optional(tx.conn())
        .await?;
    name.map(|name| Scope::parse(&name)).transpose()
}

/// Opens a transaction on a scope that may not exist yet; it exists once the transaction commits, as one of `by`'s.
///
/// Of scopes that a subject makes at one time each waits for the end of the one before, so that the limit holds exactly.
///
/// # Errors
/// `limit_exceeded` where `by` has made `most` scopes already; `unavailable` when the database is down.
pub async fn open_or_create(
    db: &Db,
    name: &Scope,
    by: &str,
    most: u64,
    now: DateTime<Utc>,
) -> Result<(Tx, ScopeId)> {
    let mut tx = Tx::all_scopes(db).await?;
    let id = match id_of(&mut tx, name).await? {
        Some(id) => id,
        None => create(&mut tx, name, by, most, now).await?,
    };
    tx.narrow_to(id).await?;
    Ok((tx, id))
}

async fn id_of(tx: &mut Tx, name: &Scope) -> Result<Option<ScopeId>> {
    let id = sqlx::query_scalar!("select scope_id from scopes where name = $1", name.as_str())
        .fetch_optional(tx.conn())
        .await?;
    Ok(id.map(ScopeId))
}

async fn create(tx: &mut Tx, name: &Scope, by: &str, most: u64, now: DateTime<Utc>) -> Result<ScopeId> {
    // Two keys: those of one number lock scopes and sweeps. Equal hashes only make two subjects wait for each other.
    sqlx::query!("select pg_advisory_xact_lock($1, hashtext($2))", SCOPES_OF_SUBJECT, by)
        .fetch_one(tx.conn())
        .await?;
    // Made while this waited.
    if let Some(id) = id_of(tx, name).await? {
        return Ok(id);
    }
    let made = sqlx::query_scalar!(r#"select count(*) as "made!" from scopes where created_by = $1"#, by)
        .fetch_one(tx.conn())
        .await?;
    if u64::try_from(made).is_ok_and(|made| made >= most) {
        return Err(Error::LimitExceeded {
            field: Some("scope".to_owned()),
            message: format!(
                "there is no scope {:?}, and this token has made {made} scopes; the limit is {most}",
                name.as_str()
            ),
        });
    }
    sqlx::query!(
        "insert into scopes (name, created_at, created_by) values ($1, $2, $3) on conflict (name) do nothing",
        name.as_str(),
        now,
        by
    )
    .execute(tx.conn())
    .await?;
    // By another subject at the same time, where not by this one.
    id_of(tx, name).await?.ok_or_else(|| Error::internal("a scope that was just made is not there"))
}

/// Changes the counters; the caller holds the scope's lock.
///
/// # Errors
/// When the connection is lost.
pub async fn count(tx: &mut Tx, scope: ScopeId, change: CounterChange) -> Result<()> {
    sqlx::query!(
        "update scopes
            set memories = memories + $2, tokens = tokens + $3, bytes = bytes + $4,
                unconsolidated = unconsolidated + $5
          where scope_id = $1",
        scope.0,
        change.memories,
        change.tokens,
        change.bytes,
        change.unconsolidated
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// How many memories a scope holds and how many bytes of content; exact while the caller holds the scope's lock.
///
/// # Errors
/// When the connection is lost.
pub async fn holds(tx: &mut Tx, scope: ScopeId) -> Result<(u64, u64)> {
    let row = sqlx::query!("select memories, bytes from scopes where scope_id = $1", scope.0)
        .fetch_one(tx.conn())
        .await?;
    Ok((u64::try_from(row.memories).unwrap_or(0), u64::try_from(row.bytes).unwrap_or(0)))
}

/// How many memories consolidation has still to look at.
///
/// # Errors
/// When the connection is lost.
pub async fn unconsolidated(tx: &mut Tx, scope: ScopeId) -> Result<u64> {
    let todo = sqlx::query_scalar!("select unconsolidated from scopes where scope_id = $1", scope.0)
        .fetch_one(tx.conn())
        .await?;
    Ok(u64::try_from(todo).unwrap_or(0))
}

/// A scope with what it holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// Durable memories, superseded ones included.
    pub memories: i64,
    /// Bytes of their content.
    pub bytes: i64,
    /// When something was first stored there.
    pub created_at: DateTime<Utc>,
}

/// Which scopes to list: those named exactly, and those whose names begin with one of the prefixes.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Names.
    pub exact: Vec<String>,
    /// Beginnings of names.
    pub prefixes: Vec<String>,
    /// Of these, only names that begin so.
    pub prefix: String,
    /// The last name of the page before.
    pub after: String,
    /// At most so many.
    pub limit: i64,
}

/// A page of scopes by name.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn page(db: &Db, page: &Page) -> Result<Vec<Held>> {
    let mut tx = Tx::all_scopes(db).await?;
    let rows = sqlx::query_as!(
        Held,
        "select name, memories, bytes, created_at from scopes
          where name > $4 and starts_with(name, $3)
            and (name = any($1) or exists (select from unnest($2::text[]) p where starts_with(name, p)))
          order by name limit $5",
        &page.exact,
        &page.prefixes,
        page.prefix,
        page.after,
        page.limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows)
}

/// The next scopes by number.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn after(db: &Db, after: ScopeId, limit: i64) -> Result<Vec<ScopeId>> {
    let mut tx = Tx::all_scopes(db).await?;
    let ids = sqlx::query_scalar!(
        "select scope_id from scopes where scope_id > $1 order by scope_id limit $2",
        after.0,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids.into_iter().map(ScopeId).collect())
}

/// The scopes with at least `min` rows to consolidate, fullest first, without those that are parked after `tries`
/// failures in a row.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn to_consolidate(db: &Db, min: i64, tries: i32, now: DateTime<Utc>) -> Result<Vec<Scope>> {
    let mut tx = Tx::all_scopes(db).await?;
    let names = sqlx::query_scalar!(
        "select name from scopes s
          where unconsolidated >= $1
            and not exists (select from consolidation_failures f
                             where f.scope_id = s.scope_id and f.tries >= $2 and f.retry_at > $3)
          order by unconsolidated desc, scope_id",
        min,
        tries,
        now
    )
    .fetch_all(tx.conn())
    .await?;
    names.iter().map(|name| Scope::parse(name)).collect()
}
