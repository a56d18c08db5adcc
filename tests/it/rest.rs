//! `/v1` and `/openapi.json`: the same engine over plain HTTP.

use std::collections::BTreeSet;

use memser::model::Action;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{ADMIN, TestApp};

fn request(app: &TestApp, token: &str, method: Method, path: &str) -> RequestBuilder {
    reqwest::Client::new().request(method, app.url(path)).bearer_auth(token)
}

async fn post(app: &TestApp, path: &str, body: &Value) -> Response {
    request(app, ADMIN, Method::POST, path).json(body).send().await.unwrap()
}

async fn get(app: &TestApp, path: &str) -> Response {
    request(app, ADMIN, Method::GET, path).send().await.unwrap()
}

async fn ok(response: Response) -> Value {
    let status = response.status();
    let body = response.json::<Value>().await.unwrap();
    assert!(status.is_success(), "{status}: {body}");
    body
}

/// The problem in an answer, after a look at what every problem has.
async fn problem(response: Response) -> Value {
    let status = response.status();
    assert_eq!(response.headers()["content-type"], "application/problem+json", "{status}");
    let problem = response.json::<Value>().await.unwrap();
    assert_eq!(problem["status"], status.as_u16(), "{problem}");
    assert_eq!(problem["title"], status.canonical_reason().unwrap());
    for name in ["detail", "hint", "code"] {
        assert!(problem[name].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
    }
    problem
}

#[tokio::test]
async fn a_memory_is_stored_found_got_and_forgotten() {
    let app = TestApp::start().await;
    let stored =
        post(&app, "/v1/memories", &json!({ "scope": "user:1/a b", "content": "Anna likes green tea" }))
            .await;
    assert_eq!(stored.status(), StatusCode::CREATED);
    let location = stored.headers()["location"].to_str().unwrap().to_owned();
    let stored = ok(stored).await;

    let got = get(&app, &location).await;
    let tag = got.headers()["etag"].clone();
    let got = ok(got).await;
    assert_eq!((&got["id"], &got["content"]), (&stored["id"], &json!("Anna likes green tea")));
    let same =
        request(&app, ADMIN, Method::GET, &location).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!((same.status(), &same.headers()["etag"]), (StatusCode::NOT_MODIFIED, &tag));
    assert_eq!(same.bytes().await.unwrap().len(), 0);

    let again =
        post(&app, "/v1/memories", &json!({ "scope": "user:1/a b", "content": "Anna likes green tea." }))
            .await;
    assert_eq!(again.status(), StatusCode::OK);
    assert_eq!(ok(again).await["outcome"], "duplicate");
    let changed =
        request(&app, ADMIN, Method::GET, &location).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(changed.status(), StatusCode::OK, "its support grew");

    let found =
        ok(post(&app, "/v1/recall", &json!({ "scope": "user:1/a b", "query": "tea", "k": 3 })).await).await;
    assert_eq!(found["memories"][0]["id"], stored["id"]);
    let listed = ok(get(&app, "/v1/memories?scope=user:1/a%20b&limit=1&status=active").await).await;
    assert_eq!(listed["memories"].as_array().unwrap().len(), 1);

    let gone = request(&app, ADMIN, Method::DELETE, &location).send().await.unwrap();
    assert_eq!(ok(gone).await["forgotten"]["episodic"], 1);
    let absent = problem(get(&app, &location).await).await;
    assert_eq!((&absent["status"], &absent["code"]), (&json!(404), &json!("not_found")));
    let forgotten = ok(post(&app, "/v1/forget", &json!({ "scope": "user:1/a b", "all": true })).await).await;
    assert_eq!(forgotten["complete"], true);
    app.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_gives_the_first_answer_again() {
    let app = TestApp::start().await;
    let store = async |content: &str, key: &str| {
        let body = json!({ "scope": "user:1", "content": content });
        let request = request(&app, ADMIN, Method::POST, "/v1/memories").header("idempotency-key", key);
        request.json(&body).send().await.unwrap()
    };
    let first = ok(store("The printer is on floor 3", "k1").await).await;
    let again = store("The printer is on floor 3", "k1").await;
    assert_eq!(again.status(), StatusCode::CREATED);
    assert_eq!(ok(again).await, first);
    let other = problem(store("The printer is on floor 4", "k1").await).await;
    assert_eq!((&other["status"], &other["code"]), (&json!(422), &json!("idempotency_mismatch")));

    let body = json!({ "scope": "user:1", "content": "c", "idempotency_key": "k2" });
    let twice =
        request(&app, ADMIN, Method::POST, "/v1/memories").header("idempotency-key", "k3").json(&body);
    assert_eq!(problem(twice.send().await.unwrap()).await["field"], "idempotency_key");
    app.stop().await;
}

#[tokio::test]
async fn a_batch_has_a_result_for_each_memory_and_can_be_repeated() {
    let app = TestApp::builder().token("writer", &["user:1=write"]).start().await;
    let batch = json!({ "memories": [
        { "scope": "user:1", "content": "The bakery opens at seven" },
        { "scope": "user:1", "content": "" },
        { "scope": "user:2", "content": "Not mine to write" },
        { "scope": "user:1", "content": "The bakery opens at seven" },
        { "scope": "user:1", "content": "The florist closes on Mondays", "colour": "red" },
        "no object",
    ]});
    let send = async |batch: &Value| {
        let request = request(&app, "writer", Method::POST, "/v1/memories/batch");
        request.header("idempotency-key", "b1").json(batch).send().await.unwrap()
    };
    let refused = problem(send(&batch).await).await;
    assert_eq!(refused["field"], "memories[5]", "what is no memory refuses the batch before any is stored");
    let memories = json!({ "memories": batch["memories"].as_array().unwrap()[..5] });
    let answer = ok(send(&memories).await).await;
    let results = answer["results"].as_array().unwrap();
    let statuses: Vec<u64> = results.iter().map(|result| result["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 400, 403, 200, 400]);
    assert_eq!(results[1]["problem"]["field"], "content");
    assert_eq!(results[2]["problem"]["code"], "scope_not_granted");
    assert_eq!(results[4]["problem"]["field"], "colour");
    assert_eq!(results[3]["stored"]["duplicate_of"]["id"], results[0]["stored"]["id"]);

    assert_eq!(ok(send(&memories).await).await, answer);
    let listed = ok(get(&app, "/v1/memories?scope=user:1").await).await;
    assert_eq!(listed["memories"][0]["support"], 2, "the repeated batch stored nothing again");
    for memories in [json!([]), json!(vec![json!({ "content": "c" }); 101])] {
        assert_eq!(problem(send(&json!({ "memories": memories })).await).await["field"], "memories");
    }
    app.stop().await;
}

#[tokio::test]
async fn conflicts_are_listed_as_pairs_and_resolved() {
    let app = TestApp::builder().set("CONFLICT_POLICY", "flag").start().await;
    for (city, port) in [("Oslo", 8080), ("Oslo", 8081), ("Rome", 9090), ("Rome", 9091)] {
        let content = format!("The server in {city} listens on port {port}");
        app.admin().store("user:1", &content).await;
    }
    let page = ok(get(&app, "/v1/conflicts?scope=user:1&limit=1").await).await;
    let first = &page["conflicts"][0];
    assert_eq!(first["old"]["content"], "The server in Oslo listens on port 8080");
    assert_eq!(first["new"]["content"], "The server in Oslo listens on port 8081");
    assert!(first["similarity"].as_f64().unwrap() > 0.4);
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = ok(get(&app, &format!("/v1/conflicts?scope=user:1&limit=1&cursor={cursor}")).await).await;
    assert_eq!(page["conflicts"][0]["old"]["content"], "The server in Rome listens on port 9090");
    assert_eq!(page.get("next_cursor"), None);

    let body = json!({ "scope": "user:1", "memory_id": first["new"]["id"], "action": "keep_new" });
    let resolved = ok(post(&app, "/v1/conflicts/resolve", &body).await).await;
    assert_eq!(resolved["superseded"], json!([first["old"]["id"]]));
    let left = ok(get(&app, "/v1/conflicts?scope=user:1").await).await;
    assert_eq!(left["conflicts"].as_array().unwrap().len(), 1);
    let dry = ok(post(&app, "/v1/consolidate", &json!({ "scope": "user:1", "dry_run": true })).await).await;
    assert_eq!(dry["created"], json!([]));
    app.stop().await;
}

#[tokio::test]
async fn a_token_is_shown_its_own_scopes_and_an_administrator_its_own_calls() {
    let app = TestApp::builder()
        .token("mixed", &["user:1=read", "team:*=admin", "empty:1=write"])
        .token("one", &["user:2=admin"])
        .start()
        .await;
    for scope in ["user:1", "user:10", "user:2", "team:a", "team:b", "teams"] {
        app.admin().store(scope, "Something to keep").await;
    }
    let scopes = async |token: &str, query: &str| {
        let path = format!("/v1/scopes{query}");
        let answer = ok(request(&app, token, Method::GET, &path).send().await.unwrap()).await;
        let scopes = answer["scopes"].as_array().unwrap().iter();
        let shown =
            scopes.map(|scope| (scope["scope"].as_str().unwrap().to_owned(), scope["granted"].clone()));
        (shown.collect::<Vec<_>>(), answer["next_cursor"].as_str().map(str::to_owned))
    };
    let named = |names: &[(&str, &str)]| -> Vec<(String, Value)> {
        names.iter().map(|(name, granted)| ((*name).to_owned(), json!(granted))).collect()
    };
    let (mixed, end) = scopes("mixed", "").await;
    assert_eq!(mixed, named(&[("team:a", "admin"), ("team:b", "admin"), ("user:1", "read")]));
    assert_eq!(end, None);
    assert_eq!(scopes("one", "").await.0, named(&[("user:2", "admin")]));
    assert_eq!(scopes(ADMIN, "?prefix=user:").await.0.len(), 3);
    let (first, cursor) = scopes("mixed", "?limit=2").await;
    let (second, _) = scopes("mixed", &format!("?limit=2&cursor={}", cursor.unwrap())).await;
    assert_eq!([first, second].concat(), mixed);

    // A refused call for a scope is a row of it as well.
    app.client("one").call("recall_memory", json!({ "scope": "team:a", "query": "x" })).await;
    app.engine.flush().await;
    let audit = async |token: &str, query: &str| {
        request(&app, token, Method::GET, &format!("/v1/audit{query}")).send().await.unwrap()
    };
    let own = ok(audit("mixed", "?scope=team:a").await).await;
    let rows: Vec<_> =
        own["calls"].as_array().unwrap().iter().map(|row| (&row["action"], &row["outcome"])).collect();
    let expected = [("recall_memory", "scope_not_granted"), ("store_memory", "ok")];
    assert_eq!(
        rows,
        expected.map(|(action, outcome)| (json!(action), json!(outcome))).each_ref().map(|(a, b)| (a, b))
    );
    assert_eq!(ok(audit("one", "").await).await["calls"][0]["scope"], "user:2", "its only scope is meant");
    for (query, code) in [
        ("?scope=user:1", "action_not_granted"),
        ("?scope=user:2", "scope_not_granted"),
        ("", "invalid_argument"),
    ] {
        assert_eq!(problem(audit("mixed", query).await).await["code"], code, "{query}");
    }
    let all = ok(audit(ADMIN, "?action=store_memory&limit=4").await).await;
    let cursor = all["next_cursor"].as_str().unwrap();
    let rest = ok(audit(ADMIN, &format!("?action=store_memory&limit=4&cursor={cursor}")).await).await;
    let ids = [&all, &rest]
        .map(|page| page["calls"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()));
    let ids: Vec<i64> = ids.into_iter().flatten().collect();
    assert_eq!(ids.len(), 6);
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    app.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_as_a_problem() {
    let app = TestApp::builder()
        .token("reader", &["user:1=read"])
        .set("MEMSER_MAX_MEMORIES_PER_SCOPE", "1")
        .start()
        .await;
    let recall = |body: &'static str| request(&app, ADMIN, Method::POST, "/v1/recall").body(body);
    for (request, status, field) in [
        (recall("{"), 400, None),
        (recall("[]"), 400, None),
        (recall("{}").header("content-type", "application/json"), 400, Some("query")),
        (recall(r#"{"query":"x","scope":"user:1","k":"5"}"#), 400, Some("k")),
        (recall(r#"{"query":"x","scope":"user:1","depth":1}"#), 400, Some("depth")),
        (recall(r#"{"query":"x","scope":"*"}"#), 400, Some("scope")),
        (recall(r#"{"query":"x"}"#), 400, Some("scope")),
        (recall("query=x").header("content-type", "text/plain"), 415, None),
        (recall("{}").header("content-encoding", "gzip"), 415, None),
        (request(&app, ADMIN, Method::POST, "/v1/recall?query=x"), 400, None),
        (request(&app, ADMIN, Method::GET, "/v1/memories?scope=user:%ff"), 400, None),
        (request(&app, ADMIN, Method::GET, "/v1/memories?scope=user:1&limit=1&limit=2"), 400, Some("limit")),
        (request(&app, ADMIN, Method::GET, "/v1/memories?scope=user:1&cursor=x"), 400, Some("cursor")),
        (request(&app, ADMIN, Method::GET, "/v1/memories/no-id?scope=user:1"), 400, Some("memory_id")),
        (request(&app, ADMIN, Method::PUT, "/v1/memories"), 405, None),
        (request(&app, ADMIN, Method::GET, "/v1/nothing"), 404, None),
        (request(&app, "unknown", Method::GET, "/v1/memories"), 401, None),
        (request(&app, "reader", Method::POST, "/v1/memories").body("{}"), 403, None),
        (request(&app, "reader", Method::GET, "/v1/audit"), 403, None),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status);
        let challenged =
            response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(challenged.is_some(), [401, 403].contains(&status), "{challenged:?}");
        assert_eq!(response.headers().contains_key("allow"), status == 405);
        assert_eq!(problem(response).await.get("field").and_then(Value::as_str), field);
    }
    ok(post(&app, "/v1/memories", &json!({ "scope": "user:1", "content": "The first" })).await).await;
    let full =
        problem(post(&app, "/v1/memories", &json!({ "scope": "user:1", "content": "Another thing" })).await)
            .await;
    assert_eq!((&full["status"], &full["code"]), (&json!(403), &json!("limit_exceeded")));
    let long = json!({ "scope": "user:2", "content": "x".repeat(70_000) });
    assert_eq!(problem(post(&app, "/v1/memories", &long).await).await["status"], 413);
    let huge = json!({ "scope": "user:2", "content": "x".repeat(6_000_000) });
    assert_eq!(problem(post(&app, "/v1/memories", &huge).await).await["status"], 413);
    let no_token = reqwest::get(app.url("/v1/memories")).await.unwrap();
    assert!(no_token.headers()["www-authenticate"].to_str().unwrap().contains("resource_metadata"));
    assert_eq!(problem(no_token).await["code"], "unauthorised");
    app.stop().await;
}

/// Every operation: its arguments for a scope, and what it needs.
const OPERATIONS: [(&str, &str, Action); 13] = [
    ("get", "/v1/memories", Action::Read),
    ("post", "/v1/memories", Action::Write),
    ("post", "/v1/memories/batch", Action::Write),
    ("get", "/v1/memories/{id}", Action::Read),
    ("delete", "/v1/memories/{id}", Action::Write),
    ("post", "/v1/recall", Action::Read),
    ("post", "/v1/forget", Action::Write),
    ("post", "/v1/consolidate", Action::Write),
    ("get", "/v1/conflicts", Action::Read),
    ("post", "/v1/conflicts/resolve", Action::Review),
    ("get", "/v1/scopes", Action::Read),
    ("get", "/v1/audit", Action::Admin),
    ("get", "/v1/jobs", Action::Admin),
];

fn body_of(path: &str, scope: &str) -> Value {
    match path {
        "/v1/memories" => json!({ "scope": scope, "content": "Anna likes green tea" }),
        "/v1/memories/batch" => {
            json!({ "memories": [{ "scope": scope, "content": "Anna likes green tea" }] })
        }
        "/v1/recall" => json!({ "scope": scope, "query": "tea" }),
        "/v1/forget" => json!({ "scope": scope, "all": true, "dry_run": true }),
        "/v1/consolidate" => json!({ "scope": scope, "dry_run": true }),
        "/v1/conflicts/resolve" => json!({ "scope": scope, "memory_id": Uuid::nil(), "action": "keep_new" }),
        _ => panic!("{path}"),
    }
}

#[tokio::test]
async fn every_operation_does_for_every_grant_what_it_should_and_no_more() {
    let grants =
        ["user:1=read", "user:1=write", "user:1=review", "user:1=admin", "user:*=write", "other:*=admin"];
    let mut builder = TestApp::builder();
    for grant in grants {
        builder = builder.token(grant, &[grant]);
    }
    let app = builder.start().await;
    let document = app.get("/openapi.json").await.json::<Value>().await.unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone()))
        })
        .collect();
    let known = OPERATIONS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned()));
    assert_eq!(described, known.collect(), "each operation has its row");

    let (mut denied, mut stored) = (0_i64, BTreeSet::new());
    for grant in grants {
        let (pattern, granted) = grant.rsplit_once('=').unwrap();
        let granted: Action = granted.parse().unwrap();
        for (method, path, needed) in OPERATIONS {
            for scope in ["user:1", "user:2", "other:1"] {
                let covered =
                    pattern.strip_suffix('*').map_or(pattern == scope, |prefix| scope.starts_with(prefix));
                let path_and_query = match (method, path) {
                    ("get", "/v1/scopes" | "/v1/jobs") | ("post", _) => path.to_owned(),
                    _ => format!("{}?scope={scope}", path.replace("{id}", &Uuid::nil().to_string())),
                };
                let mut request =
                    request(&app, grant, method.to_uppercase().parse().unwrap(), &path_and_query);
                if method == "post" {
                    request = request.json(&body_of(path, scope));
                }
                let response = request.send().await.unwrap();
                let status = response.status();
                let body: Value = response.json().await.unwrap();
                let what = format!("{grant} {method} {path} {scope}: {status} {body}");
                // These two answer for no single scope: they show what the token may see.
                let unscoped = ["/v1/scopes", "/v1/jobs"].contains(&path);
                let allowed = (unscoped || covered) && granted >= needed;
                // A batch is answered; its one memory has the status.
                let refused = if path == "/v1/memories/batch" && granted >= needed {
                    body["results"][0]["status"] == 403
                } else {
                    status == StatusCode::FORBIDDEN
                };
                assert_eq!(refused, !allowed, "{what}");
                if refused {
                    denied += 1;
                } else {
                    assert!(status.is_success() || status == StatusCode::NOT_FOUND, "{what}");
                    if method == "post" && path.starts_with("/v1/memories") {
                        stored.insert(scope.to_owned());
                    }
                }
            }
        }
    }
    app.engine.flush().await;
    let mut database = app.database.connect().await;
    let scopes: Vec<String> =
        sqlx::query_scalar("select name from scopes").fetch_all(&mut database).await.unwrap();
    assert_eq!(scopes.into_iter().collect::<BTreeSet<_>>(), stored, "a denied call made a scope");
    let audited: i64 =
        sqlx::query_scalar("select count(*) from memory_audit_log where outcome like '%_not_granted'")
            .fetch_one(&mut database)
            .await
            .unwrap();
    assert_eq!(audited, denied, "each denied call is audited once");
    app.stop().await;
}
