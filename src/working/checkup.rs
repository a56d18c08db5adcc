//! What a person who looks after Redis wants to know of it: whether it keeps what it was given.

use deadpool_redis::redis::{Cmd, InfoDict, RedisResult};

use super::redis::{Redis, within_limit};
use crate::error::Result;

/// How a Redis keeps what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Such as `7.2.4`.
    pub version: String,
    /// The most memory that it takes, in bytes; 0 for as much as there is.
    pub max_memory: u64,
    /// What it does when that is full, such as `noeviction`.
    pub policy: String,
    /// Whether it writes down each change.
    pub append_only: bool,
    /// Whether it saves everything now and then; none where it does not say.
    pub snapshots: Option<bool>,
}

impl Redis {
    /// Asks how it keeps what it holds.
    ///
    /// # Errors
    /// `unavailable` when it does not answer.
    pub async fn facts(&self) -> Result<Facts> {
        within_limit(async {
            let mut connection = self.connection().await?;
            let info: InfoDict = Cmd::new().arg("INFO").query_async(&mut connection).await?;
            // Hosted ones do not let everybody ask for their configuration.
            let save: RedisResult<Vec<String>> =
                Cmd::new().arg("CONFIG").arg("GET").arg("save").query_async(&mut connection).await;
            Ok(Facts {
                version: info.get("redis_version").unwrap_or_default(),
                max_memory: info.get("maxmemory").unwrap_or_default(),
                policy: info.get("maxmemory_policy").unwrap_or_default(),
                append_only: info.get::<u8>("aof_enabled") == Some(1),
                snapshots: save.ok().and_then(|pair| pair.get(1).map(|points| !points.is_empty())),
            })
        })
        .await
    }
}
