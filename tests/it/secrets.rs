//! Credentials stay out of everything that is kept.

use serde_json::json;

use crate::support::{TestApp, embedder};

/// A token of GitHub's form that no scanner finds in this file.
fn credential() -> String {
    format!("ghp_{}", "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zLcFi7")
}

#[tokio::test]
async fn a_credential_reaches_neither_the_embedder_nor_a_table() {
    let endpoint = embedder::endpoint(|_| vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).await;
    let app = embedder::asking(&endpoint.uri(), 8).start().await;
    let (client, secret) = (app.admin(), credential());
    let arguments = json!({
        "scope": "user:1", "content": format!("The deploy key is {secret}, Anna made it"), "tags": [secret],
        "source": secret, "actor": secret, "metadata": { "note": [secret], "password": "hunter2hunter2" },
        "idempotency_key": "once",
    });
    let outcome = client.call("store_memory", arguments.clone()).await;
    assert_eq!(outcome.structure["redacted"], json!(["github_token", "password"]));
    assert!(outcome.text.contains("looks like a credential: github_token, password"), "{}", outcome.text);
    let again = client.ok("store_memory", arguments).await;
    assert_eq!(again, outcome.structure, "the same key gives the same answer");
    let mut fleeting = json!({ "scope": "user:1", "content": format!("Use {secret}"), "ttl_seconds": 60 });
    assert_eq!(client.ok("store_memory", fleeting.clone()).await["redacted"], json!(["github_token"]));
    fleeting["content"] = "Nothing secret here".into();
    assert_eq!(client.ok("store_memory", fleeting).await.get("redacted"), None);
    let found = client.ok("recall_memory", json!({ "scope": "user:1", "query": "deploy key Anna" })).await;
    let texts = found["memories"].to_string();
    assert!(texts.contains("The deploy key is [redacted: github_token], Anna made it"), "{texts}");

    app.engine.flush().await;
    let mut database = app.database.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace",
    )
    .fetch_all(&mut database)
    .await
    .unwrap();
    let mut rows = 0;
    for table in tables {
        let statement = format!("select row_to_json(t)::text from {table} t");
        let texts: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_all(&mut database).await.unwrap();
        rows += texts.len();
        let kept = texts.concat().to_lowercase();
        assert!(!kept.contains(&secret.to_lowercase()[8..]) && !kept.contains("hunter2"), "{table}: {kept}");
    }
    assert!(rows > 10, "{rows}");
    for request in endpoint.received_requests().await.unwrap() {
        let sent = String::from_utf8_lossy(&request.body).into_owned();
        assert!(!sent.contains(&secret), "{sent}");
    }
    app.stop().await;
}

/// Otherwise whoever may store could have memser look through megabytes at a time.
#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_looked_through() {
    let app = TestApp::builder().set("SECRET_POLICY", "refuse").start().await;
    let secret = credential();
    for (arguments, code, field) in [
        (json!({ "content": format!("{secret} ").repeat(2_000) }), "limit_exceeded", "content"),
        (
            json!({ "content": "c", "metadata": { "text": format!("{secret} ").repeat(500) } }),
            "limit_exceeded",
            "metadata",
        ),
        (json!({ "content": "c", "tags": vec![&secret; 33] }), "invalid_argument", "tags"),
        (json!({ "content": "c", "tags": [secret.repeat(10)] }), "invalid_argument", "tags"),
        (json!({ "content": "c", "source": secret.repeat(10) }), "invalid_argument", "source"),
        (json!({ "content": "c", "actor": secret.repeat(10) }), "invalid_argument", "actor"),
    ] {
        let mut call = arguments.clone();
        call["scope"] = "user:1".into();
        let error = app.admin().refused("store_memory", call).await;
        assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)), "{error}");
        assert!(!error.to_string().contains("credential"), "{error}");
    }
    app.stop().await;
}

#[tokio::test]
async fn the_policy_can_refuse_or_allow() {
    let content = json!({ "scope": "user:1", "content": format!("Use {}", credential()) });
    let app = TestApp::builder().set("SECRET_POLICY", "refuse").start().await;
    let error = app.admin().refused("store_memory", content.clone()).await;
    assert_eq!((&error["code"], &error["field"]), (&json!("invalid_argument"), &json!("content")));
    assert!(!error.to_string().contains(&credential()), "{error}");
    let scopes: i64 = sqlx::query_scalar("select count(*) from scopes")
        .fetch_one(&mut app.database.connect().await)
        .await
        .unwrap();
    assert_eq!(scopes, 0);
    app.stop().await;

    let app = TestApp::builder().set("SECRET_POLICY", "allow").start().await;
    assert_eq!(app.admin().ok("store_memory", content).await.get("redacted"), None);
    assert_eq!(app.admin().recall("user:1", "use").await, [format!("Use {}", credential())]);
    app.stop().await;
}
