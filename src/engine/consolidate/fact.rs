//! A fact in one transaction: it appears and its originals step back together, or neither does.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::gather::{Group, Rival};
use super::rival::Contradiction;
use crate::db::conflict::{self, Pair, Standing};
use crate::db::consolidation::{
    Evidence, Member, add_origins, looked_at, reinforce, take_over, take_sources,
};
use crate::db::memory::{self, NewMemory};
use crate::db::{ScopeId, Tx, audit, history};
use crate::engine::cluster::dot;
use crate::engine::judge::{ConflictRule, Verdict, judge};
use crate::engine::models::Model;
use crate::engine::{Call, Engine};
use crate::error::Result;
use crate::model::{ConflictPolicy, Memory, TAGS_MAX, Tier};
use crate::text;

/// What became of a group.
pub(super) enum Outcome {
    /// It is a fact.
    Done {
        /// Which.
        made: Made,
        /// The memories that stepped back.
        superseded: Vec<Uuid>,
    },
    /// Nothing: a member changed meanwhile.
    Changed,
    /// Nothing: another memory, which is none of the group's, has the same text.
    Said,
}

/// What stands for a group.
pub(super) enum Made {
    /// A new fact.
    New(Member),
    /// A fact that says the same already.
    Joined(Uuid),
}

impl Engine {
    /// Makes a group one fact with this text, or evidence of a fact that says the same.
    pub(super) async fn derive(
        &self,
        call: &Call,
        scope: ScopeId,
        model: &Model,
        group: &Group,
        summary: &str,
    ) -> Result<Outcome> {
        let vector = model.embed(summary).await;
        let content_hash = text::content_hash(summary);
        let fresh = group.fresh_ids();
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let twin = memory::active_with_hash(&mut tx, scope, &content_hash).await?;
        let target = twin
            .filter(|twin| !fresh.contains(twin))
            .or_else(|| vector.as_deref().and_then(|vector| same_fact(group, model, summary, vector)));
        let target = match target {
            Some(target) => memory::fetch(&mut tx, scope, &[target]).await?.pop().map(|known| known.memory),
            None => None,
        };
        if target.as_ref().is_some_and(|target| target.tier == Tier::Episodic) {
            return Ok(Outcome::Said);
        }
        let target = target.filter(|target| target.valid_to.is_none());
        let id = target.as_ref().map_or_else(|| self.clock.new_id(), |target| target.id);
        let old = group.fact.as_ref().map(|fact| fact.id).filter(|old| *old != id);
        let mut steps_back: Vec<Uuid> = fresh.iter().copied().chain(old).collect();
        let at = self.clock.now();
        let done = history::supersede(&mut tx, scope, &steps_back, id, "consolidated", at).await?;
        if done != steps_back.len() as u64 {
            return Ok(Outcome::Changed);
        }
        let made = if let Some(target) = target {
            let members = if old.is_some() { group.members() } else { group.fresh.iter().collect() };
            reinforce(&mut tx, scope, id, &evidence(&members, Some(&target))).await?;
            Made::Joined(id)
        } else {
            let fact = fact_of(id, group, summary, at);
            let new = NewMemory {
                memory: &fact,
                content_hash,
                analysis: &text::analyse(summary),
                embedding: vector.as_deref().map(|vector| (model.space.id, vector)),
            };
            memory::insert(&mut tx, scope, &new).await?;
            Made::New(member_of(&fact, group, vector))
        };
        let members: Vec<Uuid> = group.members().iter().map(|member| member.id).collect();
        add_origins(&mut tx, scope, id, &members).await?;
        take_sources(&mut tx, scope, id).await?;
        if let Some(old) = old {
            take_over(&mut tx, scope, old, id).await?;
        }
        self.pass_on_pairs(&mut tx, call, scope, &steps_back, id).await?;
        let overruled = self.settle_rivals(&mut tx, call, scope, group, id).await?;
        steps_back.extend(&overruled);
        let detail = json!({ "fact": id, "superseded": steps_back });
        audit::append(tx.conn(), &[call.audit("ok", Some(id), detail)]).await?;
        tx.commit().await?;
        Ok(Outcome::Done { made, superseded: steps_back })
    }

    /// What waits for a reviewer because of a memory that steps back waits because of its fact, and what was to stay beside
    /// the memory stays beside the fact.
    async fn pass_on_pairs(
        &self,
        tx: &mut Tx,
        call: &Call,
        scope: ScopeId,
        from: &[Uuid],
        fact: Uuid,
    ) -> Result<()> {
        let heir = |id: Uuid| if from.contains(&id) { fact } else { id };
        let mut pairs = conflict::standing(tx, scope, from).await?;
        for known in &mut pairs {
            let (new, old) = (heir(known.pair.new), heir(known.pair.old));
            known.pair = Pair { id: self.clock.new_id(), new, old };
        }
        pairs.retain(|known| known.pair.new != known.pair.old);
        conflict::put(tx, scope, &pairs, call.at).await
    }

    /// What contradicts a fact: an older fact that has another value is superseded where the newest wins, and everything
    /// else waits for a reviewer, save where contradictions are to stay.
    async fn settle_rivals(
        &self,
        tx: &mut Tx,
        call: &Call,
        scope: ScopeId,
        group: &Group,
        fact: Uuid,
    ) -> Result<Vec<Uuid>> {
        let last = last_of(&group.members());
        let (mut superseded, mut flagged) = (Vec::new(), Vec::new());
        for rival in &group.rivals {
            let is_older = last.is_some_and(|last| rival.happened_at < last);
            let may_go = rival.is_fact && is_older && rival.why == Contradiction::Value;
            if may_go && self.settings.conflict_policy == ConflictPolicy::NewestWins {
                let at = last.unwrap_or(call.at);
                if history::supersede(tx, scope, &[rival.id], fact, "conflict", at).await? > 0 {
                    superseded.push(rival.id);
                }
            } else {
                flagged.push(self.flagged(fact, last, rival));
            }
        }
        self.flag(tx, call, scope, flagged).await?;
        Ok(superseded)
    }

    /// A pair that waits for a reviewer, the one that happened later as the new one.
    fn flagged(&self, memory: Uuid, happened_at: Option<DateTime<Utc>>, rival: &Rival) -> (Uuid, Standing) {
        let is_newer = happened_at.is_some_and(|at| at < rival.happened_at);
        let (new, old) = if is_newer { (rival.id, memory) } else { (memory, rival.id) };
        let pair = Pair { id: self.clock.new_id(), new, old };
        (rival.id, Standing { pair, similarity: Some(rival.similarity), kept_by: None })
    }

    /// Lets pairs wait for a reviewer whose rivals still are active, save where contradictions are to stay.
    async fn flag(
        &self,
        tx: &mut Tx,
        call: &Call,
        scope: ScopeId,
        flagged: Vec<(Uuid, Standing)>,
    ) -> Result<()> {
        if flagged.is_empty() || self.settings.conflict_policy == ConflictPolicy::KeepBoth {
            return Ok(());
        }
        let rivals: Vec<Uuid> = flagged.iter().map(|(rival, _)| *rival).collect();
        let active: HashSet<Uuid> = memory::active(tx, scope, &rivals).await?.into_iter().collect();
        let pairs: Vec<Standing> =
            flagged.into_iter().filter(|(rival, _)| active.contains(rival)).map(|(_, pair)| pair).collect();
        conflict::put(tx, scope, &pairs, call.at).await
    }

    /// Notes that memories were looked at, and lets those that contradict a fact wait for a reviewer.
    pub(super) async fn note_looked_at(
        &self,
        call: &Call,
        scope: ScopeId,
        ids: &[Uuid],
        lone: &[Group],
    ) -> Result<()> {
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let mut flagged = Vec::new();
        for group in lone {
            for member in group.fresh.iter().filter(|member| ids.contains(&member.id)) {
                let pairs =
                    group.rivals.iter().map(|rival| self.flagged(member.id, Some(member.happened_at), rival));
                flagged.extend(pairs);
            }
        }
        self.flag(&mut tx, call, scope, flagged).await?;
        looked_at(&mut tx, scope, ids).await?;
        tx.commit().await
    }
}

/// The fact near a group that says the same as its summary.
fn same_fact(group: &Group, model: &Model, summary: &str, vector: &[f32]) -> Option<Uuid> {
    let says_the_same = |fact: &&Member| {
        let similarity = dot(&fact.vector, vector);
        // Of a rule that calls every near text a contradiction there is nothing to learn here.
        let verdict =
            judge(ConflictRule::Guarded, model.tuning.thresholds, similarity, &fact.content, summary);
        verdict == Verdict::Duplicate
    };
    group.near_facts.iter().find(says_the_same).map(|fact| fact.id)
}

fn last_of(members: &[&Member]) -> Option<DateTime<Utc>> {
    members.iter().map(|member| member.happened_at).max()
}

/// What members know together, beside what a fact knows that they join.
fn evidence(members: &[&Member], fact: Option<&Memory>) -> Evidence {
    let of_fact = |name: &str| fact.and_then(|fact| fact.metadata.get(name)).cloned();
    let first: Option<DateTime<Utc>> =
        of_fact("occurred_first").and_then(|at| serde_json::from_value(at).ok());
    let sources: Vec<String> =
        of_fact("sources").and_then(|known| serde_json::from_value(known).ok()).unwrap_or_default();
    let tags = fact.into_iter().flat_map(|fact| fact.tags.iter().cloned());
    let tags: BTreeSet<String> = tags.chain(members.iter().flat_map(|member| member.tags.clone())).collect();
    let sources: BTreeSet<String> =
        sources.into_iter().chain(members.iter().filter_map(|member| member.source.clone())).collect();
    let first = members.iter().map(|member| member.happened_at).chain(first).min();
    let last =
        last_of(members).into_iter().chain(fact.and_then(|fact| fact.occurred_at)).max().unwrap_or_default();
    let mut metadata: BTreeMap<String, Value> = BTreeMap::new();
    metadata.insert("occurred_first".to_owned(), json!(first.unwrap_or(last)));
    metadata.insert("occurred_last".to_owned(), json!(last));
    if !sources.is_empty() {
        metadata.insert("sources".to_owned(), json!(sources));
    }
    Evidence {
        tags: tags.into_iter().take(TAGS_MAX).collect(),
        metadata,
        confidence: members.iter().map(|member| member.confidence).fold(0.0, f32::max),
        support: members.iter().map(|member| member.support).fold(0, i32::saturating_add),
        last,
    }
}

/// A fact is as sure as its surest member and happened when its last one did; metadata keeps the whole span.
fn fact_of(id: Uuid, group: &Group, summary: &str, now: DateTime<Utc>) -> Memory {
    let before = group.fact.as_ref();
    let known = evidence(&group.members(), None);
    // A fact may have been stated by itself, too.
    let stated = before.map_or(0, |fact| {
        let counted = group.known.iter().map(|member| member.support).fold(0, i32::saturating_add);
        fact.support.saturating_sub(counted).max(0)
    });
    Memory {
        id,
        tier: Tier::Semantic,
        content: summary.to_owned(),
        tags: known.tags,
        source: None,
        actor: None,
        metadata: known.metadata,
        confidence: before.map_or(known.confidence, |fact| known.confidence.max(fact.confidence)),
        support: known.support.saturating_add(stated),
        created_at: now,
        occurred_at: Some(known.last),
        valid_from: now,
        valid_to: None,
        superseded_by: None,
        superseded_reason: None,
        expires_at: None,
    }
}

/// A fact as the groups after it see it.
fn member_of(fact: &Memory, group: &Group, vector: Option<Vec<f32>>) -> Member {
    Member {
        id: fact.id,
        tier: fact.tier,
        content: fact.content.clone(),
        tags: fact.tags.clone(),
        source: None,
        confidence: fact.confidence,
        support: fact.support,
        happened_at: fact.occurred_at.unwrap_or(fact.created_at),
        is_free: true,
        vector: vector.unwrap_or_default(),
        origins: group.known.len() + group.fresh.len(),
    }
}
