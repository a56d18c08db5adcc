//! A foreign id and an absent one are answered alike to the byte, and at like cost: Postgres executes the same statements,
//! and each node of their plans sees as many rows.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::changes::settled;
use crate::support::plans::{Plans, nodes, tell};
use crate::support::{TestApp, TestDatabase};

const TOKEN: &str = "administers-user-1";

/// A call that names a memory by `ID`, and perhaps one of the caller's own by `OWN`: how it is found in the descriptions, and what is sent.
struct Call {
    /// A tool's name with the argument, or an operation with it.
    described: &'static str,
    method: Method,
    path: &'static str,
    body: Value,
}

fn tool(described: &'static str, arguments: &Value) -> Call {
    let name = described.split(' ').next().unwrap();
    let params = json!({ "name": name, "arguments": arguments });
    mcp(described, "tools/call", &params)
}

fn mcp(described: &'static str, method: &str, params: &Value) -> Call {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Call { described, method: Method::POST, path: "/mcp", body }
}

fn rest(described: &'static str, path: &'static str, body: Value) -> Call {
    let method = described.split(' ').next().unwrap().to_uppercase().parse().unwrap();
    Call { described, method, path, body }
}

fn calls() -> Vec<Call> {
    vec![
        // First: it shows the other calls.
        rest("get /v1/audit memory_id", "/v1/audit?memory_id=ID", Value::Null),
        tool("store_memory replaces", &json!({ "content": "Corrected", "replaces": "ID" })),
        tool("forget_memory memory_id", &json!({ "memory_id": "ID" })),
        tool("forget_memory memory_id", &json!({ "memory_id": "ID", "erase": true })),
        tool("forget_memory memory_id", &json!({ "memory_id": "ID", "dry_run": true })),
        tool("list_memories memory_id", &json!({ "memory_id": "ID" })),
        tool("resolve_conflict memory_id", &json!({ "memory_id": "ID", "action": "restore" })),
        tool("resolve_conflict memory_id", &json!({ "memory_id": "ID", "action": "keep_new" })),
        tool(
            "resolve_conflict memory_id",
            &json!({ "memory_id": "ID", "action": "merge", "content": "Both" }),
        ),
        tool(
            "resolve_conflict other_id",
            &json!({ "memory_id": "OWN", "other_id": "ID", "action": "keep_new" }),
        ),
        mcp("resources/read", "resources/read", &json!({ "uri": "memory:///user%3A1/ID" })),
        rest("get /v1/memories/{id} id", "/v1/memories/ID", Value::Null),
        rest("delete /v1/memories/{id} id", "/v1/memories/ID", Value::Null),
        rest("delete /v1/memories/{id} id", "/v1/memories/ID?erase=true", Value::Null),
        rest("get /v1/memories memory_id", "/v1/memories?memory_id=ID", Value::Null),
        rest(
            "post /v1/memories replaces",
            "/v1/memories",
            json!({ "content": "Corrected", "replaces": "ID" }),
        ),
        rest(
            "post /v1/memories/batch replaces",
            "/v1/memories/batch",
            json!({ "memories": [{ "content": "Corrected", "replaces": "ID" }] }),
        ),
        rest("post /v1/forget memory_id", "/v1/forget", json!({ "memory_id": "ID" })),
        rest(
            "post /v1/conflicts/resolve memory_id",
            "/v1/conflicts/resolve",
            json!({ "memory_id": "ID", "action": "keep_old" }),
        ),
        rest(
            "post /v1/conflicts/resolve other_id",
            "/v1/conflicts/resolve",
            json!({ "memory_id": "OWN", "other_id": "ID", "action": "merge", "content": "Both" }),
        ),
    ]
}

/// The arguments that name a memory.
fn is_id(name: &str) -> bool {
    name == "id" || name.ends_with("_id") || name == "replaces"
}

/// Every argument of every tool and operation that names a memory, as they describe themselves.
async fn described(app: &TestApp) -> BTreeSet<String> {
    let mut found = BTreeSet::from(["resources/read".to_owned()]);
    let listed = app.admin().rpc("tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let names = tool["inputSchema"]["properties"].as_object().unwrap().keys();
        let name = tool["name"].as_str().unwrap();
        found.extend(names.filter(|argument| is_id(argument)).map(|argument| format!("{name} {argument}")));
    }
    let document: Value = app.get("/openapi.json").await.json().await.unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let mut names: Vec<String> =
                parameters.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            if let Some(reference) = body["$ref"].as_str() {
                let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
                names.extend(schema["properties"].as_object().unwrap().keys().cloned());
            }
            found.extend(
                names.iter().filter(|name| is_id(name)).map(|name| format!("{method} {path} {name}")),
            );
        }
    }
    // Its memories are objects as for storing one, which its schema does not repeat.
    found.insert("post /v1/memories/batch replaces".to_owned());
    found
}

/// What an answer gives away, and what Postgres did for it.
async fn observe(
    app: &TestApp,
    plans: &Plans,
    call: &Call,
    own: &str,
    id: &str,
) -> (u16, String, Vec<String>) {
    plans.take();
    let mut request = reqwest::Client::new()
        .request(call.method.clone(), app.url(&call.path.replace("ID", id)))
        .bearer_auth(TOKEN);
    if !call.body.is_null() {
        let body = call.body.to_string().replace("OWN", own);
        let body = body.replace("\"ID\"", &format!("\"{id}\"")).replace("/ID\"", &format!("/{id}\""));
        request = request.header("content-type", "application/json").body(body);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let mut answer = String::new();
    for (name, value) in response.headers() {
        // Of each answer its own.
        if !["x-request-id", "date"].contains(&name.as_str()) {
            answer.extend([name.as_str(), ": ", value.to_str().unwrap(), "\n"]);
        }
    }
    answer += &response.text().await.unwrap();
    app.engine.flush().await;
    let mut done = Vec::new();
    for executed in plans.take() {
        done.push(executed.statement);
        for node in nodes(&executed.plan) {
            let figures =
                ["Actual Rows", "Actual Loops", "Rows Removed by Filter", "Rows Removed by Index Recheck"];
            let figures: Vec<String> = figures.iter().map(|figure| node[*figure].to_string()).collect();
            done.push(format!("  {} {} {}", node["Node Type"], node["Relation Name"], figures.join(" ")));
        }
    }
    (status, answer.replace(id, "ID"), done)
}

#[tokio::test]
async fn a_foreign_id_costs_what_an_absent_one_costs() {
    let database = TestDatabase::create().await;
    tell(&mut database.connect().await).await;
    let app = TestApp::builder()
        .on(database)
        .set("DATABASE_MAX_CONNECTIONS", "2")
        .token(TOKEN, &["user:1=admin"])
        .start()
        .await;
    let calls = calls();
    let tested: BTreeSet<String> = calls.iter().map(|call| call.described.to_owned()).collect();
    assert_eq!(described(&app).await, tested, "each argument that names a memory has its call");

    let own = app.admin().store("user:1", "Something of mine").await;
    let foreign = app.admin().store("user:2", "Something of theirs").await;
    let absent = Uuid::new_v4().to_string();
    let plans = Plans::listen();
    // Telling of these two comes when it comes.
    settled(&app).await;
    for call in &calls {
        // What is looked up or compiled once is so before anything is compared.
        observe(&app, &plans, call, &own, &Uuid::new_v4().to_string()).await;
        let [of_absent, of_foreign] = [
            observe(&app, &plans, call, &own, &absent).await,
            observe(&app, &plans, call, &own, &foreign).await,
        ];
        assert!(of_absent.2.len() > 4, "{}: nothing was heard of Postgres", call.described);
        assert_eq!(of_absent, of_foreign, "{} {}", call.described, call.body);
    }
    // The foreign memory is as it was.
    assert_eq!(app.admin().recall("user:2", "theirs").await, ["Something of theirs"]);
    app.stop().await;
}
