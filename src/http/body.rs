//! Reading a request's body: how long it may take and how large it may be.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

/// How much of a body beyond the limit is still read.
const DROPPED_MAX_BYTES: usize = 16 * 1024 * 1024;
/// For how long.
const DROP_WAIT: Duration = Duration::from_secs(2);
/// A body has to arrive within this time.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is larger than so many bytes.
    TooLarge(usize),
    /// It ended before its end.
    Broken,
    /// It did not arrive in time.
    Slow,
}

impl Unread {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::TooLarge(limit) => format!("the body is larger than {limit} bytes"),
            Self::Broken => "the body broke off".to_owned(),
            Self::Slow => "the body took too long to arrive".to_owned(),
        }
    }
}

/// JSON under any of its names; a missing type is taken for JSON, because nothing else is ever meant.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    ["application/json", "text/json", "application/json-rpc"].contains(&essence.as_str())
        || essence.ends_with("+json")
}

/// Reads the body. One that is too large is read on for a while and dropped: most clients see no answer while they
/// still send.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Unread> {
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let most = limit + DROPPED_MAX_BYTES;
    if announced.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > most)) {
        return Err(Unread::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_WAIT, collect(body, limit, most)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(Unread::TooLarge(limit)),
        Ok(Err(_)) => Err(Unread::Broken),
        Err(_) => Err(Unread::Slow),
    }
}

/// The body's bytes; none where they are more than `limit`. `most` are read of such a body, for a moment.
async fn collect(mut body: Body, limit: usize, most: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame?.into_data().unwrap_or_default());
        if bytes.len() > limit {
            let mut seen = bytes.len();
            drop(bytes);
            let rest = async {
                while let Some(Ok(frame)) = body.frame().await
                    && seen <= most
                {
                    seen += frame.into_data().map_or(0, |data| data.len());
                }
            };
            // Whether all of it came does not matter any more.
            let _ = tokio::time::timeout(DROP_WAIT, rest).await;
            return Ok(None);
        }
    }
    Ok(Some(bytes.freeze()))
}
