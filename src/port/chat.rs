//! What the messages of a conversation become: one memory each, told by whom, in the order of the conversation.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::foreign::Foreign;
use super::{Entry, Give, Plan};

/// A conversation.
pub(super) struct Chat<'a> {
    /// Whose service: the first part of its source, and a tag.
    pub(super) service: &'static str,
    /// Its id there.
    pub(super) id: &'a str,
    /// What it is called.
    pub(super) title: &'a str,
}

/// A message of it.
pub(super) struct Message {
    /// Its id there; what it says where it has none.
    pub(super) key: String,
    /// Whether a person wrote it.
    pub(super) is_user: bool,
    pub(super) text: String,
    pub(super) at: Option<DateTime<Utc>>,
}

impl Chat<'_> {
    /// Gives the messages of a conversation, which began in `line`; whether more are wanted.
    pub(super) fn tell(
        &self,
        messages: impl IntoIterator<Item = Message>,
        line: u64,
        plan: &Plan,
        give: &mut Give<'_>,
    ) -> bool {
        messages
            .into_iter()
            .filter(|message| !message.text.trim().is_empty())
            .all(|message| give(Entry { line, what: self.memory(&message).into_line(plan) }))
    }

    fn memory(&self, message: &Message) -> Foreign {
        let (speaker, tag) = if message.is_user { ("User", "user") } else { ("Assistant", "assistant") };
        Foreign {
            key: format!("{}\n{}", self.id, message.key),
            owner: None,
            content: format!("{speaker}: {}", message.text.trim()),
            tags: vec![self.service.to_owned(), tag.to_owned()],
            source: Some(format!("{}:{}", self.service, self.id)),
            metadata: [
                ("conversation".to_owned(), json!(self.id)),
                ("title".to_owned(), json!(self.title)),
                ("message".to_owned(), json!(message.key)),
            ]
            .into(),
            created_at: message.at,
            occurred_at: message.at,
        }
    }
}
