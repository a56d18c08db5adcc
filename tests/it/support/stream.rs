//! The notifications of one `subscriptions/listen`, as any HTTP client reads them.

use serde_json::{Value, json};

use super::TestApp;

const REVISION: &str = "2026-07-28";

/// An open stream of events.
pub struct Stream {
    response: reqwest::Response,
    unread: String,
}

/// Asks to be told; gives the answer, whatever it is.
pub async fn ask(app: &TestApp, token: &str, notifications: &Value) -> reqwest::Response {
    ask_at(&reqwest::Client::new(), &app.url("/mcp"), token, notifications).await
}

async fn ask_at(http: &reqwest::Client, url: &str, token: &str, notifications: &Value) -> reqwest::Response {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": REVISION,
                       "io.modelcontextprotocol/clientCapabilities": {} });
    let params = json!({ "notifications": notifications, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params });
    let request = http.post(url).bearer_auth(token).json(&body);
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("mcp-protocol-version", REVISION);
    request.header("mcp-method", "subscriptions/listen").send().await.unwrap()
}

impl Stream {
    /// Listens; gives what the server has confirmed, too.
    pub async fn open(app: &TestApp, token: &str, notifications: Value) -> (Self, Value) {
        Self::at(&app.url("/mcp"), token, notifications).await
    }

    /// The same at the address of any memser.
    pub async fn at(url: &str, token: &str, notifications: Value) -> (Self, Value) {
        Self::over(&reqwest::Client::new(), url, token, notifications).await
    }

    /// The same with an HTTP client of the test's own.
    pub async fn over(http: &reqwest::Client, url: &str, token: &str, notifications: Value) -> (Self, Value) {
        let response = ask_at(http, url, token, &notifications).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self { response, unread: String::new() };
        let confirmed = stream.next().await.unwrap();
        assert_eq!(confirmed["method"], "notifications/subscriptions/acknowledged", "{confirmed}");
        (stream, confirmed["params"]["notifications"].clone())
    }

    /// The next message; none once the stream has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data:"));
                let message = data.map(|data| serde_json::from_str(data.trim()).unwrap());
                self.unread = rest.to_owned();
                if message.is_some() {
                    return message;
                }
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.unread.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// What the next notification is about: a URI, or `list`.
    pub async fn told(&mut self) -> String {
        let message = self.next().await.expect("the stream has ended");
        let params = &message["params"];
        assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], "s", "{message}");
        match message["method"].as_str() {
            Some("notifications/resources/list_changed") => "list".to_owned(),
            Some("notifications/resources/updated") => params["uri"].as_str().unwrap().to_owned(),
            _ => panic!("{message}"),
        }
    }

    /// Reads to the end; whether the server has said that it is one.
    pub async fn ended(mut self) -> bool {
        let mut last = Value::Null;
        while let Some(message) = self.next().await {
            last = message;
        }
        last["id"] == "s" && last["result"]["resultType"] == "complete"
    }
}
