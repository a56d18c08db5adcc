//! A way to a server that can be cut, or stopped up, and restored.

use std::future::pending;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The way. Where `whole` is false it is cut. From when `open` is false on, the connections that are there and those that
/// come carry nothing, ever, and nobody is told: as behind a firewall that forgot them.
pub struct Wire {
    pub address: SocketAddr,
    pub whole: watch::Sender<bool>,
    pub open: watch::Sender<bool>,
}

impl Wire {
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (whole, state) = watch::channel(true);
        let (open, flow) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let (server, mut state, mut flow) = (server.clone(), state.clone(), flow.clone());
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    if !*flow.borrow() {
                        return pending().await;
                    }
                    let mut far = TcpStream::connect(server).await.unwrap();
                    let is_stopped_up = tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
                        _ = state.wait_for(|whole| !whole) => false,
                        _ = flow.wait_for(|open| !open) => true,
                    };
                    if is_stopped_up {
                        pending::<()>().await;
                    }
                });
            }
        });
        Self { address, whole, open }
    }
}
