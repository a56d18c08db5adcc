//! A plain MCP client: what any HTTP client sends, and what comes back.

use serde_json::{Value, json};

/// A caller of tools.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// What a tool answered.
#[derive(Debug)]
pub struct Outcome {
    pub is_error: bool,
    pub structure: Value,
    pub text: String,
}

impl Client {
    pub fn new(url: String, token: &str) -> Self {
        Self::over(reqwest::Client::new(), url, token)
    }

    /// The same with the connections of an HTTP client of the test's own.
    pub fn over(http: reqwest::Client, url: String, token: &str) -> Self {
        Self { http, url, token: token.to_owned() }
    }

    /// Sends a JSON-RPC request and gives the whole HTTP answer.
    pub async fn post(&self, method: &str, params: Value) -> reqwest::Response {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.http.post(&self.url).bearer_auth(&self.token).json(&body).send().await.unwrap()
    }

    /// Sends a JSON-RPC request that is answered with JSON.
    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        self.post(method, params).await.json().await.unwrap()
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        let answer = self.rpc("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let result = &answer["result"];
        assert!(result.is_object(), "{tool} gave a protocol error: {answer}");
        Outcome {
            is_error: result["isError"] == true,
            structure: result["structuredContent"].clone(),
            text: result["content"][0]["text"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// Calls a tool that has to succeed.
    pub async fn ok(&self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments).await;
        assert!(!outcome.is_error, "{tool} failed: {}", outcome.structure);
        outcome.structure
    }

    /// Calls a tool that has to fail; gives `structuredContent.error`.
    pub async fn refused(&self, tool: &str, arguments: Value) -> Value {
        let outcome = self.call(tool, arguments).await;
        assert!(outcome.is_error, "{tool} succeeded: {}", outcome.structure);
        outcome.structure["error"].clone()
    }

    /// Stores a text; none where the connection ended without an answer.
    pub async fn try_store(&self, scope: &str, content: &str) -> Option<Value> {
        let call = json!({ "name": "store_memory", "arguments": { "scope": scope, "content": content } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
        let sent = self.http.post(&self.url).bearer_auth(&self.token).json(&body).send().await.ok()?;
        Some(sent.json().await.expect("an answer that broke off"))
    }

    /// Stores a text and gives its id.
    pub async fn store(&self, scope: &str, content: &str) -> String {
        let stored = self.ok("store_memory", json!({ "scope": scope, "content": content })).await;
        stored["id"].as_str().unwrap().to_owned()
    }

    /// The texts that a recall finds, best first.
    pub async fn recall(&self, scope: &str, query: &str) -> Vec<String> {
        let found = self.ok("recall_memory", json!({ "scope": scope, "query": query })).await;
        contents(&found)
    }
}

/// The texts of a recall's or a list's answer.
pub fn contents(answer: &Value) -> Vec<String> {
    let memories = answer["memories"].as_array().unwrap();
    memories.iter().map(|memory| memory["content"].as_str().unwrap().to_owned()).collect()
}
