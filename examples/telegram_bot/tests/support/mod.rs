//! A Bot API that does what the test says, a memser of its own, and the bot as a program.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path as Segments, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;

pub(crate) const BOT_TOKEN: &str = "123456:the-token-of-the-bot";
const MEMSER_TOKEN: &str = "the-token-that-memser-gave";
/// For what never comes: a test fails then instead of hanging.
const NEVER: Duration = Duration::from_mins(3);

#[derive(Default, Clone)]
struct Seen {
    updates: Vec<Value>,
    /// The updates below it are acknowledged.
    offset: i64,
    sent: Vec<(i64, String)>,
    /// How many answers are refused with 429 first.
    busy: usize,
    refused: usize,
}

/// Telegram.
#[derive(Clone)]
pub(crate) struct Telegram {
    seen: Arc<watch::Sender<Seen>>,
    pub(crate) url: String,
    next: Arc<Mutex<i64>>,
}

impl Telegram {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let telegram = Self { seen: Arc::new(watch::Sender::default()), url, next: Arc::default() };
        let app = Router::new().route("/{bot}/{method}", post(call)).with_state(telegram.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        telegram
    }

    /// Somebody writes; the message's id is the update's.
    pub(crate) fn write(&self, chat: i64, text: &str) -> i64 {
        self.push("message", chat, None, text)
    }

    pub(crate) fn edit(&self, chat: i64, message: i64, text: &str) -> i64 {
        self.push("edited_message", chat, Some(message), text)
    }

    fn push(&self, kind: &str, chat: i64, message: Option<i64>, text: &str) -> i64 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        let id = *next;
        let about = if chat < 0 {
            json!({ "id": chat, "type": "supergroup", "title": "Team" })
        } else {
            json!({ "id": chat, "type": "private", "first_name": "Ada" })
        };
        let from = json!({ "id": chat.abs(), "is_bot": false, "first_name": "Ada" });
        let mut said = json!({
            "message_id": message.unwrap_or(id), "date": 1_790_000_000 + id, "chat": about, "from": from, "text": text
        });
        if message.is_some() {
            said["edit_date"] = json!(1_790_000_000 + id);
        }
        self.seen.send_modify(|seen| seen.updates.push(json!({ "update_id": id, kind: said })));
        id
    }

    /// Forgets what was acknowledged, as after a crash of the bot before its next request.
    pub(crate) fn deliver_again(&self, from: i64) {
        self.seen.send_modify(|seen| seen.offset = from);
    }

    pub(crate) fn refuse(&self, answers: usize) {
        self.seen.send_modify(|seen| seen.busy = answers);
    }

    pub(crate) fn refused(&self) -> usize {
        self.seen.borrow().refused
    }

    pub(crate) fn acknowledged(&self, update: i64) -> bool {
        self.seen.borrow().offset > update
    }

    pub(crate) async fn until_acknowledged(&self, update: i64) {
        let mut seen = self.seen.subscribe();
        tokio::time::timeout(NEVER, seen.wait_for(|seen| seen.offset > update)).await.unwrap().unwrap();
    }

    /// Writes a command and gives what the chat was answered until it was acknowledged.
    pub(crate) async fn ask(&self, chat: i64, command: &str) -> Vec<String> {
        let before = self.seen.borrow().sent.len();
        // The next update's acknowledgement comes after the answers to the one before it, whatever that one acknowledges.
        self.write(chat, command);
        let end = self.write(chat, "/unknown");
        self.until_acknowledged(end).await;
        let sent = self.seen.borrow().sent[before..].to_vec();
        sent.into_iter()
            .map(|(to, text)| {
                assert_eq!(to, chat);
                text
            })
            .collect()
    }
}

async fn call(
    State(telegram): State<Telegram>,
    Segments((bot, method)): Segments<(String, String)>,
    body: String,
) -> Response {
    assert_eq!(bot, format!("bot{BOT_TOKEN}"));
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let result = match method.to_ascii_lowercase().as_str() {
        "getme" => json!({
            "id": 1, "is_bot": true, "first_name": "Bot", "username": "memser_bot", "can_join_groups": true,
            "can_read_all_group_messages": true, "supports_inline_queries": false, "can_connect_to_business": false,
            "has_main_web_app": false
        }),
        "getupdates" => {
            let offset = body["offset"].as_i64().unwrap_or_default();
            telegram.seen.send_modify(|seen| seen.offset = seen.offset.max(offset));
            let mut seen = telegram.seen.subscribe();
            let due = |seen: &Seen| -> Vec<Value> {
                let from = seen.offset.max(offset);
                seen.updates
                    .iter()
                    .filter(|update| update["update_id"].as_i64() >= Some(from))
                    .cloned()
                    .collect()
            };
            let wait = Duration::from_secs(body["timeout"].as_u64().unwrap_or_default());
            let found = tokio::time::timeout(wait, seen.wait_for(|seen| !due(seen).is_empty())).await;
            found.map_or_else(|_| json!([]), |seen| json!(due(&seen.unwrap())))
        }
        "sendmessage" => {
            if telegram.seen.borrow().busy > 0 {
                telegram.seen.send_modify(|seen| {
                    seen.busy -= 1;
                    seen.refused += 1;
                });
                let refusal = json!({
                    "ok": false, "error_code": 429, "description": "Too Many Requests: retry after 1",
                    "parameters": { "retry_after": 1 }
                });
                return (StatusCode::TOO_MANY_REQUESTS, Json(refusal)).into_response();
            }
            let (chat, text) = (body["chat_id"].as_i64().unwrap(), body["text"].as_str().unwrap().to_owned());
            assert!(body.get("parse_mode").is_none(), "an answer is plain text");
            telegram.seen.send_modify(|seen| seen.sent.push((chat, text.clone())));
            json!({ "message_id": 1, "date": 1, "chat": { "id": chat, "type": "private", "first_name": "Ada" }, "text": text })
        }
        other => panic!("the bot calls {other}"),
    };
    Json(json!({ "ok": true, "result": result })).into_response()
}

/// memser in a process of its own, on a port that it keeps.
pub(crate) struct Memser {
    folder: TempDir,
    port: u16,
    settings: Vec<(&'static str, &'static str)>,
    child: Option<Child>,
}

impl Memser {
    pub(crate) async fn start(settings: &[(&'static str, &'static str)]) -> Self {
        let folder = TempDir::new().unwrap();
        // As root, Postgres runs as another user, who must get through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let tokens = folder.path().join("tokens.toml");
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let made = Command::new(program())
            .env_clear()
            .args(["token", "new", "--name", "bot", "--grant", "telegram:*=write", "--file"])
            .arg(&tokens)
            .output()
            .await
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(folder.path().join("token"), made.stdout.trim_ascii()).unwrap();
        let mut memser = Self { folder, port, settings: settings.to_vec(), child: None };
        memser.begin().await;
        memser
    }

    pub(crate) async fn begin(&mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(program());
        command.current_dir(root).env_clear().env("PATH", std::env::var("PATH").unwrap());
        for name in ["MEMSER_PG_BIN", "MEMSER_PG_USER"] {
            if let Ok(value) = std::env::var(name) {
                command.env(name, value);
            }
        }
        let mut child = command
            .env("HOME", self.folder.path())
            .env("EMBEDDER", "hash")
            .env("MEMSER_BIND", format!("127.0.0.1:{}", self.port))
            .env("MEMSER_DATA_DIR", self.folder.path().join("data"))
            .env("MEMSER_TOKENS_FILE", self.folder.path().join("tokens.toml"))
            .env("MEMSER_TOKEN", MEMSER_TOKEN)
            .envs(self.settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let serving = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.starts_with("memser serves MCP at") {
                    return true;
                }
            }
            false
        };
        assert!(tokio::time::timeout(NEVER, serving).await.unwrap(), "memser did not start");
        // Read on, so that memser never waits for a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        self.child = Some(child);
    }

    pub(crate) async fn end(&mut self) {
        let mut child = self.child.take().unwrap();
        let pid = child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        tokio::time::timeout(NEVER, child.wait()).await.unwrap().unwrap();
    }

    /// How often each memory of a scope was stated, superseded ones included.
    pub(crate) async fn supports(&self, scope: &str) -> Vec<i64> {
        let mut supports = Vec::new();
        for status in ["active", "superseded"] {
            let url = format!("{}/v1/memories?scope={scope}&status={status}", self.url());
            let answer = reqwest::Client::new().get(url).bearer_auth(self.token()).send().await.unwrap();
            let listed: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            supports.extend(
                listed["memories"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|memory| memory["support"].as_i64().unwrap()),
            );
        }
        supports
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("token")).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// The debug build of memser, which is beside that of the bot.
fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_memser-telegram-bot")).with_file_name("memser")
}

/// The bot as a program; its log is kept.
pub(crate) struct Bot {
    child: Child,
    log: watch::Receiver<String>,
}

impl Bot {
    pub(crate) fn start(telegram: &Telegram, memser: &Memser) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_memser-telegram-bot"))
            .env("TELEGRAM_BOT_TOKEN", BOT_TOKEN)
            .env("TELEGRAM_API_URL", &telegram.url)
            .env("MEMSER_URL", memser.url())
            .env("MEMSER_CLIENT_TOKEN", memser.token())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = watch::channel(String::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|log| *log = format!("{log}{line}\n"));
            }
        });
        Self { child, log }
    }

    pub(crate) async fn until_logged(&mut self, words: &str) {
        let logged = self.log.wait_for(|log| log.contains(words));
        tokio::time::timeout(NEVER, logged).await.unwrap().unwrap();
    }

    pub(crate) fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Without a chance to say goodbye.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
