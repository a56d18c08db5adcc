//! The decisions behind each tool.
//!
//! One file a tool holds what an [`Engine`] does; its first line is the scope check, so that no transport can forget
//! it. `judge`, `guard`, `score`, `cluster`, `decay` and `sweep` are pure: no I/O, no clock.

mod arbiter;
pub mod cluster;
mod consolidate;
mod cursor;
pub mod decay;
pub mod export;
mod forget;
pub mod guard;
pub mod import;
pub mod inspect;
mod journal;
pub mod judge;
mod judgement;
mod list;
pub mod maintain;
pub mod models;
pub mod overview;
mod recall;
mod resolve;
pub mod score;
mod secret;
mod settle;
mod statement;
mod store;
pub mod sweep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use moka::future::Cache;
use serde_json::Value;
use uuid::Uuid;

use crate::api::MemoryView;
use crate::auth::Caller;
use crate::clock::Clock;
use crate::db::audit::AuditRow;
use crate::db::feed::{Feed, Subscription};
use crate::db::memory::StoredMemory;
use crate::db::space::Census;
use crate::db::{self, Connections, Db, ScopeId};
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::model::{Action, ConflictPolicy, Memory, Scope, check_label};
use crate::provider::chat::Chat;
use crate::working::Working;

pub use consolidate::Step;
use journal::Journal;
use judge::ConflictRule;
use models::Models;
pub use recall::check_query;
use score::Bm25;
pub use secret::{SecretPolicy, Sieve};
use sweep::Sweeps;

/// How long the parts are given to answer `/readyz`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the counts of memories and vectors are shown again.
const CENSUS_KEPT: Duration = Duration::from_secs(30);

/// What an operator can set of the decisions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest content, in bytes.
    pub max_content_bytes: usize,
    /// How much a scope may hold.
    pub quota: Quota,
    /// How many scopes a token may make.
    pub max_scopes_per_token: u64,
    /// What keeps credentials out.
    pub sieve: Sieve,
    /// Whether similarity alone makes a conflict.
    pub conflict_rule: ConflictRule,
    /// What a store does about a conflict unless the call says otherwise.
    pub conflict_policy: ConflictPolicy,
    /// How words are weighed.
    pub bm25: Bm25,
    /// Who is asked about pairs that the rules leave open; nobody leaves them to the rules.
    pub arbiter: Option<Arc<Chat>>,
    /// Who writes the summaries of consolidated memories; nobody leaves them to the memories' own sentences.
    pub summariser: Option<Arc<Chat>>,
    /// The most tokens of a summary's question and answer.
    pub llm_max_tokens: usize,
    /// When a memory's recency has halved.
    pub recency_half_life_days: f64,
    /// When sweeps run and what they go by.
    pub sweeps: Sweeps,
}

/// How much a scope may hold of durable memories, superseded ones included; as much as it likes by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Memories.
    pub memories: Option<u64>,
    /// Bytes of their content.
    pub bytes: Option<u64>,
}

/// What `/readyz` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the database answers; without it memser is not ready.
    pub postgres: bool,
    /// Whether the working tier answers.
    pub working: bool,
    /// Whether the embedder's last answer, if there was any, says that it works.
    pub embedder: bool,
    /// The same of the language model, where one is used.
    pub llm: Option<bool>,
}

/// Everything that a tool call needs, shared by all callers.
#[derive(Debug)]
pub struct Engine {
    db: Db,
    models: Models,
    working: Working,
    clock: Clock,
    settings: Settings,
    journal: Journal,
    metrics: Metrics,
    feed: Feed,
    /// Kept for a moment, because counting every vector takes a while.
    census: Cache<(), Arc<Census>>,
    /// A scope's id never changes, so that this never needs to be emptied.
    scope_ids: Cache<Scope, ScopeId>,
    /// Whom a store waits for before it takes a connection: waiters on one busy scope must not use up the pool.
    locks: Mutex<HashMap<Scope, Weak<tokio::sync::Mutex<()>>>>,
}

/// One authorised call.
struct Call {
    subject: String,
    request_id: String,
    actor: Option<String>,
    tool: &'static str,
    scope: Scope,
    at: DateTime<Utc>,
}

impl Call {
    fn audit(&self, outcome: &'static str, memory_id: Option<Uuid>, detail: Value) -> AuditRow {
        AuditRow {
            at: self.at,
            request_id: self.request_id.clone(),
            subject: self.subject.clone(),
            actor: self.actor.clone(),
            action: self.tool,
            scope: Some(self.scope.as_str().to_owned()),
            memory_id,
            outcome,
            detail,
        }
    }
}

impl Engine {
    /// Puts the parts together; starts the task that writes audit rows of reads and access counts.
    #[must_use]
    pub fn start(
        db: Db,
        feed: Feed,
        models: Models,
        working: Working,
        clock: Clock,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        Self {
            journal: Journal::start(db.clone(), metrics.clone()),
            metrics,
            feed,
            db,
            models,
            working,
            clock,
            settings,
            census: Cache::builder().max_capacity(1).time_to_live(CENSUS_KEPT).build(),
            scope_ids: Cache::new(100_000),
            locks: Mutex::default(),
        }
    }

    /// Writes what waits to be written: audit rows of reads and access counts.
    pub async fn flush(&self) {
        self.journal.flush().await;
    }

    /// What was counted.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The connections of the pool that all calls share.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.db.connections()
    }

    /// Every change that any replica commits from now on, of every scope: who is told of it, the caller decides.
    ///
    /// # Errors
    /// `unavailable` while the database tells nothing.
    pub async fn changes(&self) -> Result<Subscription> {
        self.feed.subscribe().await
    }

    /// Which parts answer.
    pub async fn readiness(&self) -> Readiness {
        let probe = async |ping: Result<()>| ping.is_ok();
        let (postgres, working) = tokio::join!(
            tokio::time::timeout(PROBE_TIMEOUT, async { probe(self.db.ping().await).await }),
            tokio::time::timeout(PROBE_TIMEOUT, async { probe(self.working.ping().await).await }),
        );
        Readiness {
            postgres: postgres.unwrap_or(false),
            working: working.unwrap_or(false),
            embedder: self.models.current().embedder.is_up(),
            llm: self.llm().map(Chat::is_up),
        }
    }

    /// The language model, where one is used for anything.
    fn llm(&self) -> Option<&Chat> {
        self.settings.arbiter.as_deref().or(self.settings.summariser.as_deref())
    }

    /// How full the embedding spaces are, at most half a minute old.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn embedding_progress(&self) -> Result<Arc<Census>> {
        let count = async { db::space::census(&self.db).await.map(Arc::new) };
        self.census
            .try_get_with((), count)
            .await
            .map_err(|error| Error::Unavailable { part: "postgres", source: anyhow::Error::new(error) })
    }

    /// Notes a call that was refused before it reached a tool, or cut off in it, with the code of its error.
    pub fn deny(&self, caller: &Caller, tool: &'static str, code: &'static str, scope: Option<&str>) {
        self.journal.audit(AuditRow {
            at: self.clock.now(),
            request_id: caller.request_id.clone(),
            subject: caller.subject.clone(),
            actor: None,
            action: tool,
            scope: scope.and_then(|name| Scope::parse(name).ok()).map(|scope| scope.as_str().to_owned()),
            memory_id: None,
            outcome: code,
            detail: Value::Object(serde_json::Map::new()),
        });
    }

    /// The check that every tool starts with: which scope is meant, and may the caller do this there? A refusal is
    /// audited.
    fn authorise(
        &self,
        caller: &Caller,
        tool: &'static str,
        action: Action,
        scope: Option<&str>,
        actor: Option<String>,
    ) -> Result<Call> {
        let authorise = || {
            let scope = match scope {
                Some(name) => Scope::parse(name)?,
                None => caller.sole_scope().cloned().ok_or_else(|| {
                    Error::invalid(
                        "scope",
                        "scope is missing",
                        "This token reaches several scopes: name one.",
                    )
                })?,
            };
            caller.authorise(&scope, action)?;
            Ok(Call {
                subject: caller.subject.clone(),
                request_id: caller.request_id.clone(),
                actor: check_label("actor", actor)?,
                tool,
                scope,
                at: self.clock.now(),
            })
        };
        authorise().inspect_err(|error: &Error| self.deny(caller, tool, error.code(), scope))
    }

    /// Notes a call that failed; its own transaction is gone with whatever it wrote.
    fn audit_failure<T>(&self, call: &Call, result: &Result<T>) {
        if let Err(error) = result {
            self.journal.audit(call.audit(error.code(), None, serde_json::json!({})));
        }
    }

    /// The id of a scope that something was stored in.
    async fn scope_id(&self, scope: &Scope) -> Result<Option<ScopeId>> {
        if let Some(id) = self.scope_ids.get(scope).await {
            return Ok(Some(id));
        }
        let id = db::scope::find(&self.db, scope).await?;
        if let Some(id) = id {
            self.scope_ids.insert(scope.clone(), id).await;
        }
        Ok(id)
    }

    /// This process's lock on a scope, awaited without a connection.
    async fn wait_for(&self, scope: &Scope) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            let known = locks.get(scope).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                if locks.len() >= 1_024 {
                    locks.retain(|_, lock| lock.strong_count() > 0);
                }
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(scope.clone(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }
}

/// A durable memory as tools show it.
fn view(stored: StoredMemory) -> MemoryView {
    let mut view = view_of(stored.memory);
    view.conflicts_with = stored.conflicts_with;
    view.origin = stored.origin;
    view
}

/// A memory as tools show it, without what other tables know.
fn view_of(memory: Memory) -> MemoryView {
    MemoryView {
        status: if memory.valid_to.is_none() { "active" } else { "superseded" }.to_owned(),
        id: memory.id,
        content: memory.content,
        tier: memory.tier,
        tags: memory.tags,
        source: memory.source,
        actor: memory.actor,
        metadata: memory.metadata,
        created_at: memory.created_at,
        occurred_at: memory.occurred_at,
        expires_at: memory.expires_at,
        confidence: memory.confidence,
        support: memory.support,
        superseded_by: memory.superseded_by,
        valid_to: memory.valid_to,
        superseded_reason: memory.superseded_reason,
        conflicts_with: Vec::new(),
        origin: Vec::new(),
    }
}
