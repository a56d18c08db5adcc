//! Every tool and every route against every kind of grant. A new tool or route does not pass until it has its row here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use memser::mcp::ToolName;
use memser::model::Action;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{ADMIN, TestApp, TestAppBuilder};

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

/// A tool's arguments with the id of a memory; none for a tool that takes no id.
fn by_id(tool: ToolName, id: &str) -> Option<Value> {
    match tool {
        ToolName::Store => Some(json!({ "content": "Corrected", "replaces": id })),
        ToolName::Forget | ToolName::List => Some(json!({ "memory_id": id })),
        ToolName::Resolve => Some(json!({ "memory_id": id, "action": "restore" })),
        ToolName::Recall | ToolName::Consolidate | ToolName::Search | ToolName::Fetch => None,
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
async fn a_foreign_id_and_an_absent_one_are_answered_alike_to_the_byte() {
    let app = TestApp::builder().token("writer", &["user:1=admin"]).start().await;
    app.admin().store("user:1", "something").await;
    let foreign = app.admin().store("user:2", "something else").await;
    let absent = Uuid::new_v4().to_string();
    for tool in ToolName::ALL {
        let mut answers = Vec::new();
        for id in [&foreign, &absent] {
            let Some(arguments) = by_id(tool, id) else { continue };
            let call = json!({ "name": tool.as_str(), "arguments": arguments });
            let response = app.client("writer").post("tools/call", call).await;
            answers.push((response.status(), response.text().await.unwrap().replace(id.as_str(), "ID")));
        }
        if let [first, second] = &answers[..] {
            assert_eq!(first, second, "{}", tool.as_str());
        }
    }
    // Nor does a scope that exists differ from one that does not, to whom neither is granted.
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

/// Each route as the source has it, a path of it, and what a GET gives to nobody, to a reader and to an administrator.
const ROUTES: [(&str, &str, [u16; 3]); 8] = [
    (r#""/mcp""#, "/mcp", [401, 405, 405]),
    (r#""/mcp/""#, "/mcp/", [401, 405, 405]),
    ("METADATA_PATH", "/.well-known/oauth-protected-resource", [200; 3]),
    (r#"&format!("{METADATA_PATH}/mcp")"#, "/.well-known/oauth-protected-resource/mcp", [200; 3]),
    (r#""/metrics""#, "/metrics", [401, 403, 200]),
    (r#""/openapi.json""#, "/openapi.json", [200; 3]),
    (r#""/livez""#, "/livez", [200; 3]),
    (r#""/readyz""#, "/readyz", [200; 3]),
];

#[tokio::test]
async fn every_route_asks_for_what_it_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> =
        fs::read_dir(root.join("http")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(root.join("http.rs"));
    // What stands below is described in /openapi.json, by which tests/it/rest.rs knows it.
    files.retain(|file| file.is_file());
    let mut found = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        assert!(!code.contains(".route_service(") && !code.contains(".nest("), "not looked for here yet");
        for (at, call) in code.match_indices(".route(") {
            let rest = &code[at + call.len()..];
            let end = rest.find(", ").unwrap();
            found.insert(rest[..end].trim().to_owned());
        }
    }
    assert_eq!(found, ROUTES.iter().map(|(source, _, _)| (*source).to_owned()).collect());

    let app = TestApp::builder().token("reader", &["user:1=read"]).start().await;
    for (_, path, expected) in ROUTES {
        for (token, expected) in [None, Some("reader"), Some(ADMIN)].into_iter().zip(expected) {
            let mut request = reqwest::Client::new().get(app.url(path));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), expected, "{path} {token:?}");
            assert_eq!(response.headers().contains_key("www-authenticate"), [401, 403].contains(&expected));
        }
    }
    app.stop().await;
}
