//! `forget_memory`: the only tool that deletes, complete over all tiers.

use std::collections::HashSet;
use std::time::Instant;

use serde_json::json;
use uuid::Uuid;

use super::{Call, Engine};
use crate::api::{ForgetAnswer, ForgetArgs};
use crate::auth::Caller;
use crate::db::forget::{
    Forgetting, Forgotten, Selector, delete, derived, erase_snapshots, kept_snapshots, lock, select,
};
use crate::db::{ScopeId, Tx, audit, history};
use crate::error::{Error, Result, with_causes};
use crate::model::{Action, Memory, Tier, check_tags, parse_id};

/// Ids named in an answer.
const NAMED: usize = 100;
/// Memories forgotten in one transaction: short enough that no store of the scope waits long for it.
const CHUNK: usize = 1_000;
/// Memories selected by one call; a larger scope takes several.
const SELECTED: i64 = 1_000_000;

/// A checked request.
struct Selection {
    durable: Option<Selector>,
    id: Option<Uuid>,
    tags: Vec<String>,
    working: bool,
    dry_run: bool,
    erase: bool,
}

impl Engine {
    /// Forgets memories, in chunks so that nobody waits for a large selection. Each chunk is durable with its audit row.
    /// What was not reached by `until`, or because the database went away, is not forgotten: the answer says so with
    /// exact numbers, and the same call again goes on.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` without a selector; `not_found` for an id that is
    /// not there; `unavailable`. Nothing is forgotten then.
    pub async fn forget(&self, caller: &Caller, args: ForgetArgs, until: Instant) -> Result<ForgetAnswer> {
        let call = self.authorise(
            caller,
            "forget_memory",
            Action::Write,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let result = async { Box::pin(self.forget_selection(&call, check_forget(args)?, until)).await }.await;
        self.audit_failure(&call, &result);
        result
    }

    async fn forget_selection(
        &self,
        call: &Call,
        selection: Selection,
        until: Instant,
    ) -> Result<ForgetAnswer> {
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return found(&selection, ForgetAnswer::default());
        };
        let working = self.select_working(call, scope, &selection).await?;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let durable = match &selection.durable {
            Some(selector) => select(&mut tx, scope, selector, SELECTED).await?,
            None => Vec::new(),
        };
        let kept = match &selection.durable {
            Some(selector) if selection.erase => kept_snapshots(&mut tx, scope, selector).await?,
            _ => Vec::new(),
        };
        let ids: Vec<Uuid> = durable.iter().map(|memory| memory.id).collect();
        let whole: HashSet<Uuid> = ids.iter().copied().collect();
        if selection.dry_run {
            let mut answer = ForgetAnswer { dry_run: true, ..ForgetAnswer::default() };
            answer.retracted = derived(&mut tx, scope, &ids).await?;
            answer.retracted.retain(|fact| !whole.contains(fact));
            tx.commit().await?;
            let working = working.iter().map(|memory| Forgotten { id: memory.id, tier: Tier::Working });
            count(&mut answer, working.chain(durable));
            answer.erased = kept.len() as u64;
            let answer = found(&selection, answer)?;
            self.journal.audit(call.audit("ok", selection.id, detail(&answer, &selection)));
            return Ok(answer);
        }
        tx.commit().await?;
        let mut answer = ForgetAnswer::default();
        let is_cut = i64::try_from(ids.len()).is_ok_and(|selected| selected == SELECTED);
        // The first chunk takes the working memories and what was forgotten earlier with it, also when it has no other.
        let chunks = ids.chunks(CHUNK).chain(ids.is_empty().then_some([].as_slice()));
        for (at, chunk) in chunks.enumerate() {
            let part = if at == 0 { (working.as_slice(), kept.as_slice()) } else { (&[][..], &[][..]) };
            if at > 0 && Instant::now() >= until {
                answer.complete = false;
                break;
            }
            match self.forget_chunk(call, scope, &selection, chunk, part, &whole).await {
                Ok(done) => add(&mut answer, done),
                Err(error) if at > 0 => {
                    tracing::warn!(error = with_causes(&error), "a forget stopped on its way");
                    answer.complete = false;
                    answer.degraded.push("postgres".to_owned());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        answer.complete &= !is_cut;
        found(&selection, answer)
    }

    /// Forgets a chunk in one transaction, with the facts that were made from it.
    async fn forget_chunk(
        &self,
        call: &Call,
        scope: ScopeId,
        selection: &Selection,
        chunk: &[Uuid],
        (working, kept): (&[Memory], &[Uuid]),
        whole: &HashSet<Uuid>,
    ) -> Result<ForgetAnswer> {
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        // A fact of the selection goes with the first of its originals: it must not outlive it, if this is cut off.
        let facts = derived(&mut tx, scope, chunk).await?;
        let mut wanted: Vec<Uuid> = chunk.iter().chain(&facts).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let there = lock(&mut tx, scope, &wanted).await?;
        let gone: Vec<Uuid> = there.iter().map(|memory| memory.id).collect();
        if !facts.is_empty() {
            history::retire(&mut tx, scope, &facts, call.at).await?;
            history::reactivate_originals(&mut tx, scope, &facts, &gone).await?;
        }
        if !gone.is_empty() {
            let how = Forgetting { by: &call.subject, at: call.at, erase: selection.erase };
            delete(&mut tx, scope, &gone, how).await?;
        }
        let mut done = ForgetAnswer::default();
        if !kept.is_empty() {
            erase_snapshots(&mut tx, scope, kept).await?;
            done.erased = kept.len() as u64;
        }
        let mut forgotten = Vec::new();
        // Working memories go before the commit: when they cannot, nothing is forgotten and the caller is told.
        if !working.is_empty() {
            let ids: Vec<Uuid> = working.iter().map(|memory| memory.id).collect();
            let removed = self.working.remove(&mut tx, scope, &ids).await?;
            forgotten.extend(removed.into_iter().map(|id| Forgotten { id, tier: Tier::Working }));
        }
        forgotten.extend(there.into_iter().filter(|memory| whole.contains(&memory.id)));
        count(&mut done, forgotten);
        done.retracted = facts.into_iter().filter(|fact| !whole.contains(fact)).collect();
        audit::append(tx.conn(), &[call.audit("ok", selection.id, detail(&done, selection))]).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn select_working(
        &self,
        call: &Call,
        scope: ScopeId,
        selection: &Selection,
    ) -> Result<Vec<Memory>> {
        if !selection.working {
            return Ok(Vec::new());
        }
        let mut working = self.working.list(scope, call.at).await?;
        working.retain(|memory| {
            selection.id.is_none_or(|id| memory.id == id)
                && selection.tags.iter().all(|tag| memory.tags.contains(tag))
        });
        Ok(working)
    }
}

/// An id that is not there is an error; tags or a tier that nothing carries are not.
fn found(selection: &Selection, answer: ForgetAnswer) -> Result<ForgetAnswer> {
    if selection.id.is_some() && answer.ids.is_empty() && answer.erased == 0 {
        return Err(Error::NotFound);
    }
    Ok(ForgetAnswer { dry_run: selection.dry_run, ..answer })
}

fn count(answer: &mut ForgetAnswer, forgotten: impl IntoIterator<Item = Forgotten>) {
    for memory in forgotten {
        match memory.tier {
            Tier::Working => answer.forgotten.working += 1,
            Tier::Episodic => answer.forgotten.episodic += 1,
            Tier::Semantic => answer.forgotten.semantic += 1,
        }
        if answer.ids.len() < NAMED {
            answer.ids.push(memory.id);
        }
    }
}

fn add(answer: &mut ForgetAnswer, done: ForgetAnswer) {
    answer.forgotten.working += done.forgotten.working;
    answer.forgotten.episodic += done.forgotten.episodic;
    answer.forgotten.semantic += done.forgotten.semantic;
    answer.ids.extend(done.ids.into_iter().take(NAMED.saturating_sub(answer.ids.len())));
    answer.retracted.extend(done.retracted);
    answer.erased += done.erased;
}

fn detail(answer: &ForgetAnswer, selection: &Selection) -> serde_json::Value {
    json!({
        "forgotten": answer.forgotten,
        "ids": answer.ids,
        "retracted": answer.retracted,
        "erased": answer.erased,
        "dry_run": selection.dry_run,
        "erase": selection.erase,
    })
}

fn check_forget(args: ForgetArgs) -> Result<Selection> {
    let tags = check_tags(args.tags)?;
    let id = args.memory_id.as_deref().map(|id| parse_id("memory_id", id)).transpose()?;
    let selects = id.is_some() || args.tier.is_some() || !tags.is_empty();
    if !selects && !args.all {
        return Err(Error::invalid(
            "memory_id",
            "nothing says which memories to forget",
            "Give memory_id, tier or tags, or all: true for the whole scope; dry_run shows what would go.",
        ));
    }
    if selects && args.all {
        return Err(Error::invalid(
            "all",
            "all: true stands beside another selector",
            "Leave out all to forget the selection, or the selectors to forget the whole scope.",
        ));
    }
    let durable = match args.tier {
        Some(Tier::Working) => None,
        tier => Some(Selector { id, tier: tier.map(Tier::as_str), tags: tags.clone() }),
    };
    Ok(Selection {
        durable,
        id,
        tags,
        working: args.tier.is_none_or(|tier| tier == Tier::Working),
        dry_run: args.dry_run,
        erase: args.erase,
    })
}
