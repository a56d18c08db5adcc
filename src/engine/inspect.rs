//! What a reviewer, an administrator or a program looks at: open conflicts, scopes, the audit log.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::{Call, Engine, cursor, view};
use crate::api::{
    AuditAnswer, AuditArgs, ConflictsAnswer, ConflictsArgs, ListArgs, MemoryView, OpenConflict, ScopeView,
    ScopesAnswer, ScopesArgs,
};
use crate::auth::Caller;
use crate::db::audit::{self, AuditRow};
use crate::db::memory::fetch;
use crate::db::{Tx, conflict, scope};
use crate::error::Result;
use crate::model::{Action, Scope, check_label, check_time, parse_id};

/// Memories of a page of resources.
const RESOURCES_PAGE: u32 = 50;

/// A page of resources: all of one scope.
#[derive(Clone, Debug, Default)]
pub struct ResourcesPage {
    /// The scope.
    pub scope: String,
    /// The memories.
    pub memories: Vec<MemoryView>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// All scopes that the caller may read: every grant includes reading.
fn readable(caller: &Caller) -> scope::Page {
    let mut page = scope::Page::default();
    for grant in &caller.grants {
        match grant.exact_scope() {
            Some(scope) => page.exact.push(scope.as_str().to_owned()),
            None => page.prefixes.push(grant.prefix().to_owned()),
        }
    }
    page
}

/// The name of the scope that a page ended with.
fn after(cursor: &str) -> Result<String> {
    let name: String = cursor::decode(cursor)?;
    Scope::parse(&name).map(|scope| scope.as_str().to_owned()).map_err(|_| cursor::foreign())
}

/// The time and the number of the audit row that a page ended with.
fn beyond(cursor: &str) -> Result<(DateTime<Utc>, i64)> {
    let (at, number) = cursor::decode(cursor)?;
    check_time("cursor", at).map(|at| (at, number)).map_err(|_| cursor::foreign())
}

impl Engine {
    /// Lists a scope's open conflicts, oldest first.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` with the field; `unavailable`.
    pub async fn conflicts(&self, caller: &Caller, args: ConflictsArgs) -> Result<ConflictsAnswer> {
        let call = self.authorise(
            caller,
            "list_conflicts",
            Action::Read,
            args.scope.as_deref(),
            args.actor.clone(),
        )?;
        let result = self.conflicts_page(&call, &args).await;
        match &result {
            Ok(answer) => {
                self.journal.audit(call.audit("ok", None, json!({ "returned": answer.conflicts.len() })));
            }
            Err(_) => self.audit_failure(&call, &result),
        }
        result
    }

    async fn conflicts_page(&self, call: &Call, args: &ConflictsArgs) -> Result<ConflictsAnswer> {
        let limit = cursor::limit(args.limit)?;
        let beyond = args.cursor.as_deref().map(cursor::decode::<Uuid>).transpose()?;
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return Ok(ConflictsAnswer::default());
        };
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let mut pairs = conflict::page(&mut tx, scope, beyond, cursor::and_one(limit)).await?;
        let next_cursor = cursor::cut(&mut pairs, limit, |pair| pair.id)?;
        let ids: Vec<Uuid> = pairs.iter().flat_map(|pair| [pair.new, pair.old]).collect();
        let memories = fetch(&mut tx, scope, &ids).await?;
        tx.commit().await?;
        let memories: HashMap<Uuid, _> =
            memories.into_iter().map(|stored| (stored.memory.id, view(stored))).collect();
        let conflicts = pairs.iter().filter_map(|pair| {
            Some(OpenConflict {
                new: memories.get(&pair.new)?.clone(),
                old: memories.get(&pair.old)?.clone(),
                similarity: pair.similarity,
                opened_at: pair.opened_at,
            })
        });
        Ok(ConflictsAnswer { conflicts: conflicts.collect(), next_cursor })
    }

    /// Lists the scopes that the caller may read, by name, as far as something was stored in them.
    ///
    /// # Errors
    /// `invalid_argument` with the field; `unavailable`.
    pub async fn scopes(&self, caller: &Caller, args: ScopesArgs) -> Result<ScopesAnswer> {
        let result = self.scopes_page(caller, &args).await;
        let (outcome, returned) = match &result {
            Ok(answer) => ("ok", answer.scopes.len()),
            Err(error) => (error.code(), 0),
        };
        let actor = check_label("actor", args.actor).unwrap_or_default();
        self.audit_unscoped(caller, "list_scopes", actor, outcome, returned);
        result
    }

    async fn scopes_page(&self, caller: &Caller, args: &ScopesArgs) -> Result<ScopesAnswer> {
        check_label("actor", args.actor.clone())?;
        let limit = cursor::limit(args.limit)?;
        let page = scope::Page {
            prefix: check_label("prefix", args.prefix.clone())?.unwrap_or_default(),
            after: args.cursor.as_deref().map(after).transpose()?.unwrap_or_default(),
            limit: cursor::and_one(limit),
            ..readable(caller)
        };
        let mut held = scope::page(&self.db, &page).await?;
        let next_cursor = cursor::cut(&mut held, limit, |held| held.name.clone())?;
        let scopes = held.into_iter().filter_map(|held| {
            let granted = caller.granted(&Scope::parse(&held.name).ok()?)?;
            Some(ScopeView {
                scope: held.name,
                granted: granted.to_string(),
                memories: held.memories,
                bytes: held.bytes,
                created_at: held.created_at,
            })
        });
        Ok(ScopesAnswer { scopes: scopes.collect(), next_cursor })
    }

    /// Lists the memories that the caller may read as resources: scope by scope, newest first in each. A page is of one
    /// scope, and can be empty.
    ///
    /// # Errors
    /// `invalid_argument` for a foreign cursor; `unavailable`.
    pub async fn resources(&self, caller: &Caller, cursor: Option<&str>) -> Result<ResourcesPage> {
        let (scope, inner) = match cursor {
            Some(cursor) => cursor::decode::<(String, Option<String>)>(cursor)?,
            None => match self.next_scope(caller, "").await? {
                Some(first) => (first, None),
                None => return Ok(ResourcesPage::default()),
            },
        };
        let args = ListArgs {
            scope: Some(scope.clone()),
            limit: Some(RESOURCES_PAGE),
            cursor: inner,
            ..ListArgs::default()
        };
        let listed = self.list(caller, args).await?;
        let next = match listed.next_cursor {
            Some(inner) => Some((scope.clone(), Some(inner))),
            None => self.next_scope(caller, &scope).await?.map(|next| (next, None)),
        };
        let next_cursor = next.map(|next| cursor::encode(&next)).transpose()?;
        Ok(ResourcesPage { scope, memories: listed.memories, next_cursor })
    }

    /// The scopes that hold something and that the caller may read, by name; at most `limit`.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn readable_scopes(&self, caller: &Caller, limit: u32) -> Result<Vec<String>> {
        let page = scope::Page { limit: limit.into(), ..readable(caller) };
        Ok(scope::page(&self.db, &page).await?.into_iter().map(|held| held.name).collect())
    }

    async fn next_scope(&self, caller: &Caller, after: &str) -> Result<Option<String>> {
        let page = scope::Page { after: after.to_owned(), limit: 1, ..readable(caller) };
        Ok(scope::page(&self.db, &page).await?.pop().map(|held| held.name))
    }

    /// Lists calls, newest first: those for one scope to its administrators, all of them to those of every scope.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` with the field; `unavailable`.
    pub async fn audit_log(&self, caller: &Caller, args: AuditArgs) -> Result<AuditAnswer> {
        const NAME: &str = "read_audit";
        let actor = check_label("actor", args.actor.clone())
            .inspect_err(|error| self.deny(caller, NAME, error.code(), args.scope.as_deref()))?;
        if args.scope.is_none() && caller.may_everywhere(Action::Admin) {
            let result = self.audit_page(None, &args).await;
            let (outcome, returned) = match &result {
                Ok(answer) => ("ok", answer.calls.len()),
                Err(error) => (error.code(), 0),
            };
            self.audit_unscoped(caller, NAME, actor, outcome, returned);
            return result;
        }
        let call = self.authorise(caller, NAME, Action::Admin, args.scope.as_deref(), actor)?;
        let result = self.audit_page(Some(&call.scope), &args).await;
        match &result {
            Ok(answer) => {
                self.journal.audit(call.audit("ok", None, json!({ "returned": answer.calls.len() })));
            }
            Err(_) => self.audit_failure(&call, &result),
        }
        result
    }

    async fn audit_page(&self, scope: Option<&Scope>, args: &AuditArgs) -> Result<AuditAnswer> {
        let limit = cursor::limit(args.limit)?;
        let page = audit::Page {
            scope: scope.map(|scope| scope.as_str().to_owned()),
            subject: check_label("subject", args.subject.clone())?,
            action: check_label("action", args.action.clone())?,
            outcome: check_label("outcome", args.outcome.clone())?,
            memory_id: args.memory_id.as_deref().map(|id| parse_id("memory_id", id)).transpose()?,
            after: args.after.map(|at| check_time("after", at)).transpose()?,
            before: args.before.map(|at| check_time("before", at)).transpose()?,
            beyond: args.cursor.as_deref().map(beyond).transpose()?,
            limit: cursor::and_one(limit),
        };
        let mut tx = match scope {
            None => Tx::all_scopes(&self.db).await?,
            Some(scope) => match self.scope_id(scope).await? {
                Some(scope) => Tx::for_scope(&self.db, scope).await?,
                // Refused calls alone were for it; the wall shows a scope's rows by its id.
                None => return Ok(AuditAnswer::default()),
            },
        };
        let mut calls = audit::page(&mut tx, &page).await?;
        tx.commit().await?;
        let next_cursor = cursor::cut(&mut calls, limit, |call| (call.at, call.id))?;
        Ok(AuditAnswer { calls, next_cursor })
    }

    /// Notes a call that was for no single scope.
    pub(super) fn audit_unscoped(
        &self,
        caller: &Caller,
        action: &'static str,
        actor: Option<String>,
        outcome: &'static str,
        returned: usize,
    ) {
        self.journal.audit(AuditRow {
            at: self.clock.now(),
            request_id: caller.request_id.clone(),
            subject: caller.subject.clone(),
            actor,
            action,
            scope: None,
            memory_id: None,
            outcome,
            detail: json!({ "returned": returned }),
        });
    }
}
