//! Many memories of a running memser at once.

use memser::clock::Clock;
use memser::provider::embed::Embedder;

use super::TestApp;
use super::rows::{self, Row};

/// Stores `contents` in a scope, with their vectors by feature hashing in the active space.
pub async fn store(app: &TestApp, scope: &str, contents: &[String], dimensions: usize) {
    let vectors = Embedder::hash(dimensions).embed_each(contents).await;
    let clock = Clock::Fixed(app.clock.clone());
    let rows = contents.iter().zip(vectors).map(|(content, vector)| Row {
        id: clock.new_id(),
        content: content.clone(),
        tags: Vec::new(),
        source: None,
        seq: 1,
        created_at: super::start_of_time(),
        occurred_at: None,
        valid_to: None,
        vector: Some(vector.unwrap()),
    });
    store_rows(app, &[(scope, rows.collect())]).await;
}

/// Writes rows into scopes and lets Postgres count them.
pub async fn store_rows(app: &TestApp, scopes: &[(&str, Vec<Row>)]) {
    let mut connection = app.database.connect().await;
    rows::write(&mut connection, scopes).await;
    sqlx::query("vacuum analyze").execute(&mut connection).await.unwrap();
}
