//! What decay reads and writes.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::error::Result;

/// A memory that may decay.
#[derive(Clone, Copy, Debug)]
pub struct Untouched {
    /// Where it is in the order of the sweep.
    pub place: Place,
    /// 0 to 1.
    pub confidence: f32,
    /// When it was last stored, stated again or recalled.
    pub touched_at: DateTime<Utc>,
    /// Until when it has decayed already.
    pub decayed_at: Option<DateTime<Utc>>,
}

/// A place in the order of scope, age and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The scope.
    pub scope: ScopeId,
    /// When the memory was stored.
    pub created_at: DateTime<Utc>,
    /// Its id.
    pub id: Uuid,
}

/// Which memories may decay.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// Those neither stored nor stated again nor recalled since then.
    pub touched_before: DateTime<Utc>,
    /// Of these, those that did not decay since then.
    pub decayed_before: DateTime<Utc>,
    /// Of these, those that are surer.
    pub floor: f32,
    /// Of these, those without any of these tags.
    pub protected: &'a [String],
}

/// Locks the next memories that may decay. What somebody else has locked is left for the next sweep: it is being touched.
///
/// Each scope's memories are read by age from an index, so that those that are too fresh cost nothing.
///
/// # Errors
/// When the connection is lost.
pub async fn lock(tx: &mut Tx, which: Which<'_>, after: Option<Place>, limit: i64) -> Result<Vec<Untouched>> {
    let after = after.unwrap_or(Place {
        scope: ScopeId(0),
        created_at: DateTime::<Utc>::UNIX_EPOCH,
        id: Uuid::nil(),
    });
    let rows = sqlx::query!(
        r#"select m.scope_id, m.id, m.confidence, m.created_at, m.decayed_at, m.touched_at as "touched_at!"
             from scopes s
            cross join lateral (
                  select c.scope_id, c.id, c.confidence, c.created_at, c.decayed_at,
                         greatest(c.created_at, c.restated_at,
                                  (select a.last_accessed_at from memory_access a
                                    where a.scope_id = c.scope_id and a.memory_id = c.id)) as touched_at
                    from memories c
                   where c.scope_id = s.scope_id and c.created_at < $1
                     and (c.created_at, c.id) > (case when s.scope_id = $5 then $6 else '-infinity'::timestamptz end,
                                                 case when s.scope_id = $5 then $7
                                                      else '00000000-0000-0000-0000-000000000000'::uuid end)
                     and c.tier = 'episodic' and c.valid_to is null and c.confidence > $3
                     and (c.decayed_at is null or c.decayed_at < $2)
                     and (c.restated_at is null or c.restated_at < $1)
                     and not c.tags && $4
                     and not exists (select from memory_access a
                                      where a.scope_id = c.scope_id and a.memory_id = c.id
                                        and a.last_accessed_at >= $1)
                   order by c.created_at, c.id limit $8
                     for no key update of c skip locked) m
            where s.scope_id >= $5
            order by s.scope_id, m.created_at, m.id limit $8"#,
        which.touched_before,
        which.decayed_before,
        which.floor,
        which.protected,
        after.scope.0,
        after.created_at,
        after.id,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Untouched {
            place: Place { scope: ScopeId(row.scope_id), created_at: row.created_at, id: row.id },
            confidence: row.confidence,
            touched_at: row.touched_at,
            decayed_at: row.decayed_at,
        })
        .collect())
}

/// Writes the confidences that memories have decayed to. No time that users see is changed.
///
/// # Errors
/// When the connection is lost.
pub async fn write(tx: &mut Tx, decayed: &[(Place, f32)], now: DateTime<Utc>) -> Result<()> {
    let scopes: Vec<i64> = decayed.iter().map(|(place, _)| place.scope.0).collect();
    let ids: Vec<Uuid> = decayed.iter().map(|(place, _)| place.id).collect();
    let confidences: Vec<f32> = decayed.iter().map(|(_, confidence)| *confidence).collect();
    sqlx::query!(
        "update memories m set confidence = d.confidence, decayed_at = $4
           from unnest($1::bigint[], $2::uuid[], $3::real[]) as d (scope_id, id, confidence)
          where m.scope_id = d.scope_id and m.id = d.id",
        &scopes,
        &ids,
        &confidences,
        now
    )
    .execute(tx.conn())
    .await?;
    for (place, _) in decayed {
        tx.changed(place.scope, &[place.id]);
    }
    Ok(())
}
