//! Pairs of memories that contradict each other, and what was decided about them.
//!
//! A pair is open while nobody has resolved it and both memories are active: one that is superseded meanwhile settles
//! it, and one that is restored brings it back.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{ScopeId, Tx};
use crate::error::Result;

/// An open pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Its id.
    pub id: Uuid,
    /// The memory that came later.
    pub new: Uuid,
    /// The memory that it contradicts.
    pub old: Uuid,
}

/// A pair that still counts: it waits for a reviewer, or both memories are to stay.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The memories.
    pub pair: Pair,
    /// Null where it was never measured.
    pub similarity: Option<f32>,
    /// Who decided that both stay; nobody yet where it waits.
    pub kept_by: Option<String>,
}

/// Lets pairs stand: those that nobody keeps wait for a reviewer, also where they were resolved before; the others are to
/// stay, unless they are known. A pair that is named twice counts once.
///
/// # Errors
/// When the connection is lost.
pub async fn put(tx: &mut Tx, scope: ScopeId, pairs: &[Standing], at: DateTime<Utc>) -> Result<()> {
    let (kept, open): (Vec<&Standing>, Vec<&Standing>) =
        pairs.iter().partition(|pair| pair.kept_by.is_some());
    if !open.is_empty() {
        let Columns { ids, new, old, similarities, .. } = Columns::of(&open);
        sqlx::query!(
            "insert into conflicts (scope_id, conflict_id, new_id, old_id, similarity, created_at)
             select distinct on (p.new_id, p.old_id) $1, p.id, p.new_id, p.old_id, p.similarity, $6
               from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::real[]) as p (id, new_id, old_id, similarity)
              order by p.new_id, p.old_id, p.id
                 on conflict (scope_id, new_id, old_id) do update
                    set status = 'open', resolution = null, resolved_by = null, resolved_at = null",
            scope.0,
            &ids,
            &new,
            &old,
            &similarities as &[Option<f32>],
            at
        )
        .execute(tx.conn())
        .await?;
        tx.changed(scope, &new);
        tx.changed(scope, &old);
    }
    if !kept.is_empty() {
        let Columns { ids, new, old, similarities, keepers } = Columns::of(&kept);
        sqlx::query!(
            "insert into conflicts (scope_id, conflict_id, new_id, old_id, similarity, created_at,
                                    status, resolution, resolved_by, resolved_at)
             select $1, p.id, p.new_id, p.old_id, p.similarity, $7, 'resolved', 'keep_both', p.kept_by, $7
               from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::real[], $6::text[])
                    as p (id, new_id, old_id, similarity, kept_by)
                 on conflict (scope_id, new_id, old_id) do nothing",
            scope.0,
            &ids,
            &new,
            &old,
            &similarities as &[Option<f32>],
            &keepers as &[Option<&str>],
            at
        )
        .execute(tx.conn())
        .await?;
    }
    Ok(())
}

/// What pairs have of each column.
struct Columns<'a> {
    ids: Vec<Uuid>,
    new: Vec<Uuid>,
    old: Vec<Uuid>,
    similarities: Vec<Option<f32>>,
    keepers: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(pairs: &[&'a Standing]) -> Self {
        Self {
            ids: pairs.iter().map(|standing| standing.pair.id).collect(),
            new: pairs.iter().map(|standing| standing.pair.new).collect(),
            old: pairs.iter().map(|standing| standing.pair.old).collect(),
            similarities: pairs.iter().map(|standing| standing.similarity).collect(),
            keepers: pairs.iter().map(|standing| standing.kept_by.as_deref()).collect(),
        }
    }
}

/// The pairs that still count of one of these memories and another one, oldest first.
///
/// # Errors
/// When the connection is lost.
pub async fn standing(tx: &mut Tx, scope: ScopeId, ids: &[Uuid]) -> Result<Vec<Standing>> {
    let rows = sqlx::query!(
        "select conflict_id, new_id, old_id, similarity, resolved_by from conflicts
          where scope_id = $1 and (new_id = any($2) or old_id = any($2))
            and not (new_id = any($2) and old_id = any($2))
            and (status = 'open' or resolution = 'keep_both')
          order by conflict_id",
        scope.0,
        ids
    )
    .fetch_all(tx.conn())
    .await?;
    let standing = rows.into_iter().map(|row| Standing {
        pair: Pair { id: row.conflict_id, new: row.new_id, old: row.old_id },
        similarity: row.similarity,
        kept_by: row.resolved_by,
    });
    Ok(standing.collect())
}

/// The open pairs of a memory, oldest first.
///
/// # Errors
/// When the connection is lost.
pub async fn open_pairs(tx: &mut Tx, scope: ScopeId, memory: Uuid) -> Result<Vec<Pair>> {
    Ok(sqlx::query_as!(
        Pair,
        r#"select c.conflict_id as id, c.new_id as "new", c.old_id as old
             from conflicts c
             join memories n on n.scope_id = c.scope_id and n.id = c.new_id and n.valid_to is null
             join memories o on o.scope_id = c.scope_id and o.id = c.old_id and o.valid_to is null
            where c.scope_id = $1 and c.status = 'open' and (c.new_id = $2 or c.old_id = $2)
            order by c.conflict_id"#,
        scope.0,
        memory
    )
    .fetch_all(tx.conn())
    .await?)
}

/// An open pair with what else is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Its id.
    pub id: Uuid,
    /// The memory that came later.
    pub new: Uuid,
    /// The memory that it contradicts.
    pub old: Uuid,
    /// Null where it was never measured.
    pub similarity: Option<f32>,
    /// Since when it waits.
    pub opened_at: DateTime<Utc>,
}

/// A page of a scope's open pairs, oldest first, beyond the last one of the page before.
///
/// # Errors
/// When the connection is lost.
pub async fn page(tx: &mut Tx, scope: ScopeId, beyond: Option<Uuid>, limit: i64) -> Result<Vec<Waiting>> {
    Ok(sqlx::query_as!(
        Waiting,
        r#"select c.conflict_id as id, c.new_id as "new", c.old_id as "old", c.similarity, c.created_at as opened_at
             from conflicts c
             join memories n on n.scope_id = c.scope_id and n.id = c.new_id and n.valid_to is null
             join memories o on o.scope_id = c.scope_id and o.id = c.old_id and o.valid_to is null
            where c.scope_id = $1 and c.status = 'open' and ($2::uuid is null or c.conflict_id > $2)
            order by c.conflict_id limit $3"#,
        scope.0,
        beyond,
        limit
    )
    .fetch_all(tx.conn())
    .await?)
}

/// How a reviewer resolved a pair.
#[derive(Clone, Copy, Debug)]
pub struct Resolved<'a> {
    /// What was decided.
    pub resolution: &'a str,
    /// The token's name.
    pub by: &'a str,
    /// Now.
    pub at: DateTime<Utc>,
}

/// Closes pairs, with which both of each are changed.
///
/// # Errors
/// When the connection is lost.
pub async fn resolve(tx: &mut Tx, scope: ScopeId, pairs: &[Uuid], how: Resolved<'_>) -> Result<()> {
    let closed = sqlx::query!(
        "update conflicts set status = 'resolved', resolution = $3, resolved_by = $4, resolved_at = $5
          where scope_id = $1 and conflict_id = any($2)
      returning new_id, old_id",
        scope.0,
        pairs,
        how.resolution,
        how.by,
        how.at
    )
    .fetch_all(tx.conn())
    .await?;
    for pair in closed {
        tx.changed(scope, &[pair.new_id, pair.old_id]);
    }
    Ok(())
}
