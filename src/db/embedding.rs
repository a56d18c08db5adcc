//! Memories that wait for their vector.

use pgvector::Vector;
use uuid::Uuid;

use super::space::Space;
use super::{Db, ScopeId, Tx};
use crate::error::Result;

/// A memory without a vector in the space.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Where it lives.
    pub scope: ScopeId,
    /// Its id.
    pub id: Uuid,
    /// The text to embed.
    pub content: String,
}

/// Memories without a vector in the space, oldest first.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn pending(db: &Db, space: Space, limit: i64) -> Result<Vec<Pending>> {
    let mut tx = Tx::all_scopes(db).await?;
    let rows = sqlx::query!(
        "select m.scope_id, m.id, m.content from memories m
          where not exists (select from memory_embedding e
                             where e.scope_id = m.scope_id and e.memory_id = m.id and e.space_id = $1)
          order by m.id limit $2",
        space.id,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Pending { scope: ScopeId(row.scope_id), id: row.id, content: row.content })
        .collect())
}

/// Whether a memory waits for its vector in the space.
///
/// # Errors
/// When the connection is lost.
pub async fn is_pending(tx: &mut Tx, space: Space, scope: ScopeId, id: Uuid) -> Result<bool> {
    let ready = sqlx::query_scalar!(
        r#"select exists (select from memory_embedding
                           where scope_id = $1 and memory_id = $2 and space_id = $3) as "ready!""#,
        scope.0,
        id,
        space.id
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(!ready)
}

/// Adds the vector of a memory, unless it was forgotten or embedded meanwhile.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn fill(db: &Db, space: Space, scope: ScopeId, id: Uuid, vector: &[f32]) -> Result<()> {
    let mut tx = Tx::for_scope(db, scope).await?;
    sqlx::query!(
        "insert into memory_embedding (scope_id, memory_id, space_id, embedding)
         select scope_id, id, $3, $4 from memories where scope_id = $1 and id = $2 for key share
             on conflict do nothing",
        scope.0,
        id,
        space.id,
        Vector::from(vector.to_vec()) as _
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await
}
