//! `resolve_conflict`: a reviewer's decision about memories that contradict each other, and the way back from every
//! supersession.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::statement::{Statement, sift};
use super::store::fetch_one;
use super::{Call, Engine};
use crate::api::{ConflictView, Resolution, ResolveAnswer, ResolveArgs, StoreArgs, StoreOutcome};
use crate::auth::Caller;
use crate::db::conflict::{self, Pair, Resolved, Standing};
use crate::db::memory::{self, StoredMemory};
use crate::db::{ScopeId, Tx, audit, history};
use crate::error::{Error, Result};
use crate::model::{Action, Memory, parse_id};
use crate::text;

/// A checked request.
struct Review {
    memory: Uuid,
    other: Option<Uuid>,
    action: Resolution,
    content: Option<String>,
}

/// Two memories of an open conflict.
struct Contest {
    pair: Pair,
    new: StoredMemory,
    old: StoredMemory,
}

impl Engine {
    /// Resolves the open conflicts of a memory, or restores a superseded one.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` with the field; `not_found`; `conflict` when the
    /// memory has no open conflict, or is active already; `unavailable`. Nothing is changed then.
    pub async fn resolve(&self, caller: &Caller, args: ResolveArgs) -> Result<ResolveAnswer> {
        let call = self.authorise(
            caller,
            "resolve_conflict",
            Action::Review,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let result = async {
            let review = check_review(args)?;
            match review.action {
                Resolution::Restore => self.restore(&call, &review).await,
                Resolution::Merge => self.merge(&call, review).await,
                Resolution::KeepNew | Resolution::KeepOld | Resolution::KeepBoth => {
                    self.keep(&call, &review).await
                }
            }
        }
        .await;
        self.audit_failure(&call, &result);
        result
    }

    async fn keep(&self, call: &Call, review: &Review) -> Result<ResolveAnswer> {
        let scope = self.scope_id(&call.scope).await?.ok_or(Error::NotFound)?;
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let contests = contests(&mut tx, scope, review).await?;
        let mut answer = nothing(review.action);
        for (loser, winner, at) in outcome(review.action, &contests) {
            if history::supersede(&mut tx, scope, &[loser], winner, "conflict", at).await? > 0 {
                answer.superseded.push(loser);
            }
        }
        answer.resolved = contests.iter().map(|contest| view_of(contest.pair)).collect();
        let pairs: Vec<Uuid> = contests.iter().map(|contest| contest.pair.id).collect();
        let how = Resolved { resolution: review.action.as_str(), by: &call.subject, at: call.at };
        conflict::resolve(&mut tx, scope, &pairs, how).await?;
        finish(tx, call, review, answer).await
    }

    /// Stores the merged content as any other statement; it replaces the memories of the conflict.
    async fn merge(&self, call: &Call, review: Review) -> Result<ResolveAnswer> {
        let scope = self.scope_id(&call.scope).await?.ok_or(Error::NotFound)?;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let contests = contests(&mut tx, scope, &review).await?;
        tx.commit().await?;
        let members: Vec<&StoredMemory> =
            contests.iter().flat_map(|contest| [&contest.old, &contest.new]).collect();
        let args = StoreArgs { content: review.content.unwrap_or_default(), ..of_all(&members) };
        let mut statement = Statement::check(sift(args, &self.settings)?, &self.settings)?;
        statement.replaces = members.iter().map(|member| member.memory.id).collect();
        statement.replaces.sort_unstable();
        statement.replaces.dedup();
        statement.merges = contests.iter().map(|contest| contest.pair.id).collect();
        // Under the lock the store looks again whether each is active still.
        let stored = self.store_durable(call, statement).await?;
        let mut answer = nothing(review.action);
        answer.resolved = contests.iter().map(|contest| view_of(contest.pair)).collect();
        answer.merged_into = Some(stored.id);
        answer.superseded = stored.supersedes.iter().map(|old| old.id).collect();
        if stored.outcome == StoreOutcome::Flagged {
            let against = stored.conflicts_with.iter();
            answer.conflicts =
                against.map(|old| ConflictView { new_id: stored.id, old_id: old.id }).collect();
        }
        answer.redacted = stored.redacted;
        answer.degraded = stored.degraded;
        Ok(answer)
    }

    async fn restore(&self, call: &Call, review: &Review) -> Result<ResolveAnswer> {
        let scope = self.scope_id(&call.scope).await?.ok_or(Error::NotFound)?;
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let StoredMemory { memory, origin, .. } = fetch_one(&mut tx, scope, review.memory).await?;
        if memory.valid_to.is_none() {
            return Err(Error::Conflict {
                message: "the memory is active: there is nothing to restore".to_owned(),
                hint: "list_memories with status superseded shows what can be restored.".to_owned(),
            });
        }
        let hash = text::content_hash(&memory.content);
        if let Some(twin) = memory::active_with_hash(&mut tx, scope, &hash).await? {
            return Err(Error::Conflict {
                message: format!("the same text is active already, as {twin}"),
                hint: "There is nothing to restore; forget one of the two if it is too many.".to_owned(),
            });
        }
        let mut answer = nothing(review.action);
        let consolidated = memory.superseded_reason.as_deref() == Some("consolidated");
        history::restore(&mut tx, scope, memory.id, consolidated).await?;
        answer.restored.push(memory.id);
        match (memory.superseded_reason.as_deref(), memory.superseded_by) {
            (Some("consolidated"), Some(fact)) => {
                self.take_apart(&mut tx, scope, call, fact, &mut answer).await?;
                // A fact that went into another one stands for its own originals again.
                history::supersede(&mut tx, scope, &origin, memory.id, "consolidated", call.at).await?;
                answer.restored.retain(|id| !origin.contains(id));
            }
            (Some("undone"), _) => {
                history::supersede(&mut tx, scope, &origin, memory.id, "consolidated", call.at).await?;
                answer.superseded = origin;
            }
            (_, Some(successor)) => {
                if let Some(rival) = history::active_end(&mut tx, scope, successor).await? {
                    let rival = fetch_one(&mut tx, scope, rival).await?.memory;
                    let pair = pair_of(self.clock.new_id(), &memory, &rival);
                    let waits = Standing { pair, similarity: None, kept_by: None };
                    conflict::put(&mut tx, scope, &[waits], call.at).await?;
                    answer.conflicts.push(view_of(pair));
                }
            }
            (_, None) => {}
        }
        finish(tx, call, review, answer).await
    }

    /// A fact without one of its originals says too much: it goes out of use and the other originals come back, to be
    /// consolidated anew. A fact that is history already stays what it is.
    async fn take_apart(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        call: &Call,
        fact: Uuid,
        answer: &mut ResolveAnswer,
    ) -> Result<()> {
        if fetch_one(tx, scope, fact).await?.memory.valid_to.is_some() {
            return Ok(());
        }
        history::retire(tx, scope, &[fact], call.at).await?;
        answer.superseded.push(fact);
        answer.restored.extend(history::reactivate_originals(tx, scope, &[fact], &[]).await?);
        Ok(())
    }
}

fn check_review(args: ResolveArgs) -> Result<Review> {
    let action = args.action.ok_or_else(|| {
        Error::invalid(
            "action",
            "action is missing",
            "One of: keep_new, keep_old, keep_both, merge, restore.",
        )
    })?;
    let memory = parse_id("memory_id", &args.memory_id)?;
    let other = args.other_id.as_deref().map(|id| parse_id("other_id", id)).transpose()?;
    if action == Resolution::Restore && other.is_some() {
        return Err(Error::invalid("other_id", "restore takes no other_id", "Leave it out."));
    }
    match (action, &args.content) {
        (Resolution::Merge, None) => {
            Err(Error::invalid("content", "content is missing", "With merge: the text that is right."))
        }
        (Resolution::Merge, Some(_)) | (_, None) => {
            Ok(Review { memory, other, action, content: args.content })
        }
        (_, Some(_)) => {
            Err(Error::invalid("content", "content goes with merge alone", "Leave it out, or use merge."))
        }
    }
}

/// The open conflicts that a review is about, with their memories; at least one.
async fn contests(tx: &mut Tx, scope: ScopeId, review: &Review) -> Result<Vec<Contest>> {
    let id = review.memory;
    fetch_one(tx, scope, id).await?;
    let mut pairs = conflict::open_pairs(tx, scope, id).await?;
    pairs.retain(|pair| review.other.is_none_or(|other| pair.new == other || pair.old == other));
    if pairs.is_empty() {
        let with = if review.other.is_some() { " with other_id" } else { "" };
        return Err(Error::Conflict {
            message: format!("the memory has no open conflict{with}"),
            hint:
                "list_memories with status conflicted shows those that have one and against which; restore \
                   brings back a memory that is superseded."
                    .to_owned(),
        });
    }
    if pairs.iter().any(|pair| pair.new == id) && pairs.iter().any(|pair| pair.old == id) {
        let others: Vec<String> =
            pairs.iter().map(|pair| if pair.new == id { pair.old } else { pair.new }.to_string()).collect();
        return Err(Error::invalid(
            "other_id",
            "the memory is the newer one of one conflict and the older one of another",
            format!("Say which conflict is meant: {}.", others.join(", ")),
        ));
    }
    let ids: Vec<Uuid> = pairs.iter().flat_map(|pair| [pair.new, pair.old]).collect();
    let known = memory::fetch(tx, scope, &ids).await?;
    let find = |id: Uuid| known.iter().find(|stored| stored.memory.id == id).cloned().ok_or(Error::NotFound);
    pairs.into_iter().map(|pair| Ok(Contest { pair, new: find(pair.new)?, old: find(pair.old)? })).collect()
}

/// Who is superseded by whom, and from when on. Of several winners the one that holds last stands for all.
fn outcome(action: Resolution, contests: &[Contest]) -> Vec<(Uuid, Uuid, DateTime<Utc>)> {
    let mut superseded: Vec<(Uuid, Uuid, DateTime<Utc>)> = Vec::new();
    let mut by_age: Vec<&Contest> = contests.iter().collect();
    by_age.sort_by_key(|contest| std::cmp::Reverse((contest.new.memory.valid_from, contest.pair.id)));
    for contest in by_age {
        let (new, old) = (&contest.new.memory, &contest.old.memory);
        let (loser, winner, at) = match action {
            Resolution::KeepNew => (old.id, new.id, new.valid_from),
            // What was wrong from the start ends when it began.
            Resolution::KeepOld => (new.id, old.id, new.valid_from),
            Resolution::KeepBoth | Resolution::Merge | Resolution::Restore => continue,
        };
        if superseded.iter().all(|known| known.0 != loser) {
            superseded.push((loser, winner, at));
        }
    }
    superseded
}

/// The pair of two memories, the one that holds from later on as the new one.
fn pair_of(id: Uuid, a: &Memory, b: &Memory) -> Pair {
    let age = |memory: &Memory| (memory.valid_from, memory.created_at, memory.id);
    let (old, new) = if age(a) < age(b) { (a.id, b.id) } else { (b.id, a.id) };
    Pair { id, new, old }
}

/// What a merged memory takes over: every tag, and of what can be had once, the latest.
fn of_all(members: &[&StoredMemory]) -> StoreArgs {
    let mut tags: Vec<String> = Vec::new();
    let mut merged = StoreArgs::default();
    let mut in_time: Vec<&StoredMemory> = members.to_vec();
    in_time.sort_by_key(|member| (member.memory.valid_from, member.memory.id));
    for member in in_time {
        for tag in &member.memory.tags {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        merged.metadata.extend(member.memory.metadata.clone());
        merged.occurred_at = merged.occurred_at.max(member.memory.occurred_at);
        merged.source = member.memory.source.clone().or(merged.source);
    }
    tags.truncate(crate::model::TAGS_MAX);
    merged.tags = tags;
    merged
}

async fn finish(mut tx: Tx, call: &Call, review: &Review, answer: ResolveAnswer) -> Result<ResolveAnswer> {
    let detail = json!({
        "action": answer.action,
        "resolved": answer.resolved,
        "superseded": answer.superseded,
        "restored": answer.restored,
        "conflicts": answer.conflicts,
    });
    audit::append(tx.conn(), &[call.audit("ok", Some(review.memory), detail)]).await?;
    tx.commit().await?;
    Ok(answer)
}

const fn view_of(pair: Pair) -> ConflictView {
    ConflictView { new_id: pair.new, old_id: pair.old }
}

const fn nothing(action: Resolution) -> ResolveAnswer {
    ResolveAnswer {
        action,
        resolved: Vec::new(),
        merged_into: None,
        superseded: Vec::new(),
        restored: Vec::new(),
        conflicts: Vec::new(),
        redacted: Vec::new(),
        degraded: Vec::new(),
    }
}
