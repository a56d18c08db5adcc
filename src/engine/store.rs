//! `store_memory`: when it answers, the memory is durable and the answer says what happened.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use uuid::Uuid;

use super::judgement::Embedding;
use super::models::Model;
use super::statement::Statement;
use super::{Call, Engine};
use crate::api::{EmbeddingState, Likeness, StoreAnswer, StoreArgs, StoreOutcome};
use crate::auth::Caller;
use crate::db::memory::{NewMemory, StoredMemory};
use crate::db::{self, ScopeId, Tx, audit, idempotency, memory};
use crate::error::{Error, Result};
use crate::model::{Action, ConflictPolicy, Memory, Tier};
use crate::text;
use crate::working::NewWorking;

/// What a memory that was stated once is trusted; further sources raise it.
const FIRST_CONFIDENCE: f32 = 0.8;
/// How much of the way to certainty each further source goes.
const CONFIDENCE_RISE: f32 = 0.25;
/// How long an idempotency key gives the first answer again.
const IDEMPOTENCY_HOURS: i64 = 24;

impl Engine {
    /// Stores one memory.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` and `limit_exceeded` with the field;
    /// `not_found` and `conflict` for `replaces`; `idempotency_mismatch`; `unavailable`. Nothing is stored then.
    pub async fn store(&self, caller: &Caller, args: StoreArgs) -> Result<StoreAnswer> {
        let call =
            self.authorise(caller, "store_memory", Action::Write, args.scope.as_deref(), args.actor.clone())?;
        let result = async {
            let statement = Statement::check(args, &self.settings)?;
            match statement.ttl {
                Some(ttl) => self.store_working(&call, statement, ttl).await,
                None => self.store_durable(&call, statement).await,
            }
        }
        .await;
        self.audit_failure(&call, &result);
        result
    }

    async fn store_working(&self, call: &Call, statement: Statement, ttl: Duration) -> Result<StoreAnswer> {
        let (mut tx, scope) = self.open_for_store(call).await?;
        if let Some(answer) = first_answer(&mut tx, scope, &statement, call.at).await? {
            return Ok(answer);
        }
        // The working tier may be another server: it is not asked from within a transaction.
        tx.commit().await?;
        self.scope_ids.insert(call.scope.clone(), scope).await;
        let new = NewWorking {
            id: self.clock.new_id(),
            content: statement.content.clone(),
            content_hash: statement.content_hash,
            tags: statement.tags.clone(),
            source: statement.source.clone(),
            actor: call.actor.clone(),
            metadata: statement.metadata.clone(),
            occurred_at: statement.occurred_at,
            created_at: call.at,
        };
        let put = self.working.put(scope, new, ttl, call.at).await?;
        let answer = StoreAnswer {
            outcome: if put.refreshed { StoreOutcome::Duplicate } else { StoreOutcome::Stored },
            id: put.id,
            tier: Tier::Working,
            duplicate_of: put.refreshed.then_some(Likeness { id: put.id, similarity: 1.0 }),
            supersedes: Vec::new(),
            conflicts_with: Vec::new(),
            support: put.support,
            confidence: crate::working::CONFIDENCE,
            embedding: EmbeddingState::None,
            expires_at: Some(put.expires_at),
            degraded: Vec::new(),
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        finish(&mut tx, scope, call, &statement, &answer).await?;
        tx.commit().await?;
        Ok(answer)
    }

    async fn store_durable(&self, call: &Call, statement: Statement) -> Result<StoreAnswer> {
        let model = self.models.current().clone();
        let vector = match self.known_vector(&model, call, &statement).await? {
            Some(vector) => Some(vector),
            None => model.embed(&statement.content).await,
        };
        let embedding = vector.as_deref().map(|vector| Embedding { model: &model, vector });
        let (opinions, is_llm_down) = self.opinions(call, &statement, embedding).await?;
        let _turn = self.wait_for(&call.scope).await;
        let (mut tx, scope) = self.open_for_store(call).await?;
        tx.lock_scope(scope).await?;
        if let Some(answer) = first_answer(&mut tx, scope, &statement, call.at).await? {
            return Ok(answer);
        }
        let replaced = match statement.replaces {
            Some(id) => Some(replaceable(&mut tx, scope, id).await?),
            None => None,
        };
        let judgement = self.judge_statement(&mut tx, scope, &statement, embedding, &opinions).await?;
        let mut answer = match judgement.duplicate_of {
            Some(known) => self.support_known(&mut tx, scope, &statement, known).await?,
            None => self.insert_statement(&mut tx, scope, call, &statement, embedding).await?,
        };
        let source_of_truth = answer.id;
        let mut superseded: Vec<Likeness> = Vec::new();
        if let Some(old) = replaced.filter(|old| old.id != source_of_truth) {
            memory::supersede(&mut tx, scope, &[old.id], source_of_truth, "replaced", call.at).await?;
            superseded.push(old);
        }
        let contradicts = judgement
            .contradicts
            .into_iter()
            .filter(|other| other.id != source_of_truth && superseded.iter().all(|old| old.id != other.id));
        let contradicts: Vec<Likeness> = contradicts.collect();
        match statement.policy {
            ConflictPolicy::NewestWins if !contradicts.is_empty() => {
                let ids: Vec<Uuid> = contradicts.iter().map(|old| old.id).collect();
                let valid_from = statement.occurred_at.unwrap_or(call.at);
                memory::supersede(&mut tx, scope, &ids, source_of_truth, "conflict", valid_from).await?;
                superseded.extend(contradicts);
            }
            ConflictPolicy::Flag => {
                for old in contradicts {
                    let id = self.clock.new_id();
                    memory::flag(&mut tx, scope, id, source_of_truth, old.id, old.similarity, call.at)
                        .await?;
                    answer.conflicts_with.push(old);
                }
            }
            ConflictPolicy::NewestWins | ConflictPolicy::KeepBoth => {}
        }
        if answer.outcome == StoreOutcome::Stored {
            if !superseded.is_empty() {
                answer.outcome = StoreOutcome::Superseded;
            } else if !answer.conflicts_with.is_empty() {
                answer.outcome = StoreOutcome::Flagged;
            }
        }
        answer.supersedes = superseded;
        if vector.is_none() {
            answer.degraded.push("embedder".to_owned());
        }
        if is_llm_down {
            answer.degraded.push("llm".to_owned());
        }
        if !self.models.is_whole() {
            answer.degraded.push("embeddings".to_owned());
            answer.embedding = EmbeddingState::Pending;
        }
        finish(&mut tx, scope, call, &statement, &answer).await?;
        tx.commit().await?;
        self.scope_ids.insert(call.scope.clone(), scope).await;
        Ok(answer)
    }

    /// The vector of an active memory of the scope with the same text, letter for letter: the hash is that of a normal form,
    /// which the embedder does not get.
    async fn known_vector(
        &self,
        model: &Model,
        call: &Call,
        statement: &Statement,
    ) -> Result<Option<Vec<f32>>> {
        if model.embedder.is_cheap() {
            return Ok(None);
        }
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(None);
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let (hash, content) = (&statement.content_hash, &statement.content);
        let known = db::embedding::of_text(&mut tx, model.space, scope, hash, content).await?;
        tx.commit().await?;
        Ok(known)
    }

    async fn open_for_store(&self, call: &Call) -> Result<(Tx, ScopeId)> {
        match self.scope_id(&call.scope).await? {
            Some(scope) => Ok((Tx::for_scope(&self.db, scope).await?, scope)),
            None => db::scope::open_or_create(&self.db, &call.scope, call.at).await,
        }
    }

    async fn insert_statement(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        call: &Call,
        statement: &Statement,
        embedding: Option<Embedding<'_>>,
    ) -> Result<StoreAnswer> {
        let memory = Memory {
            id: self.clock.new_id(),
            tier: Tier::Episodic,
            content: statement.content.clone(),
            tags: statement.tags.clone(),
            source: statement.source.clone(),
            actor: call.actor.clone(),
            metadata: statement.metadata.clone(),
            confidence: FIRST_CONFIDENCE,
            support: 1,
            created_at: call.at,
            occurred_at: statement.occurred_at,
            valid_from: statement.occurred_at.unwrap_or(call.at),
            valid_to: None,
            superseded_by: None,
            superseded_reason: None,
            expires_at: None,
        };
        let analysis = text::analyse(&memory.content);
        let new = NewMemory {
            memory: &memory,
            content_hash: statement.content_hash,
            analysis: &analysis,
            embedding: embedding.map(|made| (made.model.space.id, made.vector)),
        };
        memory::insert(tx, scope, &new).await?;
        Ok(StoreAnswer {
            outcome: StoreOutcome::Stored,
            id: memory.id,
            tier: memory.tier,
            duplicate_of: None,
            supersedes: Vec::new(),
            conflicts_with: Vec::new(),
            support: memory.support,
            confidence: memory.confidence,
            embedding: if embedding.is_some() { EmbeddingState::Ready } else { EmbeddingState::Pending },
            expires_at: None,
            degraded: Vec::new(),
        })
    }

    /// One more statement of a memory that is known.
    async fn support_known(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        statement: &Statement,
        known: Likeness,
    ) -> Result<StoreAnswer> {
        let source = statement.source.as_deref();
        let (support, confidence) = memory::support(tx, scope, known.id, source, CONFIDENCE_RISE).await?;
        let stored = fetch_one(tx, scope, known.id).await?;
        let pending = db::embedding::is_pending(tx, self.models.active(), scope, known.id).await?;
        Ok(StoreAnswer {
            outcome: StoreOutcome::Duplicate,
            id: known.id,
            tier: stored.memory.tier,
            duplicate_of: Some(known),
            supersedes: Vec::new(),
            conflicts_with: Vec::new(),
            support,
            confidence,
            embedding: if pending { EmbeddingState::Pending } else { EmbeddingState::Ready },
            expires_at: None,
            degraded: Vec::new(),
        })
    }
}

async fn first_answer(
    tx: &mut Tx,
    scope: ScopeId,
    statement: &Statement,
    now: DateTime<Utc>,
) -> Result<Option<StoreAnswer>> {
    match &statement.idempotency {
        Some((key, body)) => idempotency::find(tx, scope, key, body, now).await,
        None => Ok(None),
    }
}

/// Keeps the answer under its key and writes the audit row, in the change's own transaction.
async fn finish(
    tx: &mut Tx,
    scope: ScopeId,
    call: &Call,
    statement: &Statement,
    answer: &StoreAnswer,
) -> Result<()> {
    if let Some((key, body)) = &statement.idempotency {
        let expires_at = call.at + TimeDelta::hours(IDEMPOTENCY_HOURS);
        idempotency::keep(tx, scope, key, body, answer, call.at, expires_at).await?;
    }
    let ids = |others: &[Likeness]| others.iter().map(|other| other.id).collect::<Vec<_>>();
    let detail = json!({
        "outcome": answer.outcome,
        "tier": answer.tier,
        "supersedes": ids(&answer.supersedes),
        "conflicts_with": ids(&answer.conflicts_with),
    });
    audit::append(tx.conn(), &[call.audit("ok", Some(answer.id), detail)]).await
}

/// The memory that a store corrects: one of this scope that is still active.
async fn replaceable(tx: &mut Tx, scope: ScopeId, id: Uuid) -> Result<Likeness> {
    let old = fetch_one(tx, scope, id).await?;
    if old.memory.valid_to.is_some() {
        return Err(Error::Conflict {
            message: "the memory named by replaces is superseded already".to_owned(),
            hint: "Name the memory that superseded it, or leave out replaces.".to_owned(),
        });
    }
    Ok(Likeness { id, similarity: 1.0 })
}

async fn fetch_one(tx: &mut Tx, scope: ScopeId, id: Uuid) -> Result<StoredMemory> {
    memory::fetch(tx, scope, &[id]).await?.pop().ok_or(Error::NotFound)
}
