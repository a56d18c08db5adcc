//! `list_memories`: what a scope holds, page by page.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::{Call, Engine, cursor, view, view_of};
use crate::api::{ListAnswer, ListArgs, ListOrder, ListStatus, MemoryView};
use crate::auth::Caller;
use crate::db::list::{Page, page};
use crate::db::memory::fetch;
use crate::db::{ScopeId, Tx};
use crate::error::{Error, Result};
use crate::model::{Action, Memory, TagsMatch, Tier, check_label, check_tags, check_time, parse_id};

/// Where a page ended.
#[derive(Serialize, Deserialize)]
struct Cursor {
    at: DateTime<Utc>,
    id: Uuid,
    order: ListOrder,
}

/// A checked request.
struct Listing {
    page: Page,
    /// Working memories too, or alone.
    working: bool,
    durable: bool,
    limit: usize,
}

impl Engine {
    /// Lists memories by time of storing.
    ///
    /// # Errors
    /// `scope_not_granted`, `action_not_granted`; `invalid_argument` with the field; `unavailable`.
    pub async fn list(&self, caller: &Caller, args: ListArgs) -> Result<ListAnswer> {
        let call =
            self.authorise(caller, "list_memories", Action::Read, args.scope.as_deref(), args.actor.clone())?;
        let result = async { self.list_page(&call, &check_list(args)?).await }.await;
        match &result {
            Ok(answer) => {
                self.journal.audit(call.audit("ok", None, json!({ "returned": answer.memories.len() })));
            }
            Err(_) => self.audit_failure(&call, &result),
        }
        result
    }

    async fn list_page(&self, call: &Call, listing: &Listing) -> Result<ListAnswer> {
        let Some(scope) = self.scope_id(&call.scope).await? else {
            return if listing.page.id.is_some() {
                Err(Error::NotFound)
            } else {
                Ok(ListAnswer { memories: Vec::new(), next_cursor: None })
            };
        };
        let mut memories = Vec::new();
        if listing.durable {
            memories = self.list_durable(scope, listing).await?;
        }
        if listing.working && memories.is_empty() {
            let mut working = self.working.list(scope, call.at).await?;
            working.retain(|memory| is_listed(memory, &listing.page));
            working.sort_unstable_by_key(|memory| (memory.created_at, memory.id));
            if !listing.page.ascending {
                working.reverse();
            }
            working.truncate(listing.limit + 1);
            memories = working.into_iter().map(view_of).collect();
        }
        if memories.is_empty() && listing.page.id.is_some() {
            return Err(Error::NotFound);
        }
        let order = if listing.page.ascending { ListOrder::Oldest } else { ListOrder::Newest };
        let next_cursor = cursor::cut(&mut memories, listing.limit, |last| Cursor {
            at: last.created_at,
            id: last.id,
            order,
        })?;
        Ok(ListAnswer { memories, next_cursor })
    }

    /// One memory more than the page holds, to know whether there is a next one.
    async fn list_durable(&self, scope: ScopeId, listing: &Listing) -> Result<Vec<MemoryView>> {
        let mut tx = Tx::for_scope(&self.db, scope).await?;
        let ids = page(&mut tx, scope, self.models.active(), &listing.page).await?;
        let mut stored = fetch(&mut tx, scope, &ids).await?;
        tx.commit().await?;
        stored.sort_unstable_by_key(|stored| (stored.memory.created_at, stored.memory.id));
        if !listing.page.ascending {
            stored.reverse();
        }
        Ok(stored.into_iter().map(view).collect())
    }
}

/// The conditions of a page for working memories, which are always active.
fn is_listed(memory: &Memory, page: &Page) -> bool {
    let tags = memory.carries(&page.tags, page.any_tag);
    let key = (memory.created_at, memory.id);
    tags && page.status == ListStatus::Active
        && page.id.is_none_or(|id| memory.id == id)
        && page.source.as_ref().is_none_or(|source| memory.source.as_ref() == Some(source))
        && page.after.is_none_or(|after| if page.ascending { key > after } else { key < after })
}

fn decode(text: &str, order: ListOrder) -> Result<(DateTime<Utc>, Uuid)> {
    let ended: Cursor = cursor::decode(text)?;
    let at = check_time("cursor", ended.at).map_err(|_| cursor::foreign())?;
    if ended.order == order { Ok((at, ended.id)) } else { Err(cursor::foreign()) }
}

fn check_list(args: ListArgs) -> Result<Listing> {
    let limit = cursor::limit(args.limit)?;
    let order = args.order.unwrap_or_default();
    let id = args.memory_id.as_deref().map(|id| parse_id("memory_id", id)).transpose()?;
    Ok(Listing {
        working: args.tier == Some(Tier::Working) || (id.is_some() && args.tier.is_none()),
        durable: args.tier != Some(Tier::Working),
        limit,
        page: Page {
            id,
            tier: args.tier.map(Tier::as_str),
            tags: check_tags(args.tags)?,
            any_tag: args.tags_match == Some(TagsMatch::Any),
            source: check_label("source", args.source)?,
            status: args.status.unwrap_or_default(),
            ascending: order == ListOrder::Oldest,
            after: args.cursor.as_deref().map(|cursor| decode(cursor, order)).transpose()?,
            limit: cursor::and_one(limit),
        },
    })
}
