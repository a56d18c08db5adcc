//! What an update means for memser, and what the chat is answered.

use std::fmt::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use teloxide_core::types::{ChatId, Message, Update, UpdateKind, User};
use uuid::Uuid;

use crate::memory::{Answer, Memory};
use crate::text::{Said, read};

const HELP: &str = "I remember what is said here.\n\
    /recall WORDS: what I know about it\n\
    /memories: everything, newest first\n\
    /forget WORDS or an id: forgets the memory that fits best, and says which\n\
    Edit a message, and I remember it as it is then.";
/// How many memories a page of `/memories` has.
const PAGE: usize = 10;

/// Whether the update deletes something.
pub(crate) fn forgets(me: &str, update: &Update) -> bool {
    let UpdateKind::Message(message) = &update.kind else { return false };
    message.text().is_some_and(|text| matches!(read(text, me), Said::Forget(_)))
}

/// Does what an update asks for; the answer to send to which chat, if any.
///
/// # Errors
/// When memser is away, or refuses the token: the update is not done.
pub(crate) async fn answer(
    memory: &mut Memory,
    me: &str,
    update: Update,
) -> Result<Option<(ChatId, String)>> {
    let (message, edited) = match update.kind {
        UpdateKind::Message(message) => (message, false),
        UpdateKind::EditedMessage(message) => (message, true),
        _ => return Ok(None),
    };
    let Some(text) = message.text().or_else(|| message.caption()) else { return Ok(None) };
    // Other bots, and this one, are not remembered.
    let Some(sender) = message.from.as_ref().filter(|sender| !sender.is_bot) else { return Ok(None) };
    let mut chat = Chat { memory, scope: format!("telegram:{}", message.chat.id), actor: actor(sender) };
    let answer = match read(text, me) {
        Said::Statement("") | Said::Foreign => None,
        Said::Statement(statement) => chat.remember(&message, sender, statement, edited).await?,
        // An edited command was carried out when it was sent.
        _ if edited => None,
        Said::Help => Some(HELP.to_owned()),
        Said::Recall("") => Some("What about? For example: /recall Ada's cat".to_owned()),
        Said::Recall(words) => Some(chat.recall(words).await?),
        Said::Forget("") => Some("Which memory? For example: /forget Ada's cat".to_owned()),
        Said::Forget(which) => Some(chat.forget(which).await?),
        Said::Memories(cursor) => Some(chat.list(cursor).await?),
    };
    Ok(answer.map(|answer| (message.chat.id, answer)))
}

/// Who acts, for the audit log: the id, because names change.
fn actor(sender: &User) -> String {
    format!("telegram-user:{}", sender.id)
}

/// One chat's memories, for one update.
struct Chat<'a> {
    memory: &'a mut Memory,
    scope: String,
    actor: String,
}

impl Chat<'_> {
    async fn call(&mut self, tool: &'static str, arguments: Value) -> Result<Answer> {
        let mut all = Map::new();
        all.insert("scope".to_owned(), json!(self.scope));
        all.insert("actor".to_owned(), json!(self.actor));
        if let Value::Object(arguments) = arguments {
            all.extend(arguments);
        }
        self.memory.call(tool, all).await
    }

    /// Stores a statement, in place of what the message said before; answers only where it was not stored.
    async fn remember(
        &mut self,
        message: &Message,
        sender: &User,
        text: &str,
        edited: bool,
    ) -> Result<Option<String>> {
        let source = message.id.to_string();
        let mut store = json!({
            // With the speaker before it, what two people say of themselves is no contradiction.
            "content": format!("{}: {text}", sender.full_name()),
            "source": source,
            "occurred_at": message.date.to_rfc3339(),
        });
        if edited {
            let before = self.call("list_memories", json!({ "source": source, "limit": 1 })).await?;
            if let Answer::Done(before) = before
                && let Some(known) = before["memories"].get(0)
            {
                // An edit that comes again: it was stored.
                if known["content"] == store["content"] {
                    return Ok(None);
                }
                store["replaces"] = known["id"].clone();
            }
        } else {
            // A message that comes again gets the first answer again, also after an edit of it.
            store["idempotency_key"] = json!(format!("message-{source}"));
        }
        Ok(match self.call("store_memory", store).await? {
            Answer::Done(_) => None,
            Answer::Refused(why) => Some(format!("I could not remember that: {why}")),
        })
    }

    async fn recall(&mut self, words: &str) -> Result<String> {
        match self.call("recall_memory", json!({ "query": words, "k": 5 })).await? {
            Answer::Refused(why) => Ok(why),
            Answer::Done(found) => Ok(listed(&found, "I remember nothing about that.")),
        }
    }

    async fn list(&mut self, cursor: &str) -> Result<String> {
        let mut page = json!({ "limit": PAGE });
        if !cursor.is_empty() {
            page["cursor"] = json!(cursor);
        }
        Ok(match self.call("list_memories", page).await? {
            Answer::Refused(why) => why,
            Answer::Done(found) => {
                let mut text = listed(&found, "I remember nothing yet.");
                if let Some(next) = found["next_cursor"].as_str() {
                    let _ = write!(text, "\n\nMore: /memories {next}");
                }
                text
            }
        })
    }

    /// Forgets a memory by its id, or the best of those that hold a word of `which`.
    async fn forget(&mut self, which: &str) -> Result<String> {
        let (tool, arguments) = if which.parse::<Uuid>().is_ok() {
            ("list_memories", json!({ "memory_id": which }))
        } else {
            ("recall_memory", json!({ "query": which, "k": 5 }))
        };
        let found = match self.call(tool, arguments).await? {
            Answer::Refused(why) => return Ok(why),
            Answer::Done(found) => found,
        };
        // What is near in meaning alone is too little to delete by.
        let fits = |memory: &&Value| memory["why"]["lexical"].as_f64().is_none_or(|words| words > 0.0);
        let Some(memory) = found["memories"].as_array().into_iter().flatten().find(fits) else {
            return Ok("I remember nothing about that; nothing is forgotten.".to_owned());
        };
        Ok(match self.call("forget_memory", json!({ "memory_id": memory["id"] })).await? {
            Answer::Refused(why) => why,
            Answer::Done(_) => format!("Forgotten: {}", content(memory)),
        })
    }
}

fn content(memory: &Value) -> &str {
    memory["content"].as_str().unwrap_or_default()
}

/// Memories, each with the id that `/forget` takes.
fn listed(found: &Value, nothing: &str) -> String {
    let memories = found["memories"].as_array().map(Vec::as_slice).unwrap_or_default();
    if memories.is_empty() {
        return nothing.to_owned();
    }
    let line =
        |memory: &Value| format!("{}\n({})", content(memory), memory["id"].as_str().unwrap_or_default());
    memories.iter().map(line).collect::<Vec<_>>().join("\n\n")
}
