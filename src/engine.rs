//! The decisions behind each tool.
//!
//! One file a tool holds what an [`Engine`] does; its first line is the scope check, so that no transport can forget
//! it. `judge`, `guard`, `score` and `cluster` are pure: no I/O, no clock.

pub mod cluster;
mod consolidate;
mod forget;
pub mod guard;
mod journal;
pub mod judge;
mod list;
mod maintain;
mod recall;
pub mod score;
mod statement;
mod store;

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
use crate::db::memory::StoredMemory;
use crate::db::space::Space;
use crate::db::{self, Db, ScopeId};
use crate::error::{Error, Result};
use crate::model::{Action, ConflictPolicy, Memory, Scope, check_label};
use crate::provider::embed::Embedder;
use crate::working::Working;

use journal::Journal;
use judge::{ConflictRule, Thresholds};
use score::Weights;

/// How long the parts are given to answer `/readyz`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What an operator can set of the decisions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest content, in bytes.
    pub max_content_bytes: usize,
    /// When two memories may say or contradict the same; the embedder's own where the operator sets none.
    pub thresholds: Thresholds,
    /// Whether similarity alone makes a conflict.
    pub conflict_rule: ConflictRule,
    /// What a store does about a conflict unless the call says otherwise.
    pub conflict_policy: ConflictPolicy,
    /// What counts how much in recall.
    pub weights: Weights,
    /// When a memory's recency has halved.
    pub recency_half_life_days: f64,
    /// How alike memories of one cluster are.
    pub cluster_similarity: f32,
}

/// What `/readyz` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the database answers; without it memser is not ready.
    pub postgres: bool,
    /// Whether the working tier answers.
    pub working: bool,
    /// Whether the last use of the embedder succeeded.
    pub embedder: bool,
}

/// Everything that a tool call needs, shared by all callers.
#[derive(Debug)]
pub struct Engine {
    db: Db,
    space: Space,
    embedder: Embedder,
    embedder_up: std::sync::atomic::AtomicBool,
    working: Working,
    clock: Clock,
    settings: Settings,
    journal: Journal,
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
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn start(
        db: Db,
        embedder: Embedder,
        working: Working,
        clock: Clock,
        settings: Settings,
    ) -> Result<Self> {
        let dimensions = i32::try_from(embedder.dimensions())
            .map_err(|_| Error::internal("the embedder's dimensions do not fit a space"))?;
        let space =
            db::space::open(&db, embedder.provider(), embedder.model(), dimensions, clock.now()).await?;
        Ok(Self {
            journal: Journal::start(db.clone()),
            db,
            space,
            embedder,
            embedder_up: true.into(),
            working,
            clock,
            settings,
            scope_ids: Cache::new(100_000),
            locks: Mutex::default(),
        })
    }

    /// Writes what waits to be written: audit rows of reads and access counts.
    pub async fn flush(&self) {
        self.journal.flush().await;
    }

    /// The space that this server writes and reads.
    #[must_use]
    pub const fn space(&self) -> Space {
        self.space
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
            embedder: self.embedder_up.load(std::sync::atomic::Ordering::Relaxed),
        }
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

    /// The vector of a text, or `None` when the embedder is down: every caller has an answer without one.
    async fn embed(&self, text: &str) -> Option<Vec<f32>> {
        let vectors = self.embedder.embed(&[text.to_owned()]).await;
        self.embedder_up.store(vectors.is_ok(), std::sync::atomic::Ordering::Relaxed);
        match vectors {
            Ok(mut vectors) => vectors.pop(),
            Err(error) => {
                tracing::warn!(error = %error, "the embedder failed; going on without a vector");
                None
            }
        }
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
        conflicts_with: Vec::new(),
        origin: Vec::new(),
    }
}
