//! The working tier in Redis.
//!
//! Per scope: one hash an entry (`memser:{<installation>.<scope id>}:w:<content hash>`, with its own time to live) and
//! one index, a sorted set of the content hashes by expiry (`memser:{<installation>.<scope id>}:i`), because a scan
//! over the key space would be slow and could cross scopes. The braces are Redis Cluster's hash tag: a scope's keys
//! share a slot, so that one script can change them together. Scope ids are numbered by each database: its
//! installation's id keeps two that share a Redis apart.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, Utc};
use deadpool_redis::redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Script, ServerErrorKind,
};
use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime};
use uuid::Uuid;

use super::{Entry, NewWorking, Put, full};
use crate::db::ScopeId;
use crate::error::{Error, Result};
use crate::model::Memory;

/// How long each of connecting, waiting for a free connection and waiting for an answer may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a whole call may take: a Redis that hangs lets every idle connection run into its own time-out.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECTIONS_MAX: usize = 16;

/// Refreshes a living entry, or writes a new one where the cap allows.
///
/// Keys: entry, index. Arguments: now, expiry and time to live (ms), cap, content hash, id, entry, support.
/// Answers `{id, support, whether it was living}`, or nothing where the scope is full.
static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local now, expiry, ttl = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
        redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)

        local support, living = tonumber(ARGV[8]), 0
        local expires = redis.call('HGET', KEYS[1], 'expires')
        if expires and tonumber(expires) > now then
            support, living = redis.call('HINCRBY', KEYS[1], 'support', 1), 1
        elseif redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) then
            return false
        else
            redis.call('DEL', KEYS[1])
            redis.call('HSET', KEYS[1], 'id', ARGV[6], 'support', support, 'entry', ARGV[7])
        end
        redis.call('HSET', KEYS[1], 'expires', ARGV[2])
        redis.call('PEXPIRE', KEYS[1], ttl)

        -- The index lives as long as its longest entry.
        redis.call('ZADD', KEYS[2], expiry, ARGV[5])
        if redis.call('PTTL', KEYS[2]) < ttl then
            redis.call('PEXPIRE', KEYS[2], ttl)
        end
        return {redis.call('HGET', KEYS[1], 'id'), support, living}
        ",
    )
});

/// Deletes entries that still have the id they were found by: one may have expired and been stored anew meanwhile.
///
/// Keys: index, entries. Arguments: id and content hash of each entry. Answers the ids deleted.
static REMOVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
        local removed = {}
        for i = 2, #KEYS do
            local id, hash = ARGV[2 * i - 3], ARGV[2 * i - 2]
            if redis.call('HGET', KEYS[i], 'id') == id then
                redis.call('DEL', KEYS[i])
                redis.call('ZREM', KEYS[1], hash)
                table.insert(removed, id)
            end
        end
        return removed
        ",
    )
});

/// Working memories in Redis.
#[derive(Clone)]
pub struct Redis {
    pool: Pool,
    installation: Uuid,
    cap: u32,
}

impl std::fmt::Debug for Redis {
    /// Without the pool, which knows the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("cap", &self.cap).finish_non_exhaustive()
    }
}

impl Redis {
    pub(super) fn new(url: &str, installation: Uuid, cap: u32) -> Result<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(STEP_TIMEOUT))
            .set_response_timeout(Some(STEP_TIMEOUT));
        // The cause may repeat the URL, and with it a password.
        let manager = Manager::new_with_config(url, config).map_err(|_| {
            Error::invalid("REDIS_URL", "REDIS_URL is not a Redis URL", "For example redis://127.0.0.1:6379.")
        })?;
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(STEP_TIMEOUT))
            .create_timeout(Some(STEP_TIMEOUT))
            .recycle_timeout(Some(STEP_TIMEOUT))
            .build()
            .map_err(|e| Error::Internal(e.into()))?;
        Ok(Self { pool, installation, cap })
    }

    pub(super) async fn put(
        &self,
        scope: ScopeId,
        new: NewWorking,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<Put> {
        let hash = hex::encode(new.content_hash);
        let (now, expiry) = (now.timestamp_millis(), expires_at.timestamp_millis());
        let support = new.support;
        let mut call = PUT.key(self.entry_key(scope, &hash));
        call.key(self.index_key(scope))
            .arg(now)
            .arg(expiry)
            .arg((expiry - now).max(1))
            .arg(self.cap)
            .arg(&hash)
            .arg(new.id.to_string())
            .arg(serde_json::to_string(&Entry::from(new)).map_err(|e| Error::Internal(e.into()))?)
            .arg(support);
        let answer: Option<(String, i32, bool)> =
            within_limit(async { Ok(call.invoke_async(&mut self.connection().await?).await?) }).await?;

        let (id, support, refreshed) = answer.ok_or_else(|| full(self.cap))?;
        let id = parse_id(&id)?;
        Ok(Put { id, refreshed, support, expires_at })
    }

    pub(super) async fn list(&self, scope: ScopeId, now: DateTime<Utc>) -> Result<Vec<Memory>> {
        let rows: Vec<Row> = within_limit(async {
            let mut connection = self.connection().await?;
            let hashes = self.hashes(&mut connection, scope).await?;
            let read =
                |hash: &str| Cmd::hmget(self.entry_key(scope, hash), &["id", "support", "expires", "entry"]);
            ask_each(&mut connection, &hashes, read).await
        })
        .await?;
        let memories = rows.iter().filter_map(|row| match row {
            [Some(id), Some(support), Some(expires), Some(entry)] => {
                Some(memory(id, support, expires, entry))
            }
            // Expired between the two reads.
            _ => None,
        });
        // By the caller's clock as well, which may be ahead of Redis.
        memories.filter(|memory| memory.as_ref().map_or(true, |m| m.expires_at > Some(now))).collect()
    }

    pub(super) async fn remove(&self, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Uuid>> {
        let wanted: HashSet<String> = ids.iter().map(Uuid::to_string).collect();
        let removed: Vec<String> = within_limit(async {
            let mut connection = self.connection().await?;
            let hashes = self.hashes(&mut connection, scope).await?;
            let read = |hash: &str| Cmd::hget(self.entry_key(scope, hash), "id");
            let held: Vec<Option<String>> = ask_each(&mut connection, &hashes, read).await?;

            let mut call = REMOVE.key(self.index_key(scope));
            let mut found = false;
            for (hash, id) in hashes.iter().zip(held) {
                if let Some(id) = id.filter(|id| wanted.contains(id)) {
                    found = true;
                    call.key(self.entry_key(scope, hash)).arg(id).arg(hash);
                }
            }
            if !found {
                return Ok(Vec::new());
            }
            Ok(call.invoke_async(&mut connection).await?)
        })
        .await?;
        removed.iter().map(|id| parse_id(id)).collect()
    }

    pub(super) async fn ping(&self) -> Result<()> {
        within_limit(async { Ok(Cmd::ping().query_async(&mut self.connection().await?).await?) }).await
    }

    pub(super) async fn connection(&self) -> std::result::Result<Connection, Trouble> {
        Ok(self.pool.get().await?)
    }

    /// The content hashes in the scope's index.
    async fn hashes(
        &self,
        connection: &mut Connection,
        scope: ScopeId,
    ) -> std::result::Result<Vec<String>, Trouble> {
        Ok(Cmd::zrange(self.index_key(scope), 0, -1).query_async(connection).await?)
    }

    fn entry_key(&self, scope: ScopeId, hash: &str) -> String {
        format!("memser:{{{}.{scope}}}:w:{hash}", self.installation.simple())
    }

    fn index_key(&self, scope: ScopeId) -> String {
        format!("memser:{{{}.{scope}}}:i", self.installation.simple())
    }
}

/// An entry's id, support, expiry (ms) and JSON as Redis holds them; all are absent where the entry is.
type Row = [Option<String>; 4];

/// Asks the same of every entry in one trip.
async fn ask_each<T: FromRedisValue>(
    connection: &mut Connection,
    hashes: &[String],
    ask: impl Fn(&str) -> Cmd,
) -> std::result::Result<Vec<T>, Trouble> {
    // An empty pipeline is an error.
    if hashes.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::with_capacity(hashes.len());
    for hash in hashes {
        pipeline.add_command(ask(hash));
    }
    Ok(pipeline.query_async(connection).await?)
}

fn memory(id: &str, support: &str, expires: &str, entry: &str) -> Result<Memory> {
    let unreadable = || Error::internal("a working memory in Redis cannot be read");
    let entry: Entry = serde_json::from_str(entry).map_err(|_| unreadable())?;
    let support = support.parse().map_err(|_| unreadable())?;
    let expires_at = expires.parse().ok().and_then(DateTime::from_timestamp_millis).ok_or_else(unreadable)?;
    Ok(entry.into_memory(parse_id(id)?, support, expires_at))
}

fn parse_id(id: &str) -> Result<Uuid> {
    Uuid::try_parse(id).map_err(|_| Error::internal("a working memory in Redis has no valid id"))
}

/// Why Redis did not do what it was asked.
pub(super) enum Trouble {
    Pool(PoolError),
    Redis(RedisError),
}

impl From<PoolError> for Trouble {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Trouble> for Error {
    /// A server that is away, overloaded or may not write is the caller's cue to try again; the rest is a fault.
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Redis(error) if !is_down(&error) => Self::Internal(error.into()),
            Trouble::Redis(error) => unavailable(error),
            Trouble::Pool(error) => unavailable(error),
        }
    }
}

fn is_down(error: &RedisError) -> bool {
    let state = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        )
    );
    let overloaded = matches!(error.code(), Some("OOM" | "BUSY" | "MISCONF" | "NOREPLICAS"));
    state || overloaded || error.is_io_error() || error.is_timeout() || error.is_connection_dropped()
}

fn unavailable(cause: impl Into<anyhow::Error>) -> Error {
    Error::Unavailable { part: "working", source: cause.into() }
}

/// Runs a call for no longer than [`CALL_TIMEOUT`].
pub(super) async fn within_limit<T>(
    call: impl Future<Output = std::result::Result<T, Trouble>>,
) -> Result<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(elapsed) => Err(unavailable(elapsed)),
    }
}
