//! The connections: how many there may be, and how long one may take to say what it wants.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::{ServiceExt, service_fn};

/// After a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections are allowed.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How many at once; more wait to be accepted.
    pub connections: usize,
    /// How long the head of the first request may take to arrive.
    pub head_wait: Duration,
    /// How long a connection may be idle until the head of its next request has arrived. Longer than proxies keep idle
    /// connections: one that memser closes just when a proxy uses it again would be a failed request.
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
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle_wait);
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
        let connection =
            connection(builder.clone(), stream, router.clone(), limits.head_wait, open.watcher());
        tokio::spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    open.shutdown().await;
}

/// One connection, from its first byte to its last. hyper counts the time for a head only from when it knows the
/// version of the protocol, and a client that sends half of HTTP/2's preface never tells: so the first request has a
/// time limit of its own.
async fn connection(
    builder: Builder<TokioExecutor>,
    stream: TcpStream,
    router: Router,
    head_wait: Duration,
    watcher: Watcher,
) {
    // Answers are written whole: waiting for more only delays them.
    let _ = stream.set_nodelay(true);
    let has_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&has_asked);
    let service = service_fn(move |request: Request<_>| {
        asked.store(true, Ordering::Relaxed);
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let served = watcher.watch(served.into_owned());
    tokio::pin!(served);
    // Its errors are the client's: a connection that was cut, or no HTTP.
    tokio::select! {
        _ = &mut served => return,
        () = tokio::time::sleep(head_wait) => {}
    }
    if has_asked.load(Ordering::Relaxed) {
        let _ = served.await;
    }
}
