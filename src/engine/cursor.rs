//! Pages: how many entries, and where the next one starts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Entries of a page when the call does not say.
const DEFAULT_LIMIT: u32 = 20;
/// The most entries of a page.
const MAX_LIMIT: u32 = 100;

/// How many entries a page may have.
pub(super) fn limit(asked: Option<u32>) -> Result<usize> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        Ok(limit as usize)
    } else {
        Err(Error::invalid("limit", format!("limit is {limit}"), "From 1 to 100."))
    }
}

/// One entry more than the page holds, to know whether there is a next one.
pub(super) fn and_one(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Cuts `entries` down to the page, and says where it ended if there is a next one.
pub(super) fn cut<T, C: Serialize>(
    entries: &mut Vec<T>,
    limit: usize,
    end: impl Fn(&T) -> C,
) -> Result<Option<String>> {
    let more = entries.len() > limit;
    entries.truncate(limit);
    entries.last().filter(|_| more).map(|last| encode(&end(last))).transpose()
}

/// Readable but not meant to be read: a cursor holds nothing that the page did not show.
pub(super) fn encode(end: &impl Serialize) -> Result<String> {
    let json = serde_json::to_vec(end).map_err(|error| Error::Internal(error.into()))?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

pub(super) fn decode<T: DeserializeOwned>(text: &str) -> Result<T> {
    let json = URL_SAFE_NO_PAD.decode(text).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or_else(foreign)
}

/// The cursor is none, or another list's.
pub(super) fn foreign() -> Error {
    Error::invalid(
        "cursor",
        "cursor is not one of this list's",
        "Use next_cursor of the page before with the same order, or leave it out to start anew.",
    )
}
