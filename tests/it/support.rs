//! What tests stand on: a memser of their own, on a database of their own, with a clock that they move.

pub mod bulk;
pub mod changes;
pub mod client;
pub mod collector;
pub mod database;
pub mod embedder;
pub mod issuer;
pub mod load;
pub mod plans;
pub mod process;
pub mod proxy;
pub mod rows;
pub mod stdio;
pub mod stream;
pub mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use memser::app::{self, App};
use memser::clock::{Clock, FixedClock};
use memser::config::{Config, Source};
use memser::engine::Engine;
use memser::jobs::Jobs;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use client::Client;
pub use database::TestDatabase;

/// The token with every right.
pub const ADMIN: &str = "test-admin-token-0123456789";

/// A running memser.
pub struct TestApp {
    pub address: SocketAddr,
    /// Where it shows metrics without a token.
    pub metrics: Option<SocketAddr>,
    pub clock: FixedClock,
    pub database: TestDatabase,
    pub engine: Arc<Engine>,
    pub jobs: Jobs,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<anyhow::Result<()>>,
    _tokens: tempfile::TempDir,
}

/// How a test's memser differs from the usual one.
#[derive(Default)]
pub struct TestAppBuilder {
    settings: BTreeMap<String, String>,
    tokens: Vec<(String, Vec<String>)>,
    database: Option<TestDatabase>,
    clock: Option<FixedClock>,
}

impl TestAppBuilder {
    /// Sets an environment variable of this memser alone.
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.insert(name.to_owned(), value.into());
        self
    }

    /// Accepts `token` with these grants, under the token's own text as its name.
    pub fn token(mut self, token: &str, grants: &[&str]) -> Self {
        self.tokens.push((token.to_owned(), grants.iter().map(|grant| (*grant).to_owned()).collect()));
        self
    }

    /// Stores alike texts beside each other, and lets consolidation bring two of them together.
    pub fn consolidating(self) -> Self {
        self.set("DUPLICATE_THRESHOLD", "1")
            .set("CONFLICT_THRESHOLD", "1")
            .set("CONSOLIDATION_SIMILARITY", "0.7")
            .set("CONSOLIDATION_MIN_EPISODIC", "2")
    }

    /// Keeps working memories in the tests' Redis.
    pub fn redis(self) -> Self {
        let url = std::env::var("MEMSER_TEST_REDIS_URL").expect("run by scripts/test-services.sh");
        self.set("REDIS_URL", url)
    }

    /// A second replica on the database and the clock of another memser.
    pub fn beside(mut self, other: &TestApp) -> Self {
        self.database = Some(other.database.clone());
        self.clock = Some(other.clock.clone());
        self
    }

    /// With the clock of another memser.
    pub fn clock(mut self, clock: FixedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// On a database that exists.
    pub fn on(mut self, database: TestDatabase) -> Self {
        self.database = Some(database);
        self
    }

    pub async fn start(mut self) -> TestApp {
        use std::fmt::Write;

        use sha2::Digest;
        let database = match self.database.take() {
            Some(database) => database,
            None => TestDatabase::create().await,
        };
        let clock = self.clock.take().unwrap_or_else(|| FixedClock::at(start_of_time()));
        let folder = tempfile::tempdir().unwrap();
        if !self.tokens.is_empty() {
            let mut file = String::new();
            for (token, grants) in &self.tokens {
                let digest = hex::encode(sha2::Sha256::digest(token.as_bytes()));
                write!(file, "[[token]]\nname={token:?}\nsha256={digest:?}\ngrants={grants:?}\n").unwrap();
            }
            let path = folder.path().join("tokens.toml");
            std::fs::write(&path, file).unwrap();
            self.settings.insert("MEMSER_TOKENS_FILE".to_owned(), path.to_str().unwrap().to_owned());
        }
        for (name, value) in database.settings() {
            self.settings.entry(name.to_owned()).or_insert(value);
        }
        for (name, value) in [
            ("MEMSER_BIND", "127.0.0.1:0"),
            ("MEMSER_TOKEN", ADMIN),
            ("DATABASE_MAX_CONNECTIONS", "5"),
            ("ENABLE_SCHEDULER", "false"),
            // A model in the clone would make every test wait for it.
            ("EMBEDDER", "hash"),
        ] {
            self.settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        let variables = self.settings.into_iter().map(|(name, value)| (name.into(), value.into()));
        let config = Config::parse(&Source::read(None, variables).unwrap()).unwrap();
        let app: App = app::build(config, Clock::Fixed(clock.clone())).await.unwrap();
        let (address, engine, jobs) = (app.address().unwrap(), app.engine().clone(), app.jobs().clone());
        let metrics = app.metrics_address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(app.run_until(async {
            // Dropped without a word counts as well.
            let _ = stopped.await;
        }));
        TestApp { address, metrics, clock, database, engine, jobs, stop: Some(stop), served, _tokens: folder }
    }
}

/// When every test starts.
pub fn start_of_time() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Every file below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

impl TestApp {
    pub fn builder() -> TestAppBuilder {
        TestAppBuilder::default()
    }

    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A client with the token of every right.
    pub fn admin(&self) -> Client {
        self.client(ADMIN)
    }

    pub fn client(&self, token: &str) -> Client {
        Client::new(self.url("/mcp"), token)
    }

    /// What a GET with the token of every right gives.
    pub async fn get(&self, path: &str) -> reqwest::Response {
        reqwest::Client::new().get(self.url(path)).bearer_auth(ADMIN).send().await.unwrap()
    }

    /// Stops in order and says whether everything went well.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.served.await.unwrap().unwrap();
    }
}
