//! JSON Web Tokens of an issuer that runs in the test, and attacks with forged ones.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::issuer::{KeySet, SigningKey};
use crate::support::{TestApp, start_of_time};

const ISSUER: &str = "https://login.example.com/realms/memser";
const SECRET: &str = "a-secret-of-the-test-that-is-long-enough";

/// A memser that trusts the issuer by its key set.
async fn trusting(keys: &KeySet) -> TestApp {
    let app = TestApp::builder()
        .set("JWKS_URL", keys.url())
        .set("JWT_ISSUER", ISSUER)
        .set("JWT_SCOPE_TEMPLATE", "user:{sub}");
    app.start().await
}

/// The claims of a good token for this memser, for an hour.
fn claims(app: &TestApp) -> Value {
    let now = start_of_time().timestamp();
    json!({ "iss": ISSUER, "aud": app.url("/mcp"), "sub": "bob", "exp": now + 3_600, "nbf": now,
            "scope": "openid memory:write" })
}

fn with(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value;
    claims
}

fn without(claims: &Value, name: &str) -> Value {
    let mut claims = claims.clone();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

async fn status(app: &TestApp, token: &str) -> u16 {
    app.client(token).post("tools/list", json!({})).await.status().as_u16()
}

/// A token with a header of its own, signed by nothing.
fn unsigned(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

#[tokio::test]
async fn a_subject_reaches_its_own_scope_and_no_other() {
    let key = SigningKey::rsa("k1");
    let keys = KeySet::of(&[&key]).await;
    let app = trusting(&keys).await;
    let bob = app.client(&key.sign(&claims(&app)));
    bob.ok("store_memory", json!({ "content": "Bob likes tea" })).await;
    assert_eq!(bob.recall("user:bob", "tea").await, ["Bob likes tea"]);
    let eve = app.client(&key.sign(&with(&claims(&app), "sub", json!("eve"))));
    for scope in ["user:bob", "user:*", "user:", "team:a"] {
        let error = eve.refused("recall_memory", json!({ "query": "tea", "scope": scope })).await;
        assert!(
            ["scope_not_granted", "invalid_argument"].contains(&error["code"].as_str().unwrap()),
            "{error}"
        );
    }
    app.engine.flush().await;
    let subjects: Vec<String> =
        sqlx::query_scalar("select distinct subject from memory_audit_log order by 1")
            .fetch_all(&mut app.database.connect().await)
            .await
            .unwrap();
    assert_eq!(subjects, ["jwt:bob", "jwt:eve"]);
    app.stop().await;
}

#[tokio::test]
async fn what_a_token_grants_is_what_it_may_do() {
    let key = SigningKey::p256("k1");
    let keys = KeySet::of(&[&key]).await;
    let app = trusting(&keys).await;
    let store = json!({ "name": "store_memory", "arguments": { "content": "c", "scope": "user:bob" } });
    for (name, value, expected) in [
        ("scope", json!("memory:write"), (200, Value::Bool(false))),
        ("scope", json!("memory:admin"), (200, Value::Bool(false))),
        ("scope", json!("memory:read"), (403, Value::Null)),
        ("scope", json!("openid email"), (403, Value::Null)),
        ("scope", Value::Null, (403, Value::Null)),
        ("memser_grants", json!(["user:bob=write"]), (200, Value::Bool(false))),
        ("memser_grants", json!(["team:*=write"]), (200, Value::Bool(true))),
        ("memser_grants", json!([]), (403, Value::Null)),
        ("memser_grants", json!(["user:bob"]), (401, Value::Null)),
        ("memser_grants", json!("*=admin"), (401, Value::Null)),
    ] {
        let token = key.sign(&with(&claims(&app), name, value.clone()));
        let response = app.client(&token).post("tools/call", store.clone()).await;
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        assert_eq!((status, answer["result"]["isError"].clone()), expected, "{name}={value}: {answer}");
    }
    app.stop().await;
}

#[tokio::test]
async fn every_kind_of_key_is_taken_and_only_for_its_own_algorithm() {
    let (rsa, p256, ed25519) = (SigningKey::rsa("r"), SigningKey::p256("e"), SigningKey::ed25519("o"));
    let keys = KeySet::of(&[&rsa, &p256, &ed25519]).await;
    let app = trusting(&keys).await;
    for key in [&rsa, &p256, &ed25519] {
        assert_eq!(status(&app, &key.sign(&claims(&app))).await, 200, "{:?}", key.algorithm);
        // Under another key's id, and for RSA with another algorithm of the family.
        let mut header = Header::new(key.algorithm);
        header.kid = Some(if key.id == "r" { "e" } else { "r" }.to_owned());
        assert_eq!(status(&app, &encode(&header, &claims(&app), &key.private).unwrap()).await, 401);
        // Without an id any key of the algorithm may be meant.
        header.kid = None;
        assert_eq!(status(&app, &encode(&header, &claims(&app), &key.private).unwrap()).await, 200);
    }
    let mut header = Header::new(Algorithm::RS512);
    header.kid = Some("r".to_owned());
    assert_eq!(status(&app, &encode(&header, &claims(&app), &rsa.private).unwrap()).await, 401);
    app.stop().await;

    let folder = tempfile::tempdir().unwrap();
    for key in [&rsa, &p256, &ed25519] {
        let path = folder.path().join("key.pem");
        std::fs::write(&path, &key.public_pem).unwrap();
        let app = TestApp::builder()
            .set("JWT_PUBLIC_KEY_FILE", path.to_str().unwrap())
            .set("JWT_ISSUER", ISSUER)
            .start()
            .await;
        assert_eq!(status(&app, &key.sign(&claims(&app))).await, 200, "{:?}", key.algorithm);
        // The public key is no secret: whoever knows it signs nothing with it.
        let confused = EncodingKey::from_secret(key.public_pem.as_bytes()).unwrap();
        let forged = encode(&Header::new(Algorithm::HS256), &claims(&app), &confused).unwrap();
        assert_eq!(status(&app, &forged).await, 401);
        app.stop().await;
    }
}

#[tokio::test]
async fn a_shared_secret_is_good_for_hs256_alone() {
    let app = TestApp::builder()
        .set("JWT_SECRET", SECRET)
        .set("JWT_ISSUER", ISSUER)
        .set("JWT_AUDIENCE", "memory, other")
        .start()
        .await;
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let claims = with(&claims(&app), "aud", json!(["somebody", "other"]));
    for (algorithm, expected) in [(Algorithm::HS256, 200), (Algorithm::HS384, 401), (Algorithm::HS512, 401)] {
        let token = encode(&Header::new(algorithm), &claims, &key).unwrap();
        assert_eq!(status(&app, &token).await, expected, "{algorithm:?}");
    }
    let rsa = SigningKey::rsa("r");
    assert_eq!(status(&app, &rsa.sign(&claims)).await, 401);
    // A shared secret is no authorization server.
    let metadata: Value = app.get("/.well-known/oauth-protected-resource").await.json().await.unwrap();
    assert_eq!(metadata.get("authorization_servers"), None);
    app.stop().await;
}

#[tokio::test]
async fn forged_and_misdirected_tokens_are_invalid() {
    let key = SigningKey::rsa("k1");
    let keys = KeySet::of(&[&key]).await;
    let app = trusting(&keys).await;
    let good = claims(&app);
    let now = start_of_time().timestamp();
    assert_eq!(status(&app, &key.sign(&good)).await, 200);
    let mut bad: Vec<(String, String)> = Vec::new();
    for (name, value) in [
        ("aud", json!("https://other.example/mcp")),
        ("aud", json!([])),
        ("aud", json!(app.url("/mcp/"))),
        ("aud", json!(app.url(""))),
        ("iss", json!("https://evil.example")),
        ("iss", json!([ISSUER, "https://evil.example"])),
        ("iss", json!(format!("{ISSUER}/"))),
        ("exp", json!(now - 61)),
        ("exp", json!("9999999999")),
        ("exp", json!(-1)),
        ("nbf", json!(now + 120)),
        ("nbf", json!("soon")),
        ("sub", json!("*")),
        ("sub", json!("")),
        ("sub", json!("b\u{200b}ob")),
        ("sub", json!(7)),
    ] {
        bad.push((format!("{name}={value}"), key.sign(&with(&good, name, value))));
    }
    for name in ["aud", "iss", "exp", "sub"] {
        bad.push((format!("no {name}"), key.sign(&without(&good, name))));
    }
    for name in ["none", "None", "NONE", "nOnE", "HS256", ""] {
        let header = json!({ "alg": name, "typ": "JWT", "kid": "k1" });
        for signature in ["", "AAAA"] {
            bad.push((format!("alg {name} {signature}"), unsigned(&header, &good, signature)));
        }
    }
    let pem = EncodingKey::from_secret(key.public_pem.as_bytes()).unwrap();
    let modulus = EncodingKey::from_secret(key.jwk()["n"].as_str().unwrap().as_bytes()).unwrap();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("k1".to_owned());
    bad.push(("the PEM as a secret".to_owned(), encode(&header, &good, &pem).unwrap()));
    bad.push(("the modulus as a secret".to_owned(), encode(&header, &good, &modulus).unwrap()));
    let stranger = SigningKey::rsa("k1");
    bad.push(("another's key under a known id".to_owned(), stranger.sign(&good)));
    let mut own_key = Header::new(Algorithm::RS256);
    own_key.jwk = Some(serde_json::from_value(stranger.jwk()).unwrap());
    own_key.jku = Some("http://127.0.0.1:1/jwks".to_owned());
    bad.push(("a key in the header".to_owned(), encode(&own_key, &good, &stranger.private).unwrap()));
    for kind in ["logout+jwt", "dpop+jwt", "secevent+jwt", ""] {
        let other = Header { typ: Some(kind.to_owned()), ..Header::new(Algorithm::RS256) };
        bad.push((format!("typ {kind}"), encode(&other, &good, &key.private).unwrap()));
    }
    for kind in [None, Some("at+jwt"), Some("application/at+JWT"), Some("JWT")] {
        let header = Header { typ: kind.map(str::to_owned), ..Header::new(Algorithm::RS256) };
        assert_eq!(status(&app, &encode(&header, &good, &key.private).unwrap()).await, 200, "{kind:?}");
    }
    let token = key.sign(&good);
    let (head, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = head.split_once('.').unwrap();
    let payload = BASE64_URL_SAFE_NO_PAD.encode(with(&good, "sub", json!("eve")).to_string());
    bad.push(("another payload".to_owned(), format!("{header}.{payload}.{signature}")));
    bad.push(("half a token".to_owned(), head.to_owned()));
    bad.push(("four parts".to_owned(), format!("{token}.x")));
    bad.push(("a long token".to_owned(), key.sign(&with(&good, "x", json!("y".repeat(20_000))))));
    for (what, token) in bad {
        let response = app.client(&token).post("tools/list", json!({})).await;
        assert_eq!(response.status(), 401, "{what}");
        let challenge = response.headers()["www-authenticate"].to_str().unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{what}: {challenge}");
    }
    app.clock.advance(Duration::from_secs(3_600 + 59));
    assert_eq!(status(&app, &key.sign(&good)).await, 200);
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(status(&app, &key.sign(&good)).await, 401);
    app.stop().await;
}

#[tokio::test]
async fn keys_rotate_and_unknown_ids_cause_no_flood() {
    let (old, new) = (SigningKey::p256("old"), SigningKey::p256("new"));
    let keys = KeySet::of(&[&old]).await;
    let app = trusting(&keys).await;
    assert_eq!(keys.asked().await, 1, "the keys are fetched at the start");
    keys.rotate(&[&new]);
    let mut tries = Vec::new();
    for _ in 0..50 {
        tries.push(status(&app, &new.sign(&claims(&app))).await);
    }
    assert_eq!(tries, [401; 50], "a moment after the last fetch there is no other");
    assert_eq!(keys.asked().await, 1);
    app.clock.advance(Duration::from_secs(30));
    let token = new.sign(&claims(&app));
    let together = futures::future::join_all((0..20).map(|_| status(&app, &token))).await;
    assert_eq!(together, [200; 20]);
    assert_eq!(keys.asked().await, 2, "one fetch serves all who wait");
    assert_eq!(status(&app, &old.sign(&claims(&app))).await, 401, "a key that is withdrawn is gone");
    let strangers: Vec<SigningKey> = (0..5).map(|n| SigningKey::p256(&format!("made-up-{n}"))).collect();
    for stranger in &strangers {
        assert_eq!(status(&app, &stranger.sign(&claims(&app))).await, 401);
    }
    assert_eq!(keys.asked().await, 2);
    app.stop().await;
}

#[tokio::test]
async fn known_keys_serve_for_a_day_while_the_issuer_is_down() {
    let key = SigningKey::ed25519("k1");
    let keys = KeySet::of(&[&key]).await;
    let app = trusting(&keys).await;
    let lasting = key.sign(&with(&claims(&app), "exp", json!(start_of_time().timestamp() + 400_000)));
    keys.break_down();
    for _ in 0..3 {
        app.clock.advance(Duration::from_hours(7));
        assert_eq!(status(&app, &lasting).await, 200);
    }
    assert_eq!(keys.asked().await, 4, "old keys are asked for again, and serve on");
    app.clock.advance(Duration::from_hours(4));
    let refused = app.client(&lasting).post("tools/list", json!({})).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"30".parse().unwrap()));
    keys.rotate(&[&key]);
    app.clock.advance(Duration::from_secs(30));
    assert_eq!(status(&app, &lasting).await, 200);
    app.stop().await;
}

#[tokio::test]
async fn a_start_while_the_issuer_is_down_serves_once_it_is_back() {
    let key = SigningKey::p256("k1");
    let keys = KeySet::of(&[&key]).await;
    keys.break_down();
    let app = trusting(&keys).await;
    assert_eq!(status(&app, &key.sign(&claims(&app))).await, 503);
    assert_eq!(status(&app, "no-jwt-at-all").await, 401);
    keys.rotate(&[&key]);
    app.clock.advance(Duration::from_secs(30));
    assert_eq!(status(&app, &key.sign(&claims(&app))).await, 200);
    app.stop().await;
}

#[tokio::test]
async fn clients_learn_where_tokens_come_from() {
    let key = SigningKey::p256("k1");
    let keys = KeySet::of(&[&key]).await;
    let app = TestApp::builder()
        .set("JWKS_URL", keys.url())
        .set("JWT_ISSUER", ISSUER)
        .set("MEMSER_PUBLIC_URL", "https://mem.example.com/memory/")
        .start()
        .await;
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let metadata: Value = app.get(path).await.json().await.unwrap();
        assert_eq!(metadata["resource"], "https://mem.example.com/memory/mcp");
        assert_eq!(metadata["authorization_servers"], json!([ISSUER]));
        assert_eq!(metadata["scopes_supported"], json!(["memory:read", "memory:write"]));
    }
    let token = key.sign(&with(&claims(&app), "aud", json!("https://mem.example.com/memory/mcp")));
    assert_eq!(status(&app, &token).await, 200);
    app.stop().await;
}
