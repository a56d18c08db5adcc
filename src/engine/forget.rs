//! `forget_memory`: the only tool that deletes, complete over all tiers.

use serde_json::json;
use uuid::Uuid;

use super::{Call, Engine};
use crate::api::{ForgetAnswer, ForgetArgs, TierCounts};
use crate::auth::Caller;
use crate::db::forget::{Forgetting, Selector, delete, derived, select};
use crate::db::{ScopeId, Tx, audit, history};
use crate::error::{Error, Result};
use crate::model::{Action, Memory, Tier, check_tags, parse_id};

/// Ids named in an answer.
const NAMED: usize = 100;

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
    /// Forgets memories: all of the selection or, on an error, none of its durable part.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` without a selector; `not_found` for an id that is
    /// not there; `unavailable`.
    pub async fn forget(&self, caller: &Caller, args: ForgetArgs) -> Result<ForgetAnswer> {
        let call = self.authorise(
            caller,
            "forget_memory",
            Action::Write,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let result = async { self.forget_selection(&call, check_forget(args)?).await }.await;
        self.audit_failure(&call, &result);
        result
    }

    async fn forget_selection(&self, call: &Call, selection: Selection) -> Result<ForgetAnswer> {
        let dry_run = selection.dry_run;
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return nothing(&selection);
        };
        let working = self.select_working(call, scope, &selection).await?;
        let _turn = self.wait_for(&call.scope).await;
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        tx.lock_scope(scope).await?;
        let durable = match &selection.durable {
            Some(selector) => select(&mut tx, scope, selector).await?,
            None => Vec::new(),
        };
        if working.is_empty() && durable.is_empty() {
            return nothing(&selection);
        }
        let ids: Vec<Uuid> = durable.iter().map(|memory| memory.id).collect();
        let retracted = derived(&mut tx, scope, &ids).await?;
        let of_tier = |tier| durable.iter().filter(|memory| memory.tier == tier).count() as u64;
        let mut answer = ForgetAnswer {
            forgotten: TierCounts {
                working: working.len() as u64,
                episodic: of_tier(Tier::Episodic),
                semantic: of_tier(Tier::Semantic),
            },
            ids: working.iter().map(|memory| memory.id).chain(ids.iter().copied()).take(NAMED).collect(),
            retracted,
            dry_run,
        };
        if dry_run {
            self.journal.audit(call.audit("ok", selection.id, detail(&answer, selection.erase)));
            return Ok(answer);
        }
        let how = Forgetting { by: &call.subject, at: call.at, erase: selection.erase };
        if !answer.retracted.is_empty() {
            history::reactivate_originals(&mut tx, scope, &answer.retracted, &ids).await?;
        }
        let gone: Vec<Uuid> = ids.iter().chain(&answer.retracted).copied().collect();
        if !gone.is_empty() {
            delete(&mut tx, scope, &gone, how).await?;
        }
        // Working memories go before the commit: when they cannot, nothing is forgotten and the caller is told.
        if !working.is_empty() {
            let working: Vec<Uuid> = working.iter().map(|memory| memory.id).collect();
            answer.forgotten.working = self.working.remove(&mut tx, scope, &working).await?.len() as u64;
        }
        audit::append(tx.conn(), &[call.audit("ok", selection.id, detail(&answer, selection.erase))]).await?;
        tx.commit().await?;
        Ok(answer)
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
fn nothing(selection: &Selection) -> Result<ForgetAnswer> {
    if selection.id.is_some() {
        return Err(Error::NotFound);
    }
    Ok(ForgetAnswer {
        forgotten: TierCounts::default(),
        ids: Vec::new(),
        retracted: Vec::new(),
        dry_run: selection.dry_run,
    })
}

fn detail(answer: &ForgetAnswer, erase: bool) -> serde_json::Value {
    json!({
        "forgotten": answer.forgotten,
        "ids": answer.ids,
        "retracted": answer.retracted,
        "dry_run": answer.dry_run,
        "erase": erase,
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
