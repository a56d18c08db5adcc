//! What replicas tell each other of changes, as any session of the database hears it.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::timeout;
use uuid::Uuid;

use super::{TestApp, TestDatabase};

/// For what comes at once where it comes at all.
const PATIENCE: Duration = Duration::from_mins(1);

/// A session that hears what is told on a database.
pub struct Listener(pub PgListener);

impl Listener {
    /// One that nobody knows of.
    pub async fn unknown(database: &TestDatabase) -> Self {
        let pool = PgPoolOptions::new().connect_lazy_with(database.url.parse().unwrap());
        let mut listener = PgListener::connect_with(&pool).await.unwrap();
        listener.listen("memser_changes").await.unwrap();
        Self(listener)
    }

    /// One that says so, as memser's do.
    pub async fn start(database: &TestDatabase) -> Self {
        let mut listener = Self::unknown(database).await;
        sqlx::query("select pg_advisory_lock_shared(-1002)").execute(&mut listener.0).await.unwrap();
        listener
    }

    pub async fn heard(&mut self) -> Value {
        let notification = timeout(PATIENCE, self.0.recv()).await.expect("nothing is told").unwrap();
        serde_json::from_str(notification.payload()).unwrap()
    }
}

/// Waits until everything is told that this replica has committed so far.
pub async fn settled(app: &TestApp) {
    let mut listener = Listener::start(&app.database).await;
    let last = app.admin().store(&format!("settled:{}", Uuid::new_v4()), "The last").await;
    while listener.heard().await["memories"] != json!([last]) {}
}
