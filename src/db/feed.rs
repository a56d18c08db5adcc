//! The changes that any replica commits, as Postgres tells them: on a connection with a session of its own, which is there
//! while somebody subscribes. A pooler of transactions would tell them to nobody.

use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::anyhow;
use moka::future::Cache;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, Notify, broadcast, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::change::{self, Change};
use super::tell::{CHANNEL, LISTENERS};
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
    /// Anything may have changed: the connection was lost, the subscriber was too slow, or a replica says so.
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
    /// Whether every change reaches `told`.
    live: watch::Sender<bool>,
    /// Somebody subscribes.
    wanted: Notify,
    /// A scope's name never changes.
    names: Cache<ScopeId, Scope>,
    stop: CancellationToken,
}

impl Feed {
    /// A feed that connects with `direct`, past any pooler, while somebody subscribes, and until `stop`.
    #[must_use]
    pub fn new(db: Db, direct: PgConnectOptions, stop: CancellationToken) -> Self {
        let listener = Listener {
            db,
            direct: direct.application_name("memser changes"),
            told: broadcast::Sender::new(WAITING),
            live: watch::Sender::new(false),
            wanted: Notify::new(),
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
        // Counted from here on, so that the connection stays.
        let told = self.listener.told.subscribe();
        self.listener.wanted.notify_one();
        let mut live = self.listener.live.subscribe();
        let is_live = timeout(PATIENCE, live.wait_for(|live| *live)).await;
        if !is_live.is_ok_and(|live| live.is_ok()) {
            let source = anyhow!("changes are not told");
            return Err(Error::Unavailable { part: "postgres", source });
        }
        Ok(Subscription(Arc::new(Mutex::new(told.resubscribe()))))
    }
}

impl Listener {
    async fn run(self: Arc<Self>) {
        let listen = async {
            loop {
                self.wanted.notified().await;
                while self.told.receiver_count() > 0 {
                    let Err(error) = self.listen().await else { continue };
                    if self.live.send_replace(false) {
                        tracing::warn!("changes are not told to subscribers for now: {error:#}");
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = listen => {}
        }
    }

    /// Listens for as long as the connection lasts and somebody is there to be told.
    async fn listen(&self) -> anyhow::Result<()> {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
        let pool = pool.connect_lazy_with(self.direct.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        // In this order: who sees the lock and tells something is heard.
        sqlx::query!("select pg_advisory_lock_shared($1)", LISTENERS).fetch_one(&mut listener).await?;
        // For those who were there before a connection was lost.
        let _ = self.told.send(Told::Missed);
        self.live.send_replace(true);
        while !self.is_left_alone() {
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
        drop(listener);
        // The server ends the session with the connection, however the goodbye goes.
        let _ = timeout(PATIENCE, pool.close()).await;
        Ok(())
    }

    /// Whether nobody subscribes any more. Whoever comes from now on waits for another connection.
    fn is_left_alone(&self) -> bool {
        self.live.send_if_modified(|live| {
            let is_left_alone = self.told.receiver_count() == 0;
            *live &= !is_left_alone;
            is_left_alone
        })
    }

    async fn tell(&self, payload: &str) {
        if self.told.receiver_count() == 0 {
            return;
        }
        let told = self.read(payload).await.unwrap_or_else(|error| {
            tracing::warn!("a change was not understood: {error:#}");
            Some(Told::Missed)
        });
        if let Some(told) = told {
            let _ = self.told.send(told);
        }
    }

    /// Nothing where the scope is gone.
    async fn read(&self, payload: &str) -> anyhow::Result<Option<Told>> {
        let Some(Change { scope, listed, memories }) = change::read(payload)? else {
            return Ok(Some(Told::Missed));
        };
        let Some(scope) = self.name(ScopeId(scope)).await? else {
            return Ok(None);
        };
        Ok(Some(Told::Changed(Arc::new(Changed { scope, listed, memories }))))
    }

    async fn name(&self, id: ScopeId) -> Result<Option<Scope>> {
        if let Some(scope) = self.names.get(&id).await {
            return Ok(Some(scope));
        }
        let scope = scope::name_of(&self.db, id).await?;
        if let Some(scope) = &scope {
            self.names.insert(id, scope.clone()).await;
        }
        Ok(scope)
    }
}
