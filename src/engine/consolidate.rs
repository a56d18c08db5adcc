//! `consolidate_memories`: memories of one thing become one fact; the originals stay as its history.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::cluster::{Item, cluster, neighbours};
use super::models::Model;
use super::{Call, Engine};
use crate::api::{ClusterView, ConsolidateAnswer, ConsolidateArgs, SkippedCluster};
use crate::auth::Caller;
use crate::db::consolidation::{Episode, add_origins, episodes};
use crate::db::memory::{self, NewMemory};
use crate::db::{ScopeId, Tx, audit, history};
use crate::error::Result;
use crate::model::{Action, Memory, Scope, Tier};
use crate::provider::extract::summarise;
use crate::text;

/// Rows looked at in one run; the rest waits for the next one. Bounds memory and time.
const BATCH: i64 = 1_000;
/// Nearest memories of each that may join it.
const NEAREST: usize = 8;
/// A fact stands for at least so many memories.
const CLUSTER_MIN: usize = 2;
/// And for at most so many, so that its summary can hold them.
const CLUSTER_MAX: usize = 20;
/// The longest summary, in characters.
const SUMMARY_MAX_CHARS: usize = 2_000;

impl Engine {
    /// Brings a scope's memories of the same things together. Running it again without new memories changes nothing.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`, `unavailable`. Clusters finished before an error stay finished.
    pub async fn consolidate(&self, caller: &Caller, args: ConsolidateArgs) -> Result<ConsolidateAnswer> {
        let call = self.authorise(
            caller,
            "consolidate_memories",
            Action::Write,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let result = self.consolidate_scope(&call, args.dry_run).await;
        self.audit_failure(&call, &result);
        result
    }

    /// The same for a sweep, which no caller asked for.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn consolidate_for_sweep(&self, scope: Scope) -> Result<ConsolidateAnswer> {
        let call = Call {
            subject: "memser".to_owned(),
            request_id: "sweep".to_owned(),
            actor: None,
            tool: "consolidate_memories",
            scope,
            at: self.clock.now(),
        };
        self.consolidate_scope(&call, false).await
    }

    async fn consolidate_scope(&self, call: &Call, dry_run: bool) -> Result<ConsolidateAnswer> {
        let mut answer = ConsolidateAnswer::default();
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(answer);
        };
        let model = self.models.current().clone();
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let episodes = episodes(&mut tx, scope, model.space, BATCH).await?;
        tx.commit().await?;
        for members in clusters_of(&episodes, model.tuning.cluster_similarity) {
            let members: Vec<&Episode> =
                members.into_iter().filter_map(|index| episodes.get(index)).collect();
            let ids: Vec<Uuid> = members.iter().map(|member| member.id).collect();
            let summary = summary_of(&members);
            if dry_run {
                answer.clusters.push(ClusterView { members: ids, summary, id: None });
                continue;
            }
            match self.derive(call, scope, &model, &members, &summary).await? {
                Some(id) => {
                    answer.created.push(id);
                    answer.superseded.extend(&ids);
                    answer.clusters.push(ClusterView { members: ids, summary, id: Some(id) });
                }
                None => answer.skipped.push(SkippedCluster {
                    members: ids,
                    reason: "a member changed meanwhile; the next run looks again".to_owned(),
                }),
            }
        }
        if !model.embedder.is_up() {
            answer.degraded.push("embedder".to_owned());
        }
        let detail = json!({
            "clusters": answer.clusters.len(),
            "created": answer.created,
            "superseded": answer.superseded.len(),
            "dry_run": dry_run,
        });
        self.journal.audit(call.audit("ok", None, detail));
        Ok(answer)
    }

    /// One fact in one transaction: it appears and its originals step back together, or neither does. `None` when a
    /// member is no longer active.
    async fn derive(
        &self,
        call: &Call,
        scope: ScopeId,
        model: &Model,
        members: &[&Episode],
        summary: &str,
    ) -> Result<Option<Uuid>> {
        let vector = model.embed(summary).await;
        let fact = fact_of(self.clock.new_id(), members, summary, self.clock.now());
        let ids: Vec<Uuid> = members.iter().map(|member| member.id).collect();
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let superseded =
            history::supersede(&mut tx, scope, &ids, fact.id, "consolidated", fact.created_at).await?;
        let content_hash = text::content_hash(summary);
        if superseded != ids.len() as u64
            || memory::active_with_hash(&mut tx, scope, &content_hash).await?.is_some()
        {
            return Ok(None);
        }
        let new = NewMemory {
            memory: &fact,
            content_hash,
            analysis: &text::analyse(summary),
            embedding: vector.as_deref().map(|vector| (model.space.id, vector)),
        };
        memory::insert(&mut tx, scope, &new).await?;
        add_origins(&mut tx, scope, fact.id, &ids).await?;
        let detail = json!({ "fact": fact.id, "superseded": ids });
        audit::append(tx.conn(), &[call.audit("ok", Some(fact.id), detail)]).await?;
        tx.commit().await?;
        Ok(Some(fact.id))
    }
}

fn clusters_of(episodes: &[Episode], similarity: f32) -> Vec<Vec<usize>> {
    let items: Vec<Item> =
        episodes.iter().map(|episode| Item { id: episode.id, vector: episode.vector.clone() }).collect();
    let near = neighbours(&items, NEAREST, similarity);
    cluster(&items, &near, similarity, CLUSTER_MIN, CLUSTER_MAX)
}

/// The most central sentences of the members, in the members' order.
fn summary_of(members: &[&Episode]) -> String {
    let centrality = |at: &Episode| -> f32 {
        members.iter().map(|other| at.vector.iter().zip(&other.vector).map(|(a, b)| a * b).sum::<f32>()).sum()
    };
    let texts: Vec<(&str, f32)> =
        members.iter().map(|member| (member.content.as_str(), centrality(member))).collect();
    summarise(&texts, SUMMARY_MAX_CHARS)
}

/// A fact is as sure as its surest member and happened when its last one did; metadata keeps the whole span.
fn fact_of(id: Uuid, members: &[&Episode], summary: &str, now: DateTime<Utc>) -> Memory {
    let mut tags: Vec<String> = members.iter().flat_map(|member| member.tags.iter().cloned()).collect();
    tags.sort_unstable();
    tags.dedup();
    let first = members.iter().map(|member| member.happened_at).min();
    let last = members.iter().map(|member| member.happened_at).max();
    let span = [("occurred_first", first), ("occurred_last", last)];
    Memory {
        id,
        tier: Tier::Semantic,
        content: summary.to_owned(),
        tags,
        source: None,
        actor: None,
        metadata: span.into_iter().filter_map(|(name, at)| Some((name.to_owned(), json!(at?)))).collect(),
        confidence: members.iter().map(|member| member.confidence).fold(0.0, f32::max),
        support: members.iter().map(|member| member.support).fold(0, i32::saturating_add),
        created_at: now,
        occurred_at: last,
        valid_from: now,
        valid_to: None,
        superseded_by: None,
        superseded_reason: None,
        expires_at: None,
    }
}
