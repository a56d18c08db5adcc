//! claude.ai's data export: conversations, what Claude remembers, and projects. See docs/import.md for where its shapes are
//! from.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::{Value, json};

use super::chat::{Chat, Message};
use super::detect::is_document;
use super::document::{elements, parse};
use super::foreign::{Foreign, time};
use super::{Entry, Give, Plan};

/// An element of any of the files.
#[derive(Deserialize)]
#[serde(untagged)]
enum Record {
    Conversation(Conversation),
    Project(Project),
    Memories(Memories),
}

#[derive(Deserialize)]
struct Conversation {
    uuid: String,
    name: Option<String>,
    created_at: Option<Value>,
    chat_messages: Vec<Said>,
}

#[derive(Deserialize)]
struct Said {
    uuid: Option<String>,
    sender: String,
    text: Option<String>,
    content: Option<Vec<Block>>,
    created_at: Option<Value>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
}

/// What Claude remembers: a text about the person, and one for each project.
#[derive(Deserialize)]
struct Memories {
    conversations_memory: Option<String>,
    project_memories: Option<BTreeMap<String, String>>,
}

impl Memories {
    const fn is_empty(&self) -> bool {
        self.conversations_memory.is_none() && self.project_memories.is_none()
    }
}

#[derive(Deserialize)]
struct Project {
    uuid: String,
    name: String,
    description: Option<String>,
    prompt_template: Option<String>,
    created_at: Option<Value>,
}

/// Reads `conversations.json`, `memories.json` or `projects.json`.
pub(super) fn read(mut file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    let head = file.fill_buf()?;
    let each = |json: &str, line: u64, give: &mut Give<'_>| tell(json, line, plan, give);
    if is_document(head, &["conversations"]) {
        return elements(file, &["conversations"], give, &mut |_, line, json, give| each(json, line, give));
    }
    // One element by itself, as in newer exports: a list of it.
    let listed = b"[".as_slice().chain(file).chain(b"]".as_slice());
    elements(listed, &[], give, &mut |_, line, json, give| each(json, line, give))
}

fn tell(json: &str, line: u64, plan: &Plan, give: &mut Give<'_>) -> bool {
    let give_all = |memories: Vec<Foreign>, give: &mut Give<'_>| {
        memories.into_iter().all(|memory| give(Entry { line, what: memory.into_line(plan) }))
    };
    match parse(json) {
        Ok(Record::Conversation(conversation)) => match messages(&conversation) {
            Ok(messages) => {
                let title = conversation.name.as_deref().unwrap_or_default();
                Chat { service: "claude", id: &conversation.uuid, title }.tell(messages, line, plan, give)
            }
            Err(reason) => give(Entry { line, what: Err(reason) }),
        },
        Ok(Record::Memories(memories)) if !memories.is_empty() => give_all(remembered(&memories), give),
        Ok(Record::Project(project)) => match about(&project) {
            Ok(memories) => give_all(memories, give),
            Err(reason) => give(Entry { line, what: Err(reason) }),
        },
        Ok(Record::Memories(_)) | Err(_) => {
            let reason = "it is no conversation, no memory and no project of claude.ai";
            give(Entry { line, what: Err(reason.to_owned()) })
        }
    }
}

fn messages(of: &Conversation) -> Result<Vec<Message>, String> {
    let began = time("created_at", of.created_at.as_ref())?;
    let mut messages = Vec::new();
    for (n, said) in of.chat_messages.iter().enumerate() {
        let at = time("created_at", said.created_at.as_ref())?.or(began);
        let key = said.uuid.clone().unwrap_or_else(|| n.to_string());
        messages.push(Message { key, is_user: said.sender == "human", text: text(said), at });
    }
    Ok(messages)
}

/// The blocks of text, without calls of tools and without thoughts; older exports have no blocks.
fn text(said: &Said) -> String {
    let is_text = |block: &&Block| block.kind.as_deref().is_none_or(|kind| kind == "text");
    let blocks = said.content.iter().flatten().filter(is_text).filter_map(|block| block.text.as_deref());
    let blocks: Vec<&str> = blocks.filter(|text| !text.trim().is_empty()).collect();
    if blocks.is_empty() { said.text.clone().unwrap_or_default() } else { blocks.join("\n") }
}

/// Paragraph by paragraph, each with the heading that it stands under.
fn remembered(of: &Memories) -> Vec<Foreign> {
    let mut memories = Vec::new();
    let about_user = of.conversations_memory.iter().map(|text| ("claude:memory".to_owned(), text));
    let projects = of.project_memories.iter().flatten();
    let projects = projects.map(|(project, text)| (format!("claude:project:{project}"), text));
    for (source, text) in about_user.chain(projects) {
        let mut heading = "";
        for paragraph in text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
            if is_heading(paragraph) {
                heading = paragraph.trim_matches(['*', '#', ' ', ':']);
                continue;
            }
            let content =
                if heading.is_empty() { paragraph.to_owned() } else { format!("{heading}: {paragraph}") };
            memories.push(Foreign {
                key: format!("{source}\n{content}"),
                content,
                tags: vec!["claude".to_owned(), "memory".to_owned()],
                source: Some(source.clone()),
                ..Foreign::default()
            });
        }
    }
    memories
}

fn is_heading(paragraph: &str) -> bool {
    let is_bold = paragraph.starts_with("**") && paragraph.trim_end_matches(':').ends_with("**");
    !paragraph.contains('\n') && (paragraph.starts_with('#') || is_bold)
}

/// What a project is about and how it wants Claude to work. Its documents are files, and no memories.
fn about(project: &Project) -> Result<Vec<Foreign>, String> {
    let at = time("created_at", project.created_at.as_ref())?;
    let texts = [("description", &project.description), ("instructions", &project.prompt_template)];
    let texts = texts.into_iter().filter_map(|(kind, text)| Some((kind, text.as_deref()?.trim())));
    let memory = |(kind, text): (&str, &str)| Foreign {
        key: format!("{}\n{kind}", project.uuid),
        content: format!("{}: {text}", project.name),
        tags: vec!["claude".to_owned(), "project".to_owned(), kind.to_owned()],
        source: Some(format!("claude:project:{}", project.uuid)),
        metadata: [("project".to_owned(), json!(project.uuid)), ("name".to_owned(), json!(project.name))]
            .into(),
        created_at: at,
        ..Foreign::default()
    };
    Ok(texts.filter(|(_, text)| !text.is_empty()).map(memory).collect())
}
