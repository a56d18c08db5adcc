//! What a store accepts beside its text.

use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use serde_json::Value;

use crate::error::{Error, Result};

/// The longest life of a working memory: what is to last longer is no working memory.
const TTL_MAX_SECONDS: u64 = 31_536_000;
/// The most bytes of metadata, as JSON.
const METADATA_MAX_BYTES: usize = 16 * 1024;

pub(super) fn check_ttl(seconds: u64) -> Result<Duration> {
    if (1..=TTL_MAX_SECONDS).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(Error::invalid(
        "ttl_seconds",
        format!("ttl_seconds is {seconds}"),
        format!("From 1 to {TTL_MAX_SECONDS} (a year); leave it out to keep the memory."),
    ))
}

pub(super) fn check_time(at: DateTime<Utc>) -> Result<DateTime<Utc>> {
    if (1..=9999).contains(&at.year()) {
        return Ok(at);
    }
    Err(Error::invalid(
        "occurred_at",
        "occurred_at is out of range",
        "A time between the years 1 and 9999.",
    ))
}

pub(super) fn check_metadata(
    metadata: std::collections::BTreeMap<String, Value>,
) -> Result<std::collections::BTreeMap<String, Value>> {
    let hint = "A JSON object of up to 16 KiB without NUL characters.";
    if metadata
        .iter()
        .any(|(key, value)| key.contains('\0') || has_nul(value))
    {
        return Err(Error::invalid("metadata", "metadata has a NUL character", hint));
    }
    let bytes = serde_json::to_vec(&metadata)
        .map_err(|error| Error::Internal(error.into()))?
        .len();
    if bytes > METADATA_MAX_BYTES {
        return Err(Error::LimitExceeded {
            field: Some("metadata".to_owned()),
            message: format!("metadata has {bytes} bytes; the limit is {METADATA_MAX_BYTES}"),
        });
    }
    Ok(metadata)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
