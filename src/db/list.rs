//! Pages of memories by time of storing.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::api::ListStatus;
use crate::error::Result;

/// Which durable memories to list, and from where on.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only this one.
    pub id: Option<Uuid>,
    /// Only this tier.
    pub tier: Option<&'static str>,
    /// Only with these tags.
    pub tags: Vec<String>,
    /// One tag is enough.
    pub any_tag: bool,
    /// Only of this source.
    pub source: Option<String>,
    /// Which part.
    pub status: ListStatus,
    /// Oldest first.
    pub ascending: bool,
    /// The last row of the page before.
    pub after: Option<(DateTime<Utc>, Uuid)>,
    /// At most so many.
    pub limit: i64,
}

/// The ids of a page, in order. Rows are ordered by what never changes, so that pages neither repeat nor skip a row
/// while others are stored.
///
/// # Errors
/// When the connection is lost.
pub async fn page(tx: &mut Tx, scope: ScopeId, space_id: i32, page: &Page) -> Result<Vec<Uuid>> {
    let (status, after) = (page.status, page.after.unzip());
    let ids = sqlx::query_scalar!(
        "select m.id from memories m
          where m.scope_id = $1
            and ($2::uuid is null or m.id = $2)
            and ($3::text is null or m.tier = $3)
            and (cardinality($4::text[]) = 0 or case when $5 then m.tags && $4 else m.tags @> $4 end)
            and ($6::text is null or m.source = $6)
            and case $7 when 'active' then m.valid_to is null
                        when 'superseded' then m.valid_to is not null
                        when 'conflicted' then m.valid_to is null and exists (
                             select from conflicts c
                               join memories other on other.scope_id = $1 and other.id in (c.new_id, c.old_id)
                                                  and other.id <> m.id and other.valid_to is null
                              where c.scope_id = $1 and c.status = 'open' and (c.new_id = m.id or c.old_id = m.id))
                        when 'pending' then m.valid_to is null and not exists (
                             select from memory_embedding e
                              where e.scope_id = $1 and e.memory_id = m.id and e.space_id = $8)
                        else true end
            and ($9::timestamptz is null
                 or case when $11 then (m.created_at, m.id) > ($9, $10) else (m.created_at, m.id) < ($9, $10) end)
          order by case when $11 then m.created_at end, case when $11 then m.id end,
                   m.created_at desc, m.id desc
          limit $12",
        scope.0,
        page.id,
        page.tier,
        &page.tags,
        page.any_tag,
        page.source,
        status_name(status, page.id.is_some()),
        space_id,
        after.0,
        after.1,
        page.ascending,
        page.limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids)
}

/// A memory asked for by its id is shown whatever its state, unless a state was asked for as well.
const fn status_name(status: ListStatus, by_id: bool) -> &'static str {
    match status {
        ListStatus::Active if by_id => "any",
        ListStatus::Active => "active",
        ListStatus::Superseded => "superseded",
        ListStatus::Conflicted => "conflicted",
        ListStatus::Pending => "pending",
    }
}
