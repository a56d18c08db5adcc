//! What `store_memory` is asked to do, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::secret::Sifted;
use super::{Quota, Settings};
use crate::api::StoreArgs;
use crate::error::{Error, Result};
use crate::model::{ConflictPolicy, check_content, check_label, check_tags, check_time, parse_id};
use crate::text;

/// The longest life of a working memory: what is to last longer is no working memory.
const TTL_MAX_SECONDS: u64 = 31_536_000;
/// The most bytes of metadata, as JSON.
const METADATA_MAX_BYTES: usize = 16 * 1024;
/// How deep metadata may be nested: an answer wraps it some more, and JSON readers give up beyond a hundred or so.
const METADATA_MAX_DEPTH: usize = 32;

/// A checked request.
pub(super) struct Statement {
    pub(super) content: String,
    pub(super) content_hash: [u8; 32],
    pub(super) tags: Vec<String>,
    pub(super) source: Option<String>,
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) occurred_at: Option<DateTime<Utc>>,
    pub(super) ttl: Option<Duration>,
    /// The memories that this one corrects.
    pub(super) replaces: Vec<Uuid>,
    /// The open conflicts that this one merges.
    pub(super) merges: Vec<Uuid>,
    pub(super) policy: ConflictPolicy,
    /// The key with the hash of all arguments, as they are after the credentials were taken out.
    pub(super) idempotency: Option<(String, [u8; 32])>,
    /// The kinds of the credentials that were taken out.
    pub(super) redacted: Vec<String>,
}

/// Takes the credentials out of a store's arguments. What is larger than a memory may be is refused before anybody looks
/// through it.
///
/// # Errors
/// `invalid_argument` or `limit_exceeded` with the field.
pub(super) fn sift(args: StoreArgs, settings: &Settings) -> Result<Sifted> {
    check_content(&args.content, settings.max_content_bytes)?;
    Ok(settings.sieve.sift(StoreArgs {
        tags: check_tags(args.tags)?,
        source: check_label("source", args.source)?,
        actor: check_label("actor", args.actor)?,
        metadata: check_metadata(args.metadata)?,
        ..args
    }))
}

impl Statement {
    /// Checks a store's arguments, also what [`sift`] checked: the name of a kind can be longer than the credential was.
    ///
    /// # Errors
    /// `invalid_argument` or `limit_exceeded` with the field.
    pub(super) fn check(sifted: Sifted, settings: &Settings) -> Result<Self> {
        let redacted = sifted.judge(&settings.sieve)?;
        let args = sifted.args;
        check_content(&args.content, settings.max_content_bytes)?;
        let idempotency = check_label("idempotency_key", args.idempotency_key.clone())?
            .map(|key| {
                let body = serde_json::to_vec(&args).map_err(|error| Error::Internal(error.into()))?;
                Ok::<_, Error>((key, Sha256::digest(body).into()))
            })
            .transpose()?;
        let replaces: Vec<Uuid> =
            args.replaces.as_deref().map(|id| parse_id("replaces", id)).transpose()?.into_iter().collect();
        if args.ttl_seconds.is_some() && !replaces.is_empty() {
            return Err(Error::invalid(
                "replaces",
                "a memory with ttl_seconds cannot replace a durable one",
                "Leave out ttl_seconds, or store the new memory without replaces.",
            ));
        }
        Ok(Self {
            content_hash: text::content_hash(&args.content),
            content: args.content,
            tags: check_tags(args.tags)?,
            source: check_label("source", args.source)?,
            metadata: check_metadata(args.metadata)?,
            occurred_at: args.occurred_at.map(|at| check_time("occurred_at", at)).transpose()?,
            ttl: args.ttl_seconds.map(check_ttl).transpose()?,
            replaces,
            merges: Vec::new(),
            policy: args.on_conflict.unwrap_or(settings.conflict_policy),
            idempotency,
            redacted,
        })
    }
}

/// Checks that a scope that holds `memories` with `bytes` of content has room for one more of `new` bytes.
///
/// # Errors
/// `limit_exceeded`.
pub(super) fn check_room(quota: Quota, memories: u64, bytes: u64, new: usize) -> Result<()> {
    let full = |message| Err(Error::LimitExceeded { field: None, message });
    if let Some(most) = quota.memories.filter(|&most| memories >= most) {
        return full(format!("this scope holds {memories} memories; the limit is {most}"));
    }
    if let Some(most) = quota.bytes.filter(|&most| bytes.saturating_add(new as u64) > most) {
        return full(format!("this scope holds {bytes} bytes of content; the limit is {most}"));
    }
    Ok(())
}

fn check_ttl(seconds: u64) -> Result<Duration> {
    if (1..=TTL_MAX_SECONDS).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(Error::invalid(
        "ttl_seconds",
        format!("ttl_seconds is {seconds}"),
        format!("From 1 to {TTL_MAX_SECONDS} (a year); leave it out to keep the memory."),
    ))
}

fn check_metadata(metadata: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>> {
    let hint = "A JSON object of up to 16 KiB, nested up to 32 deep, without NUL characters.";
    if metadata.values().any(|value| depth(value) >= METADATA_MAX_DEPTH) {
        return Err(Error::invalid("metadata", "metadata is nested too deep", hint));
    }
    if metadata.iter().any(|(key, value)| key.contains('\0') || has_nul(value)) {
        return Err(Error::invalid("metadata", "metadata has a NUL character", hint));
    }
    let bytes = serde_json::to_vec(&metadata).map_err(|error| Error::Internal(error.into()))?.len();
    if bytes > METADATA_MAX_BYTES {
        return Err(Error::LimitExceeded {
            field: Some("metadata".to_owned()),
            message: format!("metadata has {bytes} bytes; the limit is {METADATA_MAX_BYTES}"),
        });
    }
    Ok(metadata)
}

/// How many lists and objects are within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_as_deep_as_its_readers_can_go() {
        let nested = |levels| (1..levels).fold(Value::from(1), |inner, _| serde_json::json!([inner]));
        let metadata = |levels| BTreeMap::from([("a".to_owned(), nested(levels))]);
        assert!(check_metadata(metadata(METADATA_MAX_DEPTH)).is_ok());
        let error = check_metadata(metadata(METADATA_MAX_DEPTH + 1)).unwrap_err();
        assert_eq!((error.code(), error.field()), ("invalid_argument", Some("metadata")));
    }

    #[test]
    fn a_scope_takes_what_fits_to_the_last_byte() {
        let quota = Quota { memories: Some(3), bytes: Some(100) };
        assert!(check_room(quota, 2, 90, 10).is_ok());
        assert_eq!(check_room(quota, 3, 0, 1).unwrap_err().code(), "limit_exceeded");
        assert_eq!(check_room(quota, 2, 90, 11).unwrap_err().code(), "limit_exceeded");
        assert!(check_room(Quota::default(), u64::MAX, u64::MAX, 1).is_ok());
    }
}
