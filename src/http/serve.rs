//! The connections: how many there may be, and how long one may take to say what it wants.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::{ServiceExt, service_fn};

use super::keepalive::is_events;

/// After a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most bytes of a request's head in HTTP/1, which are held before a token was seen: more than the longest URL (64 KiB)
/// and its headers need. hyper's own bound is three times as much; that of HTTP/2 is 16 KiB.
const HEAD_BYTES: usize = 128 << 10;

/// What connections are allowed.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How many at once; more wait to be accepted.
    pub connections: usize,
    /// How long the head of the first request may take to arrive.
    pub head_wait: Duration,
    /// How long a connection may be idle, or its client take no answer, until the head of its next request has arrived.
    /// Longer than proxies keep idle connections: one that memser closes just when a proxy uses it again would be a failed
    /// request.
    pub idle_wait: Duration,
    /// How often a silent HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
    pub ping_every: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            head_wait: Duration::from_secs(30),
            idle_wait: Duration::from_secs(150),
            ping_every: Duration::from_secs(20),
        }
    }
}

/// Serves connections until `stop` resolves; then takes no new one, and returns when those that there are have ended
/// with the request that they were at.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_every)
        .keep_alive_timeout(limits.ping_every);
    let open = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            () = &mut stop => break,
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(error) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let connection = connection(builder.clone(), stream, router.clone(), limits, open.watcher());
        tokio::spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
}

/// One connection, from its first byte to its last, or until nothing was asked on it for too long. hyper knows no such
/// time for HTTP/2, counts it for HTTP/1 only from when it knows the version, and waits for ever on a client that does
/// not take its answer.
async fn connection(
    builder: Builder<TokioExecutor>,
    stream: TcpStream,
    router: Router,
    limits: ConnectionLimits,
    watcher: Watcher,
) {
    // Answers are written whole: waiting for more only delays them.
    let _ = stream.set_nodelay(true);
    let (asked, under_way) = watch::channel(0);
    let asked = Arc::new(asked);
    let service = service_fn(move |request: Request<_>| {
        let asked = UnderWay::new(&asked);
        let router = router.clone();
        async move {
            let response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(asked.until_the_end_of(response))
        }
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let served = watcher.watch(served.into_owned());
    tokio::select! {
        // Its errors are the client's: a connection that was cut, or no HTTP.
        _ = served => {}
        () = abandoned(under_way, limits) => {}
    }
}

/// Resolves when no request was under way for too long.
async fn abandoned(mut under_way: watch::Receiver<usize>, limits: ConnectionLimits) {
    let mut patience = limits.head_wait;
    loop {
        let at_rest = under_way.wait_for(|&requests| requests == 0).await.is_ok();
        if !at_rest || tokio::time::timeout(patience, under_way.changed()).await.is_err() {
            return;
        }
        patience = limits.idle_wait;
    }
}

/// A request that is being answered: until its answer is there, and until the end of one that is a stream of events.
struct UnderWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn new(requests: &Arc<watch::Sender<usize>>) -> Self {
        requests.send_modify(|requests| *requests += 1);
        Self(Arc::clone(requests))
    }

    fn until_the_end_of(self, response: Response) -> Response {
        if !is_events(&response) {
            return response;
        }
        response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &self;
                frame
            }))
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests -= 1);
    }
}
