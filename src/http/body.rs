//! Reading a request's body: how long it may take and how large it may be.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

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
    /// It is compressed, or says so: whoever decodes it on the way would read another one.
    Encoded,
}

impl Unread {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::TooLarge(limit) => format!("the body is larger than {limit} bytes"),
            Self::Broken => "the body broke off".to_owned(),
            Self::Slow => "the body took too long to arrive".to_owned(),
            Self::Encoded => "Content-Encoding is not supported: the body is read as it is".to_owned(),
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

/// Reads the body, as far as it is taken.
pub(super) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, Unread> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Unread::Encoded);
    }
    let announced =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit)) {
        return Err(Unread::TooLarge(limit));
    }
    match tokio::time::timeout(BODY_WAIT, collect(body, limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(Unread::TooLarge(limit)),
        Ok(Err(_)) => Err(Unread::Broken),
        Err(_) => Err(Unread::Slow),
    }
}

/// The body's bytes; none where they are more than `limit`.
async fn collect(mut body: Body, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame?.into_data().unwrap_or_default());
        if bytes.len() > limit {
            return Ok(None);
        }
    }
    Ok(Some(bytes.freeze()))
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_given_up_after_half_a_minute() {
        let started = tokio::time::Instant::now();
        let trickle = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>(" "), ()))
        });
        let refused = read(&HeaderMap::new(), Body::from_stream(trickle), 1_000_000).await.unwrap_err();
        assert_eq!((refused, refused.status()), (Unread::Slow, StatusCode::REQUEST_TIMEOUT));
        assert_eq!(started.elapsed(), BODY_WAIT);
    }
}
