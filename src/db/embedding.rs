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

/// The next memories without a vector in the space, in the order of scope and id, after the place `after`.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn pending(
    db: &Db,
    space: Space,
    after: Option<(ScopeId, Uuid)>,
    limit: i64,
) -> Result<Vec<Pending>> {
    let (scope, id) = after.unwrap_or((ScopeId(0), Uuid::nil()));
    let mut tx = Tx::all_scopes(db).await?;
    let rows = sqlx::query!(
        "select m.scope_id, m.id, m.content from memories m
          where (m.scope_id, m.id) > ($2, $3)
            and not exists (select from memory_embedding e
                             where e.scope_id = m.scope_id and e.memory_id = m.id and e.space_id = $1)
          order by m.scope_id, m.id limit $4",
        space.id,
        scope.0,
        id,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Pending { scope: ScopeId(row.scope_id), id: row.id, content: row.content })
        .collect())
}

/// How alike a vector is to those of some memories: cosine similarity, in id order; the pending ones are left out.
///
/// # Errors
/// When the connection is lost.
pub async fn likeness(
    tx: &mut Tx,
    space: Space,
    scope: ScopeId,
    ids: &[Uuid],
    vector: &[f32],
) -> Result<Vec<(Uuid, f32)>> {
    let rows = sqlx::query!(
        r#"select memory_id, (1 - (embedding <=> $4))::real as "similarity!" from memory_embedding
            where scope_id = $1 and space_id = $2 and memory_id = any($3) order by memory_id"#,
        scope.0,
        space.id,
        ids,
        Vector::from(vector.to_vec()) as _
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(|row| (row.memory_id, row.similarity)).collect())
}

/// Whether a memory waits for its vector in the space.
///
/// # Errors
/// When the connection is lost.
pub async fn is_pending(tx: &mut Tx, space_id: i32, scope: ScopeId, id: Uuid) -> Result<bool> {
    let ready = sqlx::query_scalar!(
        r#"select exists (select from memory_embedding
                           where scope_id = $1 and memory_id = $2 and space_id = $3) as "ready!""#,
        scope.0,
        id,
        space_id
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(!ready)
}

/// The vector in the space of the scope's active memory with exactly this text, where there is one.
///
/// # Errors
/// When the connection is lost.
pub async fn of_text(
    tx: &mut Tx,
    space: Space,
    scope: ScopeId,
    content_hash: &[u8; 32],
    content: &str,
) -> Result<Option<Vec<f32>>> {
    let known = sqlx::query_scalar!(
        r#"select e.embedding as "embedding: Vector"
             from memories m join memory_embedding e on e.scope_id = m.scope_id and e.memory_id = m.id
            where m.scope_id = $1 and m.content_hash = $2 and m.valid_to is null and m.content = $3
              and e.space_id = $4"#,
        scope.0,
        content_hash,
        content,
        space.id
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(known.map(Vec::from))
}

/// Adds vectors of memories, save of those that were forgotten or embedded meanwhile.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn fill(db: &Db, space: Space, vectors: Vec<(ScopeId, Uuid, Vec<f32>)>) -> Result<()> {
    let (mut scopes, mut ids, mut embeddings) = (Vec::new(), Vec::new(), Vec::new());
    for (scope, id, vector) in vectors {
        scopes.push(scope.0);
        ids.push(id);
        embeddings.push(Vector::from(vector));
    }
    let mut tx = Tx::all_scopes(db).await?;
    sqlx::query!(
        "insert into memory_embedding (scope_id, memory_id, space_id, embedding)
         select m.scope_id, m.id, $1, made.embedding
           from unnest($2::bigint[], $3::uuid[], $4::vector[]) as made (scope_id, id, embedding)
           join memories m on m.scope_id = made.scope_id and m.id = made.id
          order by m.scope_id, m.id
            for key share of m
             on conflict do nothing",
        space.id,
        &scopes,
        &ids,
        &embeddings as _
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await
}
