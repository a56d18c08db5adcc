//! What consolidation and decay read and write.

use chrono::{DateTime, Utc};
use pgvector::Vector;
use uuid::Uuid;

use super::space::Space;
use super::{ScopeId, Tx};
use crate::error::Result;

/// An active episodic memory with its vector.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Its id.
    pub id: Uuid,
    /// Its text.
    pub content: String,
    /// Its labels.
    pub tags: Vec<String>,
    /// 0 to 1.
    pub confidence: f32,
    /// How often it was stated.
    pub support: i32,
    /// When it happened, or was stored.
    pub happened_at: DateTime<Utc>,
    /// Its vector in the space.
    pub vector: Vec<f32>,
}

/// The scope's oldest active episodic memories that have a vector and that no reviewer keeps apart.
///
/// # Errors
/// When the connection is lost.
pub async fn episodes(tx: &mut Tx, scope: ScopeId, space: Space, limit: i64) -> Result<Vec<Episode>> {
    let rows = sqlx::query!(
        r#"select m.id, m.content, m.tags, m.confidence, m.support,
                  coalesce(m.occurred_at, m.created_at) as "happened_at!", e.embedding as "embedding: Vector"
             from memories m join memory_embedding e on e.scope_id = m.scope_id and e.memory_id = m.id
            where m.scope_id = $1 and m.tier = 'episodic' and m.valid_to is null and not m.kept_apart
              and e.space_id = $2
            order by m.id limit $3"#,
        scope.0,
        space.id,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Episode {
            id: row.id,
            content: row.content,
            tags: row.tags,
            confidence: row.confidence,
            support: row.support,
            happened_at: row.happened_at,
            vector: row.embedding.into(),
        })
        .collect())
}

/// Notes what a fact was made from.
///
/// # Errors
/// When the connection is lost.
pub async fn add_origins(tx: &mut Tx, scope: ScopeId, fact: Uuid, origins: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "insert into memory_origin (scope_id, memory_id, origin_id) select $1, $2, unnest($3::uuid[])",
        scope.0,
        fact,
        origins
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
