//! Scopes by name and their counters.

use chrono::{DateTime, Utc};

use super::{Db, Tx};
use crate::error::Result;
use crate::model::Scope;

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
    /// Active episodic rows.
    pub unconsolidated: i64,
}

/// The id of a scope that something was stored in.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn find(db: &Db, name: &Scope) -> Result<Option<ScopeId>> {
    let mut tx = Tx::all_scopes(db).await?;
    let id = sqlx::query_scalar!("select scope_id from scopes where name = $1", name.as_str())
        .fetch_optional(tx.conn())
        .await?;
    Ok(id.map(ScopeId))
}

/// Opens a transaction on a scope that may not exist yet; it exists once the transaction commits.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn open_or_create(db: &Db, name: &Scope, now: DateTime<Utc>) -> Result<(Tx, ScopeId)> {
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!(
        "insert into scopes (name, created_at) values ($1, $2) on conflict (name) do nothing",
        name.as_str(),
        now
    )
    .execute(tx.conn())
    .await?;
    let id = sqlx::query_scalar!("select scope_id from scopes where name = $1", name.as_str())
        .fetch_one(tx.conn())
        .await?;
    tx.narrow_to(ScopeId(id)).await?;
    Ok((tx, ScopeId(id)))
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
