//! `ChatGPT`'s data export. See docs/import.md for where its shape is from.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::Value;

use super::chat::{Chat, Message};
use super::document::{elements, parse};
use super::foreign::time;
use super::{Entry, Give, Plan};

#[derive(Deserialize)]
struct Conversation {
    id: Option<String>,
    /// The same, where it has this one.
    #[serde(rename = "conversation_id")]
    own_id: Option<String>,
    title: Option<String>,
    create_time: Option<Value>,
    current_node: Option<String>,
    mapping: HashMap<String, Node>,
}

#[derive(Deserialize)]
struct Node {
    message: Option<Said>,
    parent: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    author: Author,
    create_time: Option<Value>,
    content: Option<Content>,
    recipient: Option<String>,
    #[serde(default)]
    metadata: Hints,
}

#[derive(Deserialize)]
struct Author {
    role: String,
}

#[derive(Deserialize)]
struct Content {
    content_type: Option<String>,
    /// Texts, and objects for pictures and files.
    #[serde(default)]
    parts: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct Hints {
    is_visually_hidden_from_conversation: Option<bool>,
}

/// Reads `conversations.json`.
pub(super) fn read(file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    elements(file, &["conversations"], give, &mut |_, line, json, give| match parse(json)
        .and_then(|conversation: Conversation| messages(conversation))
    {
        Ok((id, title, messages)) => {
            Chat { service: "chatgpt", id: &id, title: &title }.tell(messages, line, plan, give)
        }
        Err(reason) => give(Entry { line, what: Err(reason) }),
    })
}

/// A conversation's id, title and messages: those of the branch that was shown last, from its first on.
fn messages(mut of: Conversation) -> Result<(String, String, Vec<Message>), String> {
    let id = of.own_id.or(of.id).ok_or("id is missing")?;
    let began = time("create_time", of.create_time.as_ref())?;
    let mut at = of.current_node.or_else(|| only_leaf(&of.mapping));
    let mut messages = Vec::new();
    // Taken out of the map, a node cannot come again, whatever the parents say.
    while let Some((key, node)) = at.and_then(|key| of.mapping.remove_entry(&key)) {
        if let Some(said) = node.message
            && let Some((is_user, text)) = spoken(&said)
        {
            let at = time("create_time", said.create_time.as_ref())?.or(began);
            messages.push(Message { key, is_user, text, at });
        }
        at = node.parent;
    }
    messages.reverse();
    Ok((id, of.title.unwrap_or_default(), messages))
}

/// The node that is nobody's parent, of a conversation that does not name its last one.
fn only_leaf(mapping: &HashMap<String, Node>) -> Option<String> {
    let parents: HashSet<&String> = mapping.values().filter_map(|node| node.parent.as_ref()).collect();
    let mut leaves: Vec<&String> = mapping.keys().filter(|key| !parents.contains(key)).collect();
    leaves.sort();
    leaves.pop().cloned()
}

/// What a person or the assistant said to the other, as text: no calls of tools, nothing hidden.
fn spoken(said: &Said) -> Option<(bool, String)> {
    let is_user = match said.author.role.as_str() {
        "user" => true,
        "assistant" => false,
        _ => return None,
    };
    if said.metadata.is_visually_hidden_from_conversation == Some(true)
        || said.recipient.as_deref().is_some_and(|to| to != "all")
    {
        return None;
    }
    let content = said.content.as_ref()?;
    if !matches!(content.content_type.as_deref(), None | Some("text" | "multimodal_text")) {
        return None;
    }
    let texts: Vec<&str> = content.parts.iter().filter_map(Value::as_str).collect();
    Some((is_user, texts.join("\n")))
}
