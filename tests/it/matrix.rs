//! Every tool and every route against every kind of grant. A new tool or route does not pass until it has its row here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use memser::mcp::ToolName;
use memser::model::Action;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{ADMIN, TestApp, TestAppBuilder, files};

/// What a tool is called with; none of it is refused for another reason than the scope, or changes what others find.
fn arguments(tool: ToolName) -> Value {
    match tool {
        ToolName::Store => json!({ "content": "Anna likes green tea" }),
        ToolName::Recall => json!({ "query": "tea" }),
        ToolName::Forget => json!({ "all": true, "dry_run": true }),
        ToolName::List => json!({}),
        ToolName::Consolidate => json!({ "dry_run": true }),
        // Of a memory that is nowhere: `not_found` comes after every check of the grant.
        ToolName::Resolve => json!({ "memory_id": Uuid::nil(), "action": "keep_new" }),
        ToolName::Search | ToolName::Fetch => {
            unreachable!("they take no scope and have a matrix of their own")
        }
    }
}

/// The grants of each token, as patterns and actions.
const TOKENS: [&[(&str, Action)]; 13] = [
    &[("user:1", Action::Read)],
    &[("user:1", Action::Write)],
    &[("user:1", Action::Review)],
    &[("user:1", Action::Admin)],
    &[("user:*", Action::Read)],
    &[("user:*", Action::Write)],
    &[("user:*", Action::Review)],
    &[("user:*", Action::Admin)],
    &[("other:*", Action::Admin)],
    &[("user:1", Action::Read), ("other:*", Action::Admin)],
    &[("user:1", Action::Read), ("user:*", Action::Write)],
    &[("user:1", Action::Read), ("user:2", Action::Read)],
    &[("*", Action::Admin)],
];

/// The scopes that are asked for: named, foreign, left out, empty, with wildcards, and in spellings that could be taken
/// for another.
fn asked() -> Vec<Option<Value>> {
    let named =
        ["user:1", "user:2", "user:", "other:1", "nobody", "", "  ", "*", "user:*", "user:%", "user:_"];
    let disguised = ["user:1\u{200b}", "user:1\0", "USER:1", "user:1/../2", " user:1 "];
    let mut asked: Vec<_> = named.iter().chain(&disguised).map(|name| Some(json!(name))).collect();
    asked.extend([
        None,
        Some(Value::Null),
        Some(json!([])),
        Some(json!(["user:1", "user:2"])),
        Some(json!({})),
    ]);
    asked
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Forbidden,
    Refused(&'static str),
}

/// What has to come of it, by the rules of the design alone.
fn expected(grants: &[(&str, Action)], needed: Action, scope: Option<&Value>) -> Verdict {
    if grants.iter().all(|(_, action)| *action < needed) {
        return Verdict::Forbidden;
    }
    let name = match scope {
        None | Some(Value::Null) => match grants {
            [(only, _)] if !only.ends_with('*') => *only,
            _ => return Verdict::Refused("invalid_argument"),
        },
        Some(Value::String(name)) => name.trim(),
        Some(_) => return Verdict::Refused("invalid_argument"),
    };
    if name.is_empty() || name.chars().any(|c| "*\0\u{200b}".contains(c)) {
        return Verdict::Refused("invalid_argument");
    }
    let covers = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    match grants.iter().filter(|(pattern, _)| covers(pattern)).map(|(_, action)| *action).max() {
        None => Verdict::Refused("scope_not_granted"),
        Some(action) if action < needed => Verdict::Refused("action_not_granted"),
        Some(_) => Verdict::Allowed,
    }
}

fn verdict(status: u16, answer: &Value) -> Verdict {
    let codes = ["invalid_argument", "scope_not_granted", "action_not_granted"];
    let structure = &answer["result"]["structuredContent"];
    match (status, structure["error"]["code"].as_str()) {
        (403, _) if answer["error"]["code"] == "action_not_granted" => Verdict::Forbidden,
        (200, None | Some("not_found")) if structure.is_object() => Verdict::Allowed,
        (200, Some(code)) => {
            let known = codes.into_iter().find(|known| *known == code);
            Verdict::Refused(known.unwrap_or_else(|| panic!("{answer}")))
        }
        _ => panic!("{status}: {answer}"),
    }
}

/// Accepts the tokens as `token-0` and so on.
fn with_tokens(mut builder: TestAppBuilder) -> TestAppBuilder {
    for (number, grants) in TOKENS.iter().enumerate() {
        let grants: Vec<String> =
            grants.iter().map(|(pattern, action)| format!("{pattern}={action}")).collect();
        let grants: Vec<&str> = grants.iter().map(String::as_str).collect();
        builder = builder.token(&format!("token-{number}"), &grants);
    }
    builder
}

#[tokio::test]
async fn every_tool_does_for_every_grant_what_it_should_and_no_more() {
    let app = with_tokens(TestApp::builder()).start().await;
    let (mut denied, mut stored_in) = (BTreeMap::<String, i64>::new(), BTreeSet::new());
    for (number, grants) in TOKENS.iter().enumerate() {
        let token = format!("token-{number}");
        for tool in ToolName::ALL {
            for scope in asked() {
                let mut arguments = arguments(tool);
                if let Some(scope) = &scope {
                    arguments["scope"] = scope.clone();
                }
                let call = json!({ "name": tool.as_str(), "arguments": arguments });
                let response = app.client(&token).post("tools/call", call).await;
                let status = response.status().as_u16();
                let found = verdict(status, &response.json().await.unwrap());
                let wanted = expected(grants, tool.action(), scope.as_ref());
                assert_eq!(found, wanted, "{grants:?} {} {scope:?}", tool.as_str());
                if wanted != Verdict::Allowed {
                    *denied.entry(token.clone()).or_default() += 1;
                } else if tool == ToolName::Store {
                    let name = scope.as_ref().and_then(Value::as_str).unwrap_or(grants[0].0);
                    stored_in.insert(name.trim().to_owned());
                }
            }
        }
    }
    app.engine.flush().await;
    let mut database = app.database.connect().await;
    let scopes: Vec<String> =
        sqlx::query_scalar("select name from scopes").fetch_all(&mut database).await.unwrap();
    assert_eq!(scopes.into_iter().collect::<BTreeSet<_>>(), stored_in, "a denied call made a scope");
    let audited: Vec<(String, i64)> = sqlx::query_as(
        "select subject, count(*) from memory_audit_log where outcome not in ('ok', 'not_found') group by subject",
    )
    .fetch_all(&mut database)
    .await
    .unwrap();
    assert_eq!(audited.into_iter().collect::<BTreeMap<_, _>>(), denied, "each denied call is audited once");
    app.stop().await;
}

#[tokio::test]
async fn the_tools_for_connectors_show_every_token_what_it_may_read_and_nothing_else() {
    let app = with_tokens(TestApp::builder()).set("MEMSER_CONNECTOR_TOOLS", "true").start().await;
    let mut ids = Vec::new();
    for scope in ["user:1", "user:2", "user:10", "other:1", "nobody"] {
        let id = app.admin().store(scope, &format!("Anna likes green tea, says {scope}")).await;
        ids.push((scope, format!("memory:///{}/{id}", scope.replace(':', "%3A"))));
    }
    for (number, grants) in TOKENS.iter().enumerate() {
        let client = app.client(&format!("token-{number}"));
        let allowed = |scope: &str| expected(grants, Action::Read, Some(&json!(scope))) == Verdict::Allowed;
        let searched = client.ok("search", json!({ "query": "Who likes green tea?" })).await;
        let results = searched["results"].as_array().unwrap();
        let found: BTreeSet<&str> = results.iter().map(|found| found["id"].as_str().unwrap()).collect();
        let wanted: BTreeSet<&str> =
            ids.iter().filter(|(scope, _)| allowed(scope)).map(|(_, id)| id.as_str()).collect();
        assert_eq!(found, wanted, "{grants:?}");
        for (scope, id) in &ids {
            if allowed(scope) {
                let fetched = client.ok("fetch", json!({ "id": id })).await;
                assert_eq!(fetched["text"], format!("Anna likes green tea, says {scope}"));
            } else {
                let absent = id.replace(id.rsplit('/').next().unwrap(), &Uuid::nil().to_string());
                let refused = client.refused("fetch", json!({ "id": id })).await;
                assert_eq!(
                    refused,
                    client.refused("fetch", json!({ "id": absent })).await,
                    "{grants:?} {scope}"
                );
                assert_eq!(refused["code"], "not_found");
            }
        }
    }
    app.stop().await;
}

#[tokio::test]
async fn a_scope_that_exists_differs_in_nothing_from_one_that_does_not() {
    let app = TestApp::builder().token("writer", &["user:1=admin"]).start().await;
    app.admin().store("user:2", "something else").await;
    for tool in ToolName::ALL {
        let mut answers = Vec::new();
        for scope in ["user:2", "user:3"] {
            let mut arguments = arguments(tool);
            arguments["scope"] = scope.into();
            let call = json!({ "name": tool.as_str(), "arguments": arguments });
            let response = app.client("writer").post("tools/call", call).await;
            answers.push((response.status(), response.text().await.unwrap().replace(scope, "SCOPE")));
        }
        assert_eq!(answers[0], answers[1], "{}", tool.as_str());
    }
    app.stop().await;
}

/// How each path gets into the router, as the source has it; what `/openapi.json` describes stands in `routes`.
const MOUNTED: [(&str, &str, &str); 21] = [
    ("http.rs", "route", "METADATA_PATH"),
    ("http.rs", "route", r#"&format!("{METADATA_PATH}/mcp")"#),
    ("http.rs", "merge", "rest"),
    (
        "http.rs",
        "merge",
        "mcp(handler, &engine, Arc::clone(&gate), settings, challenge.clone(), &allowed, ends)",
    ),
    ("http.rs", "route", r#""/metrics""#),
    ("http.rs", "merge", "scrape"),
    ("http.rs", "route", r#""/livez""#),
    ("http.rs", "route", r#""/readyz""#),
    ("http.rs", "merge", "guarded"),
    ("http.rs", "fallback", "not_found"),
    ("http.rs", "method_not_allowed_fallback", "reply::method_not_allowed"),
    ("http.rs", "route", r#""/mcp""#),
    ("http.rs", "route", r#""/mcp/""#),
    // On a listener of their own, which asks for no token: `tests/it/metrics.rs`.
    ("http/metrics.rs", "route", r#""/metrics""#),
    ("http/metrics.rs", "fallback", "super::not_found"),
    ("http/rest.rs", "merge", "memories::router()"),
    ("http/rest.rs", "merge", "review::router()"),
    ("http/rest.rs", "method_not_allowed_fallback", "wrong_method"),
    ("http/rest.rs", "route", r#""/openapi.json""#),
    ("http/rest/memories.rs", "routes", "…"),
    ("http/rest/review.rs", "routes", "…"),
];

/// The first argument of a call whose arguments begin here.
fn first_argument(code: &str) -> String {
    let mut depth = 0;
    let end = code.find(|c: char| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth < 0 || depth == 0 && c == ','
    });
    code[..end.unwrap()].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_path_that_is_mounted_is_known_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for file in files(&root) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        if !name.starts_with("http") {
            // They hold the router, serve it and ask it.
            let is_known = ["app.rs", "stdio/calls.rs", "stdio/upstream.rs"].contains(&name);
            assert!(is_known || !code.contains("axum::"), "{name} uses axum: look for its routes, too");
        }
        let starts = ["Router::new()", "router(", "Router {", "routing::"];
        if !starts.iter().any(|start| code.contains(start)) {
            continue;
        }
        // Whatever a router has that brings paths: axum's methods of today and those that are named alike.
        for (at, _) in code.match_indices('.') {
            let rest = &code[at + 1..];
            let called: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let is_mount = ["route", "nest", "merge", "fallback"].iter().any(|part| called.contains(part));
            if !is_mount || called == "route_layer" || !rest[called.len()..].starts_with('(') {
                continue;
            }
            // utoipa puts what is mounted so into the document.
            let argument =
                if called == "routes" { "…".to_owned() } else { first_argument(&rest[called.len() + 1..]) };
            found.insert((name.to_owned(), called, argument));
        }
    }
    let known =
        MOUNTED.map(|(file, called, argument)| (file.to_owned(), called.to_owned(), argument.to_owned()));
    assert_eq!(found, BTreeSet::from(known));
}

/// The methods that are tried, known to HTTP or not.
const METHODS: [&str; 11] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "get"];

/// Each path that `/openapi.json` does not describe: whether it asks for a token, the methods that it serves, and
/// what a reader and an administrator get of the first.
const PATHS: [(&str, bool, &[&str], [u16; 2]); 8] = [
    ("/mcp", true, &["POST"], [400, 400]),
    ("/mcp/", true, &["POST"], [400, 400]),
    ("/.well-known/oauth-protected-resource", false, &["GET", "HEAD"], [200, 200]),
    ("/.well-known/oauth-protected-resource/mcp", false, &["GET", "HEAD"], [200, 200]),
    ("/metrics", true, &["GET", "HEAD"], [403, 200]),
    ("/openapi.json", false, &["GET", "HEAD"], [200, 200]),
    ("/livez", false, &["GET", "HEAD"], [200, 200]),
    ("/readyz", false, &["GET", "HEAD"], [200, 200]),
];

/// What monitoring asks for, and no page.
const NOT_FOR_PAGES: [&str; 3] = ["/metrics", "/livez", "/readyz"];

#[tokio::test]
async fn every_path_asks_for_a_token_whatever_the_method_and_serves_its_methods_alone() {
    let app = TestApp::builder().token("reader", &["user:1=read"]).start().await;
    let ask = async |path: &str, method: &str, token: Option<&str>| {
        let mut request = reqwest::Client::new().request(method.parse().unwrap(), app.url(path));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap()
    };
    let document: Value = app.get("/openapi.json").await.json().await.unwrap();
    let mut paths: Vec<(String, bool, Vec<String>)> = PATHS
        .map(|(path, guarded, served, _)| {
            (path.to_owned(), guarded, served.iter().map(|&method| method.to_owned()).collect())
        })
        .to_vec();
    for (path, item) in document["paths"].as_object().unwrap() {
        let mut served: Vec<String> =
            item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        if served.contains(&"GET".to_owned()) {
            served.push("HEAD".to_owned());
        }
        paths.push((path.replace("{id}", &Uuid::nil().to_string()), true, served));
    }
    for (path, guarded, served) in &paths {
        for method in METHODS {
            let is_served = served.iter().any(|known| known == method);
            for token in [None, Some("no-token-of-this-memser"), Some("reader"), Some(ADMIN)] {
                let response = ask(path, method, token).await;
                let (status, what) = (response.status().as_u16(), format!("{method} {path} {token:?}"));
                let is_known = token.is_some_and(|token| token == "reader" || token == ADMIN);
                // A browser asks so before it sends a token; it gets no more than which headers are allowed.
                if method == "OPTIONS" && status == 200 {
                    assert_eq!(response.bytes().await.unwrap().len(), 0, "{what}");
                } else if *guarded && !is_known {
                    assert_eq!(status, 401, "{what}");
                    assert!(response.headers().contains_key("www-authenticate"), "{what}");
                } else if is_served {
                    assert!(
                        ![401, 404, 405].contains(&status) || path.contains("/v1/memories/"),
                        "{what}: {status}"
                    );
                } else {
                    assert_eq!(status, 405, "{what}");
                    let allowed = response.headers()["allow"].to_str().unwrap();
                    let allowed: BTreeSet<&str> = allowed.split(',').map(str::trim).collect();
                    assert_eq!(allowed, served.iter().map(String::as_str).collect(), "{what}");
                }
            }
        }
    }
    for (path, _, served, expected) in PATHS {
        for (token, expected) in ["reader", ADMIN].into_iter().zip(expected) {
            assert_eq!(ask(path, served[0], Some(token)).await.status(), expected, "{path} {token}");
        }
    }
    // What a browser asks before it sends a page's request: of every path that pages may use.
    for (path, ..) in paths.iter().filter(|(path, ..)| !NOT_FOR_PAGES.contains(&path.as_str())) {
        for (origin, expected) in [("http://localhost:3000", 200), ("https://evil.example", 403)] {
            let request = reqwest::Client::new().request(Method::OPTIONS, app.url(path));
            let request = request.header("origin", origin).header("access-control-request-method", "POST");
            let response =
                request.header("access-control-request-headers", "authorization").send().await.unwrap();
            assert_eq!(response.status(), expected, "{path} {origin}");
            let allowed = response.headers().get("access-control-allow-origin");
            assert_eq!(allowed.is_some_and(|allowed| allowed == origin), expected == 200, "{path} {origin}");
        }
    }
    for method in METHODS.into_iter().filter(|method| *method != "OPTIONS") {
        for path in ["/", "/v1", "/v1/", "/v1/nowhere", "/mcp/mcp", "/console", "/metrics/"] {
            assert_eq!(ask(path, method, Some(ADMIN)).await.status(), 404, "{method} {path}");
        }
    }
    app.stop().await;
}
