//! Keeps silent calls alive through proxies: rmcp sends no byte before its first message, and proxies cut a response
//! that stays silent for a minute. A call that has not answered after a while is answered as an event stream, with
//! comments until the result comes. Dropping the stream drops the call.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

use super::envelope::{Expects, Reads};
use super::reply::INTERNAL_ERROR;

/// When to break the silence and how often to comment then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) silent_after: Duration,
    pub(super) comment_every: Duration,
}

/// Answers as JSON while the call is quick, as an event stream when it is not.
pub(super) async fn keep_alive(State(patience): State<Patience>, request: Request, next: Next) -> Response {
    let Some(expects) = request.extensions().get::<Expects>().cloned() else {
        return next.run(request).await;
    };
    let mut call = next.run(request).boxed();
    match expects.reads {
        Reads::Json => call.await,
        Reads::Events | Reads::Both => tokio::select! {
            response = &mut call => {
                let refused = response.status() != StatusCode::OK;
                if expects.reads == Reads::Both || refused || is_events(&response) {
                    return response;
                }
                let (mut parts, body) = response.into_parts();
                let event = event(body, &expects.id).await;
                parts.headers.remove(header::CONTENT_LENGTH);
                as_events(Response::from_parts(parts, Body::from(event)))
            }
            () = tokio::time::sleep(patience.silent_after) => {
                let mut ticks = tokio::time::interval(patience.comment_every);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let states = stream::unfold(Late::Waiting(call, ticks, expects.id), Late::next);
                as_events(Response::new(Body::from_stream(states.map(Ok::<_, Infallible>))))
            }
        },
    }
}

pub(super) fn is_events(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn as_events(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A late answer's progress.
enum Late {
    Waiting(BoxFuture<'static, Response>, Interval, Value),
    Piping(BodyDataStream),
    Done,
}

impl Late {
    /// The next piece of the stream. The first tick comes at once.
    async fn next(self) -> Option<(Bytes, Self)> {
        match self {
            Self::Waiting(mut call, mut ticks, id) => tokio::select! {
                biased;
                response = &mut call => {
                    let piped = is_events(&response);
                    let body = response.into_body();
                    if piped {
                        return Self::pipe(body.into_data_stream()).await;
                    }
                    Some((event(body, &id).await, Self::Done))
                }
                _ = ticks.tick() => Some((Bytes::from_static(b": working\n\n"), Self::Waiting(call, ticks, id))),
            },
            Self::Piping(events) => Self::pipe(events).await,
            Self::Done => None,
        }
    }

    async fn pipe(mut events: BodyDataStream) -> Option<(Bytes, Self)> {
        let chunk = events.next().await?.ok()?;
        Some((chunk, Self::Piping(events)))
    }
}

/// The body as one event. What is no JSON, a refusal in plain text for example, becomes a JSON-RPC error.
async fn event(body: Body, id: &Value) -> Bytes {
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let message = serde_json::from_slice::<Value>(&bytes).ok().filter(|message| message["jsonrpc"] == "2.0");
    let message = message.unwrap_or_else(|| {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": INTERNAL_ERROR, "message": "internal error" } })
    });
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    struct OnDrop(Arc<AtomicBool>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn slow(dropped: Arc<AtomicBool>, answer: &'static str) -> Router {
        let patience =
            Patience { silent_after: Duration::from_secs(3), comment_every: Duration::from_secs(5) };
        let call = move || {
            let guard = OnDrop(Arc::clone(&dropped));
            async move {
                tokio::time::sleep(Duration::from_secs(12)).await;
                drop(guard);
                answer
            }
        };
        Router::new().route("/", get(call)).layer(from_fn_with_state(patience, keep_alive))
    }

    fn request() -> Request {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Expects { id: json!(7), reads: Reads::Both });
        request
    }

    #[tokio::test(start_paused = true)]
    async fn comments_come_at_once_and_then_in_their_rhythm() {
        let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let response = slow(Arc::default(), answer).oneshot(request()).await.unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(body.matches(": working\n\n").count(), 2, "{body}");
        assert!(
            body.ends_with("event: message\ndata: {\"id\":7,\"jsonrpc\":\"2.0\",\"result\":{}}\n\n"),
            "{body}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_refusal_in_plain_text_is_an_error_of_the_protocol() {
        let response = slow(Arc::default(), "gone wrong").oneshot(request()).await.unwrap();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(String::from_utf8(body.to_vec()).unwrap().contains("\"code\":-32603"));
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_stream_drops_the_call() {
        let dropped = Arc::new(AtomicBool::new(false));
        let response = slow(Arc::clone(&dropped), "").oneshot(request()).await.unwrap();
        assert!(!dropped.load(Ordering::SeqCst));
        drop(response);
        assert!(dropped.load(Ordering::SeqCst));
    }
}
