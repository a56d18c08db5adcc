//! Many memories at once, written as the engine would have written them one by one.

use chrono::{DateTime, Utc};
use memser::text;
use pgvector::Vector;
use serde_json::{Value, json};
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// Rows of one statement.
const CHUNK: usize = 5_000;

/// A memory to write: episodic, without an actor or metadata.
pub struct Row {
    pub id: Uuid,
    pub content: String,
    pub tags: Vec<String>,
    pub source: Option<String>,
    /// Its place within the source.
    pub seq: i64,
    pub created_at: DateTime<Utc>,
    pub occurred_at: Option<DateTime<Utc>>,
    /// When a correction ended it, where one did.
    pub valid_to: Option<DateTime<Utc>>,
    /// In the active space; pending without one.
    pub vector: Option<Vec<f32>>,
}

/// Writes memories into scopes, which are made where they do not exist, and counts them. The indexes of vectors are made
/// anew afterwards: that is several times quicker than adding to them.
pub async fn write(connection: &mut PgConnection, scopes: &[(&str, Vec<Row>)]) {
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "select indexname, indexdef from pg_indexes where indexname like 'memory\\_embedding\\_hnsw%'",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    for (name, _) in &indexes {
        run(connection, format!("drop index {name}")).await;
    }
    for (scope, rows) in scopes {
        let scope: i64 = sqlx::query_scalar(
            "insert into scopes as known (name, created_at) values ($1, now())
                 on conflict (name) do update set name = known.name returning scope_id",
        )
        .bind(*scope)
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        for chunk in rows.chunks(CHUNK) {
            write_chunk(connection, scope, chunk).await;
        }
    }
    for (_, definition) in indexes {
        run(connection, definition).await;
    }
}

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.unwrap();
}

async fn write_chunk(connection: &mut PgConnection, scope: i64, rows: &[Row]) {
    let (mut ids, mut terms, mut frequencies, mut lengths) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut memories: Vec<Value> = Vec::with_capacity(rows.len());
    for row in rows {
        let analysis = text::analyse(&row.content);
        memories.push(json!({
            "id": row.id, "content": row.content, "hash": hex::encode(text::content_hash(&row.content)),
            "tags": row.tags, "source": row.source, "seq": row.seq, "created_at": row.created_at,
            "occurred_at": row.occurred_at, "valid_to": row.valid_to, "tokens": analysis.tokens,
        }));
        for (term, frequency) in analysis.terms {
            ids.push(row.id);
            terms.push(term);
            frequencies.push(i32::try_from(frequency).unwrap());
            lengths.push(i32::try_from(analysis.tokens).unwrap());
        }
    }
    sqlx::query(
        "with memory as (
             insert into memories (scope_id, id, tier, content, content_hash, tags, source, confidence, created_at,
                                   occurred_at, valid_from, valid_to, superseded_reason, seq, token_count)
             select $1, id, 'episodic', content, decode(hash, 'hex'), tags, source, 0.8, created_at, occurred_at,
                    coalesce(occurred_at, created_at), valid_to, case when valid_to is not null then 'replaced' end,
                    seq, tokens
               from jsonb_to_recordset($2) as m (id uuid, content text, hash text, tags text[], source text, seq bigint,
                                                 created_at timestamptz, occurred_at timestamptz,
                                                 valid_to timestamptz, tokens integer)
             returning token_count, valid_to)
         update scopes s set memories = s.memories + added.memories, tokens = s.tokens + added.tokens,
                             unconsolidated = s.unconsolidated + added.active
           from (select count(*) as memories, sum(token_count) as tokens,
                        count(*) filter (where valid_to is null) as active from memory) as added
          where scope_id = $1",
    )
    .bind(scope)
    .bind(Json(memories))
    .execute(&mut *connection)
    .await
    .unwrap();
    sqlx::query(
        "insert into memory_term (scope_id, term, memory_id, tf, len)
         select $1, term, id, tf, len
           from unnest($2::uuid[], $3::text[], $4::int[], $5::int[]) as posting (id, term, tf, len)",
    )
    .bind(scope)
    .bind(&ids)
    .bind(&terms)
    .bind(&frequencies)
    .bind(&lengths)
    .execute(&mut *connection)
    .await
    .unwrap();
    let (embedded, vectors): (Vec<Uuid>, Vec<Vector>) =
        rows.iter().filter_map(|row| row.vector.clone().map(|vector| (row.id, Vector::from(vector)))).unzip();
    sqlx::query(
        "insert into memory_embedding (scope_id, memory_id, space_id, embedding)
         select $1, id, (select space_id from embedding_spaces where state = 'active'), vector
           from unnest($2::uuid[], $3::vector[]) as embedded (id, vector)",
    )
    .bind(scope)
    .bind(&embedded)
    .bind(&vectors)
    .execute(&mut *connection)
    .await
    .unwrap();
}
