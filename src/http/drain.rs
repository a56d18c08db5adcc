//! Most clients look for an answer only when they have sent their whole body: one that is refused before would see its
//! connection break instead. What a handler left of a body is therefore read and dropped for a while.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

/// How much is read at most; a body that is announced to be larger is not read at all.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// For how long.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Lends the body to the handlers and reads what comes back of it.
pub(super) async fn drain(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // Who waits for `100 Continue` sends nothing before a handler has begun to read.
    let is_sending = !request.headers().contains_key(header::EXPECT);
    let (back, mut rest) = oneshot::channel();
    let request = request.map(|body| Body::new(Lent { body, is_sending, back: Some(back) }));
    let response = next.run(request).await;
    if let Ok(body) = rest.try_recv() {
        // Whether all of it came does not matter.
        let _ = tokio::time::timeout(MAX_WAIT, read_off(body)).await;
    }
    response
}

async fn read_off(mut body: Body) {
    let mut left = MAX_BYTES;
    while body.size_hint().lower() <= left
        && let Some(Ok(frame)) = body.frame().await
    {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) else {
            break;
        };
        left = rest;
    }
}

/// A body that goes back to its owner when the one who reads it lets it go before its end.
struct Lent {
    body: Body,
    is_sending: bool,
    back: Option<oneshot::Sender<Body>>,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_sending = true;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(back) = self.back.take().filter(|_| self.is_sending && !self.body.is_end_stream()) {
            // Nobody takes it back from a handler that outlives its answer.
            let _ = back.send(std::mem::take(&mut self.body));
        }
    }
}
