//! The working tier: memories that expire by themselves, in Redis or, where none is configured, in Postgres.
//!
//! Both keep the same promises: storing the same text again is the same memory with a fresh time to live, a full scope
//! refuses instead of evicting, and what has expired by the caller's `now` is gone, swept or not.

mod checkup;
mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub use self::checkup::Facts;
pub use self::postgres::Postgres;
pub use self::redis::Redis;
use crate::db::{Db, ScopeId, Tx, working as table};
use crate::error::{Error, Result};
use crate::model::{Memory, Tier};

/// The most living entries of one scope, where the operator sets nothing else.
pub const DEFAULT_CAP: u32 = 1_000;

/// How sure a working memory is: stated, but neither repeated by other sources nor consolidated.
pub const CONFIDENCE: f32 = 0.8;

/// Where working memories live.
#[derive(Clone, Debug)]
pub enum Working {
    /// In Redis, which expires them.
    Redis(Redis),
    /// In a table, which a sweep prunes.
    Postgres(Postgres),
}

/// A working memory to store.
#[derive(Clone, Debug)]
pub struct NewWorking {
    /// Its id, unless the same content is there already.
    pub id: Uuid,
    /// The text.
    pub content: String,
    /// SHA-256 of the normalised text: what makes two texts the same.
    pub content_hash: [u8; 32],
    /// Labels for filtering.
    pub tags: Vec<String>,
    /// Where it came from.
    pub source: Option<String>,
    /// Who stored it.
    pub actor: Option<String>,
    /// The caller's own data.
    pub metadata: BTreeMap<String, Value>,
    /// When what it tells happened.
    pub occurred_at: Option<DateTime<Utc>>,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// How often it was stated: once, unless it comes from elsewhere.
    pub support: i32,
}

/// What a put did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The memory's id: the first one's, where the content was there already.
    pub id: Uuid,
    /// Whether the content was there already.
    pub refreshed: bool,
    /// How often it was stated, this time included.
    pub support: i32,
    /// When it expires now.
    pub expires_at: DateTime<Utc>,
}

impl Working {
    /// A working tier in Redis, where several installations may share one database: `installation` keeps them apart.
    /// Connects at the first call, so that memser starts while Redis is down.
    ///
    /// # Errors
    /// `invalid_argument` on `REDIS_URL` for something that is no Redis URL.
    pub fn redis(url: &str, installation: Uuid, cap: u32) -> Result<Self> {
        Ok(Self::Redis(Redis::new(url, installation, cap)?))
    }

    /// A working tier in the database.
    #[must_use]
    pub fn postgres(db: Db, cap: u32) -> Self {
        Self::Postgres(Postgres::new(db, cap))
    }

    /// Stores a memory for `ttl`. The same content again keeps its id and first details, counts as one more statement,
    /// and lives for the new `ttl` from `now`.
    ///
    /// # Errors
    /// `limit_exceeded` where the scope is full, `invalid_argument` on `ttl_seconds` for a time beyond the calendar,
    /// `unavailable` where the store is down.
    pub async fn put(
        &self,
        scope: ScopeId,
        new: NewWorking,
        ttl: Duration,
        now: DateTime<Utc>,
    ) -> Result<Put> {
        let expires_at = expiry(now, ttl)?;
        match self {
            Self::Redis(redis) => redis.put(scope, new, expires_at, now).await,
            Self::Postgres(postgres) => postgres.put(scope, new, expires_at, now).await,
        }
    }

    /// The scope's memories that are alive at `now`, newest first.
    ///
    /// # Errors
    /// `unavailable` where the store is down.
    pub async fn list(&self, scope: ScopeId, now: DateTime<Utc>) -> Result<Vec<Memory>> {
        let memories = match self {
            Self::Redis(redis) => redis.list(scope, now).await,
            Self::Postgres(postgres) => postgres.list(scope, now).await,
        }?;
        Ok(newest_first(memories))
    }

    /// Whether a statement on the scope can read them on its way, for [`Working::read`].
    #[must_use]
    pub const fn is_in_database(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// The memories of rows that another statement read, newest first.
    ///
    /// # Errors
    /// `internal` for a row that another version wrote.
    pub fn read(rows: Vec<table::Row>) -> Result<Vec<Memory>> {
        Ok(newest_first(postgres::read(rows)?))
    }

    /// Removes these memories and says which were there. One that has expired but was not swept yet counts as there:
    /// whoever forgets it wants its text gone.
    ///
    /// From within a transaction on the scope, because a forget covers durable memories too: in Postgres it shares the
    /// transaction's fate. Redis is to be asked last thing before the commit; it has a time limit, and when it fails
    /// nothing at all is forgotten.
    ///
    /// # Errors
    /// `unavailable` where the store cannot be reached.
    pub async fn remove(&self, tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Uuid>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Redis(redis) => redis.remove(scope, ids).await,
            Self::Postgres(_) => table::remove(tx, scope, ids).await,
        }
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// `unavailable` where it does not.
    pub async fn ping(&self) -> Result<()> {
        match self {
            Self::Redis(redis) => redis.ping().await,
            Self::Postgres(postgres) => postgres.ping().await,
        }
    }

    /// Deletes up to `limit` expired memories of all scopes and says how many. Redis does so by itself.
    ///
    /// # Errors
    /// `unavailable` where the store is down.
    pub async fn prune(&self, now: DateTime<Utc>, limit: u32) -> Result<u64> {
        match self {
            Self::Redis(_) => Ok(0),
            Self::Postgres(postgres) => postgres.prune(now, limit).await,
        }
    }
}

/// Ids are UUID v7: they sort by the time of storing.
fn newest_first(mut memories: Vec<Memory>) -> Vec<Memory> {
    memories.sort_unstable_by_key(|memory| std::cmp::Reverse(memory.id));
    memories
}

/// The end of a life, in whole milliseconds: Redis knows nothing finer, and both stores answer alike.
fn expiry(now: DateTime<Utc>, ttl: Duration) -> Result<DateTime<Utc>> {
    TimeDelta::from_std(ttl)
        .ok()
        .and_then(|ttl| now.checked_add_signed(ttl))
        .and_then(|end| end.duration_trunc(TimeDelta::milliseconds(1)).ok())
        .ok_or_else(|| {
            Error::invalid("ttl_seconds", "ttl_seconds reaches beyond the calendar", "Send a shorter time.")
        })
}

fn full(cap: u32) -> Error {
    Error::LimitExceeded {
        field: None,
        message: format!("this scope holds {cap} working memories, which is the limit"),
    }
}

/// What both stores keep of a memory as JSON: all that never changes once it is written.
#[derive(Serialize, Deserialize)]
struct Entry {
    content: String,
    tags: Vec<String>,
    source: Option<String>,
    actor: Option<String>,
    metadata: BTreeMap<String, Value>,
    occurred_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<NewWorking> for Entry {
    fn from(new: NewWorking) -> Self {
        Self {
            content: new.content,
            tags: new.tags,
            source: new.source,
            actor: new.actor,
            metadata: new.metadata,
            occurred_at: new.occurred_at,
            created_at: new.created_at,
        }
    }
}

impl Entry {
    fn into_memory(self, id: Uuid, support: i32, expires_at: DateTime<Utc>) -> Memory {
        Memory {
            id,
            tier: Tier::Working,
            content: self.content,
            tags: self.tags,
            source: self.source,
            actor: self.actor,
            metadata: self.metadata,
            confidence: CONFIDENCE,
            support,
            created_at: self.created_at,
            occurred_at: self.occurred_at,
            valid_from: self.occurred_at.unwrap_or(self.created_at),
            valid_to: None,
            superseded_by: None,
            superseded_reason: None,
            expires_at: Some(expires_at),
        }
    }
}
