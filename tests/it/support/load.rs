//! Callers that store without a pause, and what becomes of their calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const CALLERS: usize = 4;
/// After a call that failed.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// With the pause, a minute at least.
const MOST_FAILURES: usize = 2_400;

/// Callers, each of which stores one text after the other in a scope of its own. A call is sent again once, with the same
/// idempotency key, where nothing answered it, or a proxy that had no answer: 502, 503 or 504.
pub struct Load {
    tally: Arc<Tally>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Tally {
    ended: AtomicBool,
    stored: Mutex<Vec<String>>,
    repeated: AtomicU64,
    failures: Mutex<Vec<Failure>>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// There was no connection, or it ended without an answer.
    Unanswered,
    /// What the proxy said.
    Proxy(StatusCode),
    /// The code of memser's error.
    Refused(String),
}

impl Load {
    pub fn on(http: &reqwest::Client, url: &str, token: &str) -> Self {
        let tally = Arc::<Tally>::default();
        let callers = (0..CALLERS).map(|caller| {
            let (http, url, token, tally) =
                (http.clone(), url.to_owned(), token.to_owned(), Arc::clone(&tally));
            tokio::spawn(async move {
                let mut number = 0;
                while !tally.ended.load(Ordering::Relaxed) {
                    let text = format!("Caller {caller} has said the word number {number}.");
                    let mut call = store(&scope(caller), &text);
                    call["params"]["arguments"]["idempotency_key"] = json!(text);
                    let mut tried = once(&http, &url, &token, &call).await;
                    if matches!(tried, Err(Failure::Unanswered | Failure::Proxy(_))) {
                        tally.repeated.fetch_add(1, Ordering::Relaxed);
                        tried = once(&http, &url, &token, &call).await;
                    }
                    match tried {
                        Ok(()) => locked(&tally.stored).push(text),
                        Err(failure) => {
                            locked(&tally.failures).push(failure);
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    number += 1;
                }
            })
        });
        let callers = callers.collect();
        Self { tally, callers }
    }

    /// Waits for so many further calls, of which none may fail.
    pub async fn more(&self, calls: usize) {
        let enough = locked(&self.tally.stored).len() + calls;
        while locked(&self.tally.stored).len() < enough {
            assert_eq!(*locked(&self.tally.failures), []);
            self.look_later().await;
        }
    }

    /// Waits until a call has failed.
    pub async fn failure(&self) {
        while locked(&self.tally.failures).is_empty() {
            self.look_later().await;
        }
    }

    /// Waits until so many further calls have succeeded: those that have failed.
    pub async fn recovered(&self, calls: usize) -> Vec<Failure> {
        let enough = locked(&self.tally.stored).len() + calls;
        while locked(&self.tally.stored).len() < enough {
            assert!(locked(&self.tally.failures).len() < MOST_FAILURES, "nothing succeeds any more");
            self.look_later().await;
        }
        self.failures()
    }

    /// The calls that failed since it was last asked.
    pub fn failures(&self) -> Vec<Failure> {
        std::mem::take(&mut *locked(&self.tally.failures))
    }

    async fn look_later(&self) {
        assert!(!self.callers.iter().any(JoinHandle::is_finished), "a caller has given up");
        tokio::time::sleep(LOOK_EVERY).await;
    }

    /// Lets the calls under way end: the texts that are stored, as callers were told, and how many were sent twice.
    pub async fn end(self) -> (Vec<String>, u64) {
        self.tally.ended.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
        (std::mem::take(&mut *locked(&self.tally.stored)), self.tally.repeated.load(Ordering::Relaxed))
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scopes that the callers store in.
pub fn scopes() -> impl Iterator<Item = String> {
    (0..CALLERS).map(scope)
}

fn scope(caller: usize) -> String {
    format!("caller:{caller}")
}

/// A request that stores a text.
pub fn store(scope: &str, content: &str) -> Value {
    let arguments = json!({ "scope": scope, "content": content });
    let call = json!({ "name": "store_memory", "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call })
}

async fn once(http: &reqwest::Client, url: &str, token: &str, call: &Value) -> Result<(), Failure> {
    let sent = http.post(url).bearer_auth(token).json(call).send().await;
    let answer = sent.map_err(|_| Failure::Unanswered)?;
    let status = answer.status();
    if matches!(status.as_u16(), 502..=504) {
        return Err(Failure::Proxy(status));
    }
    let text = answer.text().await.map_err(|_| Failure::Unanswered)?;
    // A call that had to wait is answered as an event.
    let message = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
    let message: Value = serde_json::from_str(message).unwrap_or_else(|_| panic!("{status}: {text}"));
    let result = &message["result"];
    if result["isError"] == true {
        let code = result["structuredContent"]["error"]["code"].as_str().unwrap();
        return Err(Failure::Refused(code.to_owned()));
    }
    assert_eq!(result["structuredContent"]["outcome"], "stored", "{status}: {message}");
    Ok(())
}
