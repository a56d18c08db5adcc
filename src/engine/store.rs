//! `store_memory`: when it answers, the memory is durable and the answer says what happened.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use uuid::Uuid;

use super::judgement::{Contradicted, Embedding, Place};
use super::models::Model;
use super::settle::{Settlement, settle};
use super::statement::{Statement, check_room, sift};
use super::{Call, Engine, Quota};
use crate::api::{EmbeddingState, Likeness, StoreAnswer, StoreArgs, StoreOutcome};
use crate::auth::Caller;
use crate::db::conflict::{Pair, Resolved, Standing};
use crate::db::memory::{NewMemory, StoredMemory};
use crate::db::{self, ScopeId, Tx, audit, conflict, history, idempotency, memory};
use crate::error::{Error, Result};
use crate::model::{Action, FIRST_CONFIDENCE, Memory, Tier, check_label};
use crate::text;
use crate::working::NewWorking;

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
        let scope = args.scope.as_deref();
        let mut call = self.authorise(caller, "store_memory", Action::Write, scope, None)?;
        let result = self.store_args(&mut call, args).await;
        self.audit_failure(&call, &result);
        if let Ok(answer) = &result {
            self.metrics.stored(answer.outcome.as_str());
            self.metrics.degraded(&answer.degraded);
        }
        result
    }

    async fn store_args(&self, call: &mut Call, args: StoreArgs) -> Result<StoreAnswer> {
        let sifted = sift(args, &self.settings)?;
        // Not before: what looks like a credential is not for the audit log either.
        call.actor = check_label("actor", sifted.args.actor.clone())?;
        let statement = Statement::check(sifted, &self.settings)?;
        match statement.ttl {
            Some(ttl) => Box::pin(self.store_working(call, statement, ttl)).await,
            None => Box::pin(self.store_durable(call, statement)).await,
        }
    }

    async fn store_working(&self, call: &Call, statement: Statement, ttl: Duration) -> Result<StoreAnswer> {
        let _turn = match statement.idempotency {
            Some(_) => Some(self.wait_for(&call.scope).await),
            None => None,
        };
        if self.scope_id(&call.scope).await?.is_none() {
            // A scope is made before its first memory: not for one that cannot be kept.
            self.working.ping().await?;
        }
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
            support: 1,
        };
        let put = self.working.put(scope, new, ttl, call.at).await?;
        let answer = StoreAnswer {
            outcome: if put.refreshed { StoreOutcome::Duplicate } else { StoreOutcome::Stored },
            id: put.id,
            tier: Tier::Working,
            duplicate_of: put.refreshed.then_some(Likeness { id: put.id, similarity: 1.0 }),
            supersedes: Vec::new(),
            conflicts_with: Vec::new(),
            superseded_by: None,
            support: put.support,
            confidence: crate::working::CONFIDENCE,
            embedding: EmbeddingState::None,
            expires_at: Some(put.expires_at),
            redacted: statement.redacted.clone(),
            degraded: Vec::new(),
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        if statement.idempotency.is_some() {
            // Another replica may have been faster with the same key: what it answered is the answer.
            tx.lock_scope(scope).await?;
            if let Some(first) = first_answer(&mut tx, scope, &statement, call.at).await? {
                return Ok(first);
            }
        }
        finish(&mut tx, scope, call, &statement, &answer).await?;
        tx.commit().await?;
        Ok(answer)
    }

    pub(super) async fn store_durable(&self, call: &Call, statement: Statement) -> Result<StoreAnswer> {
        if let Some(answer) = self.answered_before(call, &statement).await? {
            return Ok(answer);
        }
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
        let mut replaced = Vec::with_capacity(statement.replaces.len());
        for &id in &statement.replaces {
            replaced.push(replaceable(&mut tx, scope, id).await?);
        }
        let judgement = self.judge_statement(&mut tx, scope, &statement, embedding, &opinions).await?;
        let is_correction = !replaced.is_empty();
        let mut contradicts = judgement.contradicts;
        contradicts.retain(|other| replaced.iter().all(|old| old.id != other.likeness.id));
        let settled = settle(statement.policy, statement.occurred_at, is_correction, contradicts);
        let at = statement.occurred_at.unwrap_or(call.at);
        let place = match (settled.superseded_by, embedding) {
            (Some(next), Some(embedding)) => {
                Some(self.place_in_history(&mut tx, scope, &statement, embedding, (next, at)).await?)
            }
            _ => None,
        };
        let mut answer = if let Some(known) = judgement.duplicate_of {
            self.support_known(&mut tx, scope, &statement, known).await?
        } else {
            let successor = place.as_ref().map(|place| place.successor);
            self.insert_statement(&mut tx, scope, call, &statement, embedding, successor).await?
        };
        self.carry_out(&mut tx, scope, call, &settled, place, (answer.id, at)).await?;
        replaced.retain(|old| old.id != answer.id);
        let ids: Vec<Uuid> = replaced.iter().map(|old| old.id).collect();
        history::supersede(&mut tx, scope, &ids, answer.id, "replaced", call.at).await?;
        if !statement.merges.is_empty() {
            let merged = Resolved { resolution: "merge", by: &call.subject, at: call.at };
            conflict::resolve(&mut tx, scope, &statement.merges, merged).await?;
        }
        answer.supersedes = replaced.into_iter().chain(settled.superseded).collect();
        if answer.outcome == StoreOutcome::Stored {
            if !answer.supersedes.is_empty() {
                answer.outcome = StoreOutcome::Superseded;
            } else if !settled.flagged.is_empty() {
                answer.outcome = StoreOutcome::Flagged;
            }
        }
        answer.conflicts_with = settled.flagged.into_iter().chain(settled.kept).collect();
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

    /// Supersedes, flags and keeps what was settled, in the transaction that stored `new`, which holds from `at` on.
    async fn carry_out(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        call: &Call,
        settled: &Settlement,
        place: Option<Place>,
        (new, at): (Uuid, DateTime<Utc>),
    ) -> Result<()> {
        let ids: Vec<Uuid> = settled.superseded.iter().map(|old| old.id).collect();
        history::supersede(tx, scope, &ids, new, "conflict", at).await?;
        if let Some(place) = place {
            history::end_earlier(tx, scope, &place.ends, new, at).await?;
        }
        let standing = |old: &Likeness, kept_by: Option<&str>| Standing {
            pair: Pair { id: self.clock.new_id(), new, old: old.id },
            similarity: Some(old.similarity),
            kept_by: kept_by.map(str::to_owned),
        };
        let flagged = settled.flagged.iter().map(|old| standing(old, None));
        // Or consolidation would find the contradiction anew.
        let kept = settled.kept.iter().map(|old| standing(old, Some(&call.subject)));
        let pairs: Vec<Standing> = flagged.chain(kept).collect();
        conflict::put(tx, scope, &pairs, call.at).await
    }

    /// The first answer under the statement's key, so that neither the embedder nor the language model is asked for a
    /// repeat. Whoever is stored at the same time is seen under the lock.
    async fn answered_before(&self, call: &Call, statement: &Statement) -> Result<Option<StoreAnswer>> {
        if statement.idempotency.is_none() {
            return Ok(None);
        }
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(None);
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let answer = first_answer(&mut tx, scope, statement, call.at).await?;
        tx.commit().await?;
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
        if let Some(scope) = self.scope_id(&call.scope).await? {
            return Ok((Tx::for_scope(&self.db, scope).await?, scope));
        }
        let most = self.settings.max_scopes_per_token;
        db::scope::open_or_create(&self.db, &call.scope, &call.subject, most, call.at).await
    }

    async fn insert_statement(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        call: &Call,
        statement: &Statement,
        embedding: Option<Embedding<'_>>,
        successor: Option<Contradicted>,
    ) -> Result<StoreAnswer> {
        if self.settings.quota != Quota::default() {
            let (memories, bytes) = db::scope::holds(tx, scope).await?;
            check_room(self.settings.quota, memories, bytes, statement.content.len())?;
        }
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
            valid_to: successor.map(|next| next.valid_from),
            superseded_by: successor.map(|next| next.likeness.id),
            superseded_reason: successor.map(|_| "conflict".to_owned()),
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
            superseded_by: memory.superseded_by,
            support: memory.support,
            confidence: memory.confidence,
            embedding: if embedding.is_some() { EmbeddingState::Ready } else { EmbeddingState::Pending },
            expires_at: None,
            redacted: statement.redacted.clone(),
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
        let now = self.clock.now();
        let (support, confidence) =
            memory::support(tx, scope, known.id, source, CONFIDENCE_RISE, now).await?;
        let stored = fetch_one(tx, scope, known.id).await?;
        let pending = db::embedding::is_pending(tx, self.models.active(), scope, known.id).await?;
        Ok(StoreAnswer {
            outcome: StoreOutcome::Duplicate,
            id: known.id,
            tier: stored.memory.tier,
            duplicate_of: Some(known),
            supersedes: Vec::new(),
            conflicts_with: Vec::new(),
            superseded_by: stored.memory.superseded_by,
            support,
            confidence,
            embedding: if pending { EmbeddingState::Pending } else { EmbeddingState::Ready },
            expires_at: None,
            redacted: statement.redacted.clone(),
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
        "redacted": answer.redacted,
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

pub(super) async fn fetch_one(tx: &mut Tx, scope: ScopeId, id: Uuid) -> Result<StoredMemory> {
    memory::fetch(tx, scope, &[id]).await?.pop().ok_or(Error::NotFound)
}
