//! One message of the client: what it is, the HTTP headers that go with it, and the errors that answer it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
/// The first of the codes that JSON-RPC leaves to servers: the message did not reach memser, or memser refused it.
const NOT_SERVED: i32 = -32000;
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A JSON object that the client sent.
pub(super) struct Message {
    pub(super) body: Bytes,
    fields: Value,
}

impl Message {
    /// Reads a line; gives what to answer where it is no message.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Value> {
        let fields: Value = serde_json::from_slice(line)
            .map_err(|_| error(None, PARSE_ERROR, "the line is not valid JSON", None))?;
        if fields.is_array() {
            return Err(error(
                None,
                INVALID_REQUEST,
                "batches are not supported; send one message a line",
                None,
            ));
        }
        if !fields.is_object() {
            return Err(error(None, INVALID_REQUEST, "the line is no JSON-RPC message", None));
        }
        Ok(Self { body: Bytes::copy_from_slice(line.trim_ascii()), fields })
    }

    pub(super) fn method(&self) -> Option<&str> {
        self.fields.get("method")?.as_str()
    }

    pub(super) fn id(&self) -> Option<&Value> {
        self.fields.get("id")
    }

    /// Whether it answers a request of the server's; memser makes none.
    pub(super) fn is_answer(&self) -> bool {
        self.fields.get("method").is_none()
            && (self.fields.get("result").is_some() || self.fields.get("error").is_some())
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_notification(&self) -> bool {
        self.id().is_none() && self.method().is_some()
    }

    /// The request that it calls off.
    pub(super) fn cancelled(&self) -> Option<&Value> {
        (self.method() == Some("notifications/cancelled")).then_some(())?;
        self.fields.pointer("/params/requestId")
    }

    /// What streamable HTTP wants said in headers: the version of the protocol, which is `negotiated` or, from 2026-07-28
    /// on, named in the message, and then also the method and what it is applied to.
    pub(super) fn headers(&self, negotiated: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value: Option<&str>| {
            if let Some(value) = value.and_then(header_value) {
                headers.insert(name, value);
            }
        };
        put("content-type", Some("application/json"));
        put("accept", Some("application/json, text/event-stream"));
        let named = self.fields["params"]["_meta"][VERSION].as_str();
        put("mcp-protocol-version", named.or(negotiated));
        if named.is_some() {
            put("mcp-method", self.method());
            put("mcp-name", self.name());
        }
        headers
    }

    fn name(&self) -> Option<&str> {
        let field = match self.method()? {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            _ => return None,
        };
        self.fields["params"][field].as_str()
    }
}

/// The value as it is where a header carries it, else in Base64 (MCP 2026-07-28, streamable HTTP).
fn header_value(value: &str) -> Option<HeaderValue> {
    let is_plain = value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && value.trim() == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_plain {
        return HeaderValue::from_str(value).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", BASE64_STANDARD.encode(value))).ok()
}

/// The error that answers a request which was not served.
pub(super) fn not_served(id: Option<&Value>, message: &str, hint: &str) -> Value {
    let data = json!({ "code": "unavailable", "hint": hint });
    error(id, NOT_SERVED, &format!("{message}. {hint}"), Some(data))
}

/// The error that answers a request which was refused over HTTP with this body.
pub(super) fn refused(id: Option<&Value>, status: StatusCode, body: &[u8]) -> Value {
    let mut said: Value = serde_json::from_slice(body).unwrap_or_default();
    if said["jsonrpc"] == "2.0" && said["error"].is_object() {
        // What could not be read as a whole was answered without the id, which is known here.
        said["id"] = id.cloned().unwrap_or_default();
        return said;
    }
    let words = |field: &str| said["error"][field].as_str().map(str::to_owned);
    let message = match words("message") {
        Some(message) => format!("memser refused the message (HTTP {}): {message}", status.as_u16()),
        None => format!("the answer is not memser's (HTTP {})", status.as_u16()),
    };
    let hint = match (status, words("hint")) {
        (StatusCode::UNAUTHORIZED, _) => "Check MEMSER_CLIENT_TOKEN.".to_owned(),
        (_, Some(hint)) => hint,
        (_, None) => "Check that --url is memser's address with /mcp.".to_owned(),
    };
    let mut answer = not_served(id, &message, &hint);
    if let Some(code) = words("code") {
        answer["error"]["data"]["code"] = json!(code);
    }
    answer
}

fn error(id: Option<&Value>, code: i32, message: &str, data: Option<Value>) -> Value {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &Value) -> Message {
        Message::parse(fields.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn headers(fields: &Value, negotiated: Option<&str>) -> Vec<(String, String)> {
        let headers = message(fields).headers(negotiated);
        let mcp = headers.iter().filter(|(name, _)| name.as_str().starts_with("mcp-"));
        mcp.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    #[test]
    fn what_is_no_message_is_answered_without_an_id() {
        for (line, code) in [
            (&b"{nope"[..], PARSE_ERROR),
            (b"\xff", PARSE_ERROR),
            (b"[{}]", INVALID_REQUEST),
            (b"7", INVALID_REQUEST),
        ] {
            let answer = Message::parse(line).err().unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)));
        }
    }

    #[test]
    fn older_versions_are_told_by_what_was_negotiated() {
        let call = json!({ "id": 1, "method": "tools/call", "params": { "name": "recall_memory" } });
        assert_eq!(headers(&call, None), []);
        let version = ("mcp-protocol-version".to_owned(), "2025-06-18".to_owned());
        assert_eq!(headers(&call, Some("2025-06-18")), [version]);
    }

    #[test]
    fn the_newest_version_has_its_method_and_name_in_headers() {
        let read = json!({ "id": 1, "method": "resources/read", "params": {
            "uri": "memory:///ü/1", "_meta": { VERSION: "2026-07-28" } } });
        let expected = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "resources/read"),
            ("mcp-name", "=?base64?bWVtb3J5Oi8vL8O8LzE=?="),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers(&read, Some("2025-06-18")), expected);
    }

    #[test]
    fn a_refusal_is_the_answer_of_its_request() {
        let id = json!("a");
        let said = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}"#;
        let answer = refused(Some(&id), StatusCode::PAYLOAD_TOO_LARGE, said);
        assert_eq!((&answer["id"], &answer["error"]["message"]), (&id, &json!("too large")));
        let said = br#"{"error":{"code":"rate_limited","message":"too many","hint":"Wait 1 s."}}"#;
        let answer = refused(Some(&id), StatusCode::TOO_MANY_REQUESTS, said);
        assert_eq!(answer["error"]["data"], json!({ "code": "rate_limited", "hint": "Wait 1 s." }));
        let answer = refused(Some(&id), StatusCode::BAD_GATEWAY, b"<html>");
        assert!(answer["error"]["message"].as_str().unwrap().contains("not memser's (HTTP 502)"), "{answer}");
    }
}
