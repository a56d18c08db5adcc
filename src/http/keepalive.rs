//! Calls that are silent for long: rmcp sends no byte before its first message, and proxies cut a connection on which
//! nothing comes. After a while the answer is opened here as an event stream with comments in it.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::Context;

/// Marks a request whose client can read an event stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptsStream;

static X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const COMMENT: Bytes = Bytes::from_static(b": still working\n\n");

pub(super) async fn layer(State(context): State<Context>, request: Request, next: Next) -> Response {
    if request.extensions().get::<AcceptsStream>().is_none() {
        return next.run(request).await;
    }
    let mut inner = Box::pin(next.run(request));
    if let Ok(response) = tokio::time::timeout(context.settings.silent_after, &mut inner).await {
        return response;
    }
    let every = context.settings.comment_every;
    let (sender, receiver) = mpsc::channel::<Bytes>(16);
    tokio::spawn(async move {
        let mut comments = tokio::time::interval(every);
        let response = loop {
            tokio::select! {
                response = &mut inner => break response,
                _ = comments.tick() => {
                    // A client that is gone cancels its call: dropping `inner` does.
                    if sender.send(COMMENT).await.is_err() {
                        return;
                    }
                }
                () = sender.closed() => return,
            }
        };
        forward(response, &sender).await;
    });
    let body = ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(X_ACCEL_BUFFERING.clone(), HeaderValue::from_static("no"));
    response
}

/// Sends the late answer: an event stream as it is, anything else as one event.
async fn forward(response: Response, sender: &mpsc::Sender<Bytes>) {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let is_stream = kind.starts_with("text/event-stream");
    let mut body = response.into_body().into_data_stream();
    if is_stream {
        while let Some(Ok(bytes)) = body.next().await {
            if sender.send(bytes).await.is_err() {
                return;
            }
        }
        return;
    }
    let parts: Vec<Bytes> = body.filter_map(async |part| part.ok()).collect().await;
    // JSON has no raw line breaks inside strings; between tokens they would end the event's line.
    let text = String::from_utf8_lossy(&parts.concat()).replace(['\r', '\n'], " ");
    let event = stream::iter([Bytes::from(format!("event: message\ndata: {text}\n\n"))]);
    event.for_each(async |bytes| drop(sender.send(bytes).await)).await;
}
