//! The changes that any replica commits, as Postgres tells them: on a connection with a session of its own, made for the
//! first who asks. A pooler of transactions would tell them to nobody.

use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::anyhow;
use moka::future::Cache;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, broadcast, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::change::{CHANNEL, Change};
use super::{Db, ScopeId, scope};
use crate::error::{Error, Result};
use crate::model::Scope;

/// How many changes wait for a subscriber that is slower; those beyond are told as missed.
const WAITING: usize = 1_024;
/// How long a connection that tells nothing goes unquestioned, and how long an answer may take.
const SILENCE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(5);
/// Between attempts to connect.
const RETRY: Duration = Duration::from_secs(1);

/// What subscribers are told.
#[derive(Clone, Debug)]
pub enum Told {
    /// A scope changed.
    Changed(Arc<Changed>),
    /// Anything may have changed: the connection was lost, or the subscriber was too slow.
    Missed,
}

/// A committed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where.
    pub scope: Scope,
    /// Whether another set of memories is active now.
    pub listed: bool,
    /// The memories that are not as they were; `None` where they are too many to name.
    pub memories: Option<Vec<Uuid>>,
}

/// One subscriber's end of the feed. Clones share what waits.
#[derive(Clone, Debug)]
pub struct Subscription(Arc<Mutex<broadcast::Receiver<Told>>>);

impl Subscription {
    /// The next change of any scope. Dropped before it comes, it loses none.
    pub async fn next(&self) -> Told {
        match self.0.lock().await.recv().await {
            Ok(told) => told,
            Err(RecvError::Lagged(_)) => Told::Missed,
            // There is nobody left to tell anything.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The one listener of a process and its subscribers.
#[derive(Debug)]
pub struct Feed {
    started: Once,
    listener: Arc<Listener>,
}

#[derive(Debug)]
struct Listener {
    db: Db,
    direct: PgConnectOptions,
    told: broadcast::Sender<Told>,
    live: watch::Sender<bool>,
    /// A scope's name never changes.
    names: Cache<ScopeId, Scope>,
    stop: CancellationToken,
}

impl Feed {
    /// A feed that connects with `direct`, past any pooler, once somebody subscribes, and until `stop`.
    #[must_use]
    pub fn new(db: Db, direct: PgConnectOptions, stop: CancellationToken) -> Self {
        let listener = Listener {
            db,
            direct: direct.application_name("memser changes"),
            told: broadcast::Sender::new(WAITING),
            live: watch::Sender::new(false),
            names: Cache::new(10_000),
            stop,
        };
        Self { started: Once::new(), listener: Arc::new(listener) }
    }

    /// Every change that is committed from now on.
    ///
    /// # Errors
    /// `unavailable` while the database tells nothing.
    pub async fn subscribe(&self) -> Result<Subscription> {
        self.started.call_once(|| {
            tokio::spawn(Arc::clone(&self.listener).run());
        });
        let mut live = self.listener.live.subscribe();
        let is_live = timeout(PATIENCE, live.wait_for(|live| *live)).await;
        if !is_live.is_ok_and(|live| live.is_ok()) {
            let source = anyhow!("changes are not told");
            return Err(Error::Unavailable { part: "postgres", source });
        }
        Ok(Subscription(Arc::new(Mutex::new(self.listener.told.subscribe()))))
    }
}

impl Listener {
    async fn run(self: Arc<Self>) {
        let listen = async {
            loop {
                let Err(error) = self.listen().await;
                if self.live.send_replace(false) {
                    tracing::warn!("changes are not told to subscribers for now: {error:#}");
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = listen => {}
        }
    }

    /// Listens for as long as the connection lasts.
    async fn listen(&self) -> anyhow::Result<std::convert::Infallible> {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
        let pool = pool.connect_lazy_with(self.direct.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        // For those who were there before a connection was lost.
        let _ = self.told.send(Told::Missed);
        self.live.send_replace(true);
        loop {
            match timeout(SILENCE, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => self.tell(notification.payload()).await,
                Ok(Ok(None)) => return Err(anyhow!("the connection ended")),
                Ok(Err(error)) => return Err(error.into()),
                // A connection that broke without a word is silent for ever.
                Err(_silence) => {
                    timeout(PATIENCE, sqlx::raw_sql("select 1").execute(&mut listener)).await??;
                }
            }
        }
    }

    async fn tell(&self, payload: &str) {
        if self.told.receiver_count() == 0 {
            return;
        }
        let told = match self.read(payload).await {
            Ok(Some(changed)) => Told::Changed(Arc::new(changed)),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!("a change was not understood: {error:#}");
                Told::Missed
            }
        };
        let _ = self.told.send(told);
    }

    async fn read(&self, payload: &str) -> anyhow::Result<Option<Changed>> {
        let Change { scope, listed, memories } = serde_json::from_str(payload)?;
        let id = ScopeId(scope);
        if let Some(scope) = self.names.get(&id).await {
            return Ok(Some(Changed { scope, listed, memories }));
        }
        let Some(scope) = scope::name_of(&self.db, id).await? else {
            return Ok(None);
        };
        self.names.insert(id, scope.clone()).await;
        Ok(Some(Changed { scope, listed, memories }))
    }
}
