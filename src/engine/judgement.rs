//! What the stored memories say about a new one: the candidates for [judge], and what it made of them.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::arbiter::{self, Opinions};
use super::judge::{ConflictRule, Verdict, is_borderline, judge, settle};
use super::models::Model;
use super::statement::Statement;
use super::{Call, Engine};
use crate::api::Likeness;
use crate::db::recall::{Filter, Hit, by_meaning, size};
use crate::db::{ScopeId, Tx};
use crate::db::{embedding, history, memory};
use crate::error::Result;

/// How many of the nearest memories are judged.
const JUDGED: i64 = 5;

/// A text's vector with the model that made it.
#[derive(Clone, Copy)]
pub(super) struct Embedding<'a> {
    pub(super) model: &'a Model,
    pub(super) vector: &'a [f32],
}

/// An active memory that the new one contradicts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contradicted {
    pub(super) likeness: Likeness,
    /// From when on it holds.
    pub(super) valid_from: DateTime<Utc>,
}

/// What the judge made of a new memory.
#[derive(Default)]
pub(super) struct Judgement {
    pub(super) duplicate_of: Option<Likeness>,
    pub(super) contradicts: Vec<Contradicted>,
}

/// Where a memory that arrives late belongs.
pub(super) struct Place {
    /// The memory that superseded it.
    pub(super) successor: Contradicted,
    /// The memories that it superseded.
    pub(super) ends: Vec<Uuid>,
}

impl Judgement {
    fn duplicate(id: Uuid) -> Self {
        Self { duplicate_of: Some(Likeness { id, similarity: 1.0 }), ..Self::default() }
    }
}

impl Engine {
    /// Holds the new memory against what is active: the same text first, then the nearest by meaning.
    pub(super) async fn judge_statement(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        statement: &Statement,
        embedding: Option<Embedding<'_>>,
        opinions: &Opinions,
    ) -> Result<Judgement> {
        if let Some(id) = memory::stated(tx, scope, &statement.content_hash).await? {
            return Ok(Judgement::duplicate(id));
        }
        // History that is told again stays history.
        if let Some(at) = statement.occurred_at
            && let Some(id) = history::told_before(tx, scope, &statement.content_hash, at).await?
        {
            return Ok(Judgement::duplicate(id));
        }
        let Some(Embedding { model, vector }) = embedding else {
            return Ok(Judgement::default());
        };
        let near = self.near(tx, scope, model, vector).await?;
        if near.is_empty() {
            return Ok(Judgement::default());
        }
        let (rule, thresholds) = (self.settings.conflict_rule, model.tuning.thresholds);
        let ids: Vec<Uuid> = near.iter().map(|hit| hit.id).collect();
        let known = memory::fetch(tx, scope, &ids).await?;
        let mut judgement = Judgement::default();
        for hit in near {
            let Some(old) = known.iter().find(|stored| stored.memory.id == hit.id) else {
                continue;
            };
            let likeness = Likeness { id: hit.id, similarity: hit.score };
            let (text, new) = (&old.memory.content, &statement.content);
            let verdict = match opinions.on(hit.id, text) {
                Some(opinion) => settle(opinion, text, new),
                None => judge(rule, thresholds, hit.score, text, new),
            };
            match verdict {
                Verdict::Duplicate if judgement.duplicate_of.is_none() => {
                    judgement.duplicate_of = Some(likeness);
                }
                Verdict::Conflict => {
                    let valid_from = old.memory.valid_from;
                    judgement.contradicts.push(Contradicted { likeness, valid_from });
                }
                Verdict::Duplicate | Verdict::Distinct => {}
            }
        }
        if judgement.duplicate_of.is_some() {
            // What was known stays as it was judged when it came.
            judgement.contradicts.clear();
        }
        Ok(judgement)
    }

    /// Finds the place of a memory that arrives late in the history that ends with `successor`: what it contradicts
    /// there and held at its time ends with it, and the first that held after it supersedes it.
    pub(super) async fn place_in_history(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        statement: &Statement,
        embedding: Embedding<'_>,
        (successor, at): (Contradicted, DateTime<Utc>),
    ) -> Result<Place> {
        let Embedding { model, vector } = embedding;
        let mut place = Place { successor, ends: Vec::new() };
        let ids = history::chain_to(tx, scope, successor.likeness.id, at).await?;
        if ids.is_empty() {
            return Ok(place);
        }
        let alike = embedding::likeness(tx, model.space, scope, &ids, vector).await?;
        let known = memory::fetch(tx, scope, &ids).await?;
        let (rule, thresholds) = (self.settings.conflict_rule, model.tuning.thresholds);
        for (id, similarity) in alike {
            let Some(old) = known.iter().find(|stored| stored.memory.id == id) else {
                continue;
            };
            if judge(rule, thresholds, similarity, &old.memory.content, &statement.content)
                != Verdict::Conflict
            {
                continue;
            }
            let valid_from = old.memory.valid_from;
            if valid_from <= at {
                place.ends.push(id);
            } else if valid_from < place.successor.valid_from {
                place.successor = Contradicted { likeness: Likeness { id, similarity }, valid_from };
            }
        }
        Ok(place)
    }

    /// What the arbiter thinks of the borderline pairs as they are now, and whether it failed. Asked without a transaction
    /// and without the scope's lock, so that no other store waits for it.
    pub(super) async fn opinions(
        &self,
        call: &Call,
        statement: &Statement,
        embedding: Option<Embedding<'_>>,
    ) -> Result<(Opinions, bool)> {
        let (Some(chat), Some(Embedding { model, vector })) = (&self.settings.arbiter, embedding) else {
            return Ok((Opinions::default(), false));
        };
        // Where similarity alone decides, nothing is open.
        if self.settings.conflict_rule == ConflictRule::Similarity {
            return Ok((Opinions::default(), false));
        }
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok((Opinions::default(), false));
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        if memory::stated(&mut tx, scope, &statement.content_hash).await?.is_some() {
            return Ok((Opinions::default(), false));
        }
        let near = self.near(&mut tx, scope, model, vector).await?;
        let ids: Vec<Uuid> = near.iter().map(|hit| hit.id).collect();
        let known = memory::fetch(&mut tx, scope, &ids).await?;
        tx.commit().await?;
        let thresholds = model.tuning.thresholds;
        let open: Vec<(Uuid, String)> = known
            .into_iter()
            .map(|stored| (stored.memory.id, stored.memory.content))
            .filter(|(id, old)| {
                let hit = near.iter().find(|hit| hit.id == *id);
                hit.is_some_and(|hit| is_borderline(thresholds, hit.score, old, &statement.content))
            })
            .collect();
        if open.is_empty() {
            return Ok((Opinions::default(), false));
        }
        match arbiter::ask(chat, &statement.content, open).await {
            Ok(opinions) => Ok((opinions, false)),
            Err(error) => {
                tracing::warn!(error = %error, "the judge by LLM failed; the rules decide");
                Ok((Opinions::default(), true))
            }
        }
    }

    /// The nearest active memories that are near enough to be judged.
    async fn near(&self, tx: &mut Tx, scope: ScopeId, model: &Model, vector: &[f32]) -> Result<Vec<Hit>> {
        let (size, active) = size(tx, scope).await?;
        self.models.note_active(active);
        let near = by_meaning(tx, scope, model.space, vector, size, &Filter::default(), JUDGED).await?;
        let thresholds = model.tuning.thresholds;
        let least = thresholds.duplicate.min(thresholds.conflict);
        Ok(near.into_iter().filter(|hit| hit.score >= least).collect())
    }
}
