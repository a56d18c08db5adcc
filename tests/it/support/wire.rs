//! A way to a server that can be cut and restored.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The way. Where `whole` is false it is cut.
pub struct Wire {
    pub address: SocketAddr,
    pub whole: watch::Sender<bool>,
}

impl Wire {
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (whole, state) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let (server, mut state) = (server.clone(), state.clone());
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = state.wait_for(|whole| !whole) => {}
                    }
                });
            }
        });
        Self { address, whole }
    }
}
