//! Many memories at once, written as the engine would have written them one by one.

use memser::clock::Clock;
use memser::provider::embed::Embedder;
use memser::text;
use pgvector::Vector;
use uuid::Uuid;

use super::TestApp;

/// Stores `contents` in a scope that exists, with their vectors by feature hashing in the active space.
pub async fn store(app: &TestApp, scope: &str, contents: &[String], dimensions: usize) {
    let embedder = Embedder::hash(dimensions);
    let vectors = embedder.embed_each(contents).await.into_iter().map(Result::unwrap);
    let clock = Clock::Fixed(app.clock.clone());
    let ids: Vec<Uuid> = contents.iter().map(|_| clock.new_id()).collect();
    let hashes: Vec<Vec<u8>> = contents.iter().map(|content| text::content_hash(content).to_vec()).collect();
    let (mut rows, mut terms, mut frequencies, mut lengths) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut counts = Vec::new();
    for (id, content) in ids.iter().zip(contents) {
        let analysis = text::analyse(content);
        let length = i32::try_from(analysis.tokens).unwrap();
        counts.push(length);
        for (term, frequency) in analysis.terms {
            rows.push(*id);
            terms.push(term);
            frequencies.push(i32::try_from(frequency).unwrap());
            lengths.push(length);
        }
    }
    let mut connection = app.database.connect().await;
    sqlx::query(
        "with scope as (select scope_id from scopes where name = $1),
              memory as (
                  insert into memories (scope_id, id, tier, content, content_hash, confidence, created_at, valid_from,
                                        seq, token_count)
                  select scope_id, id, 'episodic', content, hash, 0.8, $2, $2, 1, tokens
                    from scope, unnest($3::uuid[], $4::text[], $5::bytea[], $6::int[]) as m (id, content, hash, tokens)
                  returning scope_id),
              counted as (
                  update scopes set memories = memories + $7, tokens = tokens + $8, unconsolidated = unconsolidated + $7
                   where name = $1)
         select count(*) from memory",
    )
    .bind(scope)
    .bind(super::start_of_time())
    .bind(&ids)
    .bind(contents)
    .bind(&hashes)
    .bind(&counts)
    .bind(i64::try_from(contents.len()).unwrap())
    .bind(counts.iter().map(|count| i64::from(*count)).sum::<i64>())
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query(
        "insert into memory_term (scope_id, term, memory_id, tf, len)
         select scope_id, term, id, tf, len
           from scopes, unnest($2::uuid[], $3::text[], $4::int[], $5::int[]) as p (id, term, tf, len) where name = $1",
    )
    .bind(scope)
    .bind(&rows)
    .bind(&terms)
    .bind(&frequencies)
    .bind(&lengths)
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query(
        "insert into memory_embedding (scope_id, memory_id, space_id, embedding)
         select scope_id, id, (select space_id from embedding_spaces where state = 'active'), vector
           from scopes, unnest($2::uuid[], $3::vector[]) as e (id, vector) where name = $1",
    )
    .bind(scope)
    .bind(&ids)
    .bind(vectors.map(Vector::from).collect::<Vec<_>>())
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query("analyze").execute(&mut connection).await.unwrap();
}
