//! mem0 and `OpenMemory`. See docs/import.md for where their shapes are from.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::detect::is_document;
use super::document::{elements, lines, parse};
use super::foreign::{Foreign, time};
use super::line::Line;
use super::{Entry, Give, Plan};

/// Where the memories of a document are.
const KEYS: [&str; 3] = ["results", "memories", "records"];

#[derive(Deserialize)]
struct Record {
    /// What mem0 calls the text; `OpenMemory` calls it `content`.
    memory: Option<String>,
    content: Option<String>,
    id: Option<Value>,
    categories: Option<Vec<String>>,
    metadata: Option<Map<String, Value>>,
    user_id: Option<String>,
    agent_id: Option<String>,
    run_id: Option<String>,
    state: Option<String>,
    created_at: Option<Value>,
    /// Vectors are of another model.
    #[serde(rename = "embedding")]
    _embedding: Option<serde::de::IgnoredAny>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Reads what `get_all` or an export gives, or `OpenMemory`'s backup.
pub(super) fn read(mut file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    if is_document(file.fill_buf()?, &KEYS) {
        return elements(file, &KEYS, give, &mut |_, line, json, give| {
            give(Entry { line, what: parse(json).and_then(|record| of(record, plan)) })
        });
    }
    lines(file, give, &mut |line, text, give| {
        give(Entry { line, what: parse(text).and_then(|record| of(record, plan)) })
    })
}

fn of(record: Record, plan: &Plan) -> Result<Line, String> {
    if record.state.as_deref() == Some("deleted") {
        return Err("it was deleted there".to_owned());
    }
    let content = record.memory.or(record.content).ok_or("memory is missing")?;
    let owner = [("user", &record.user_id), ("agent", &record.agent_id), ("run", &record.run_id)];
    let owner = owner.iter().find_map(|(kind, id)| id.as_ref().map(|id| format!("{kind}:{id}")));
    // Its id is the same in every export; without one, what it says is.
    let key = match &record.id {
        Some(Value::String(id)) => id.clone(),
        Some(id) if !id.is_null() => id.to_string(),
        _ => content.clone(),
    };
    let mut metadata = record.metadata.unwrap_or_default();
    let known = [
        ("id", record.id),
        ("user_id", record.user_id.map(Value::from)),
        ("agent_id", record.agent_id.map(Value::from)),
        ("run_id", record.run_id.map(Value::from)),
        ("state", record.state.map(Value::from)),
    ];
    let mut rest = record.rest;
    rest.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    rest.retain(|_, value| !value.is_null());
    metadata.insert("mem0".to_owned(), Value::Object(rest));
    Foreign {
        key,
        owner,
        content,
        tags: record.categories.unwrap_or_default(),
        source: Some("mem0".to_owned()),
        metadata: metadata.into_iter().collect(),
        created_at: time("created_at", record.created_at.as_ref())?,
        occurred_at: None,
    }
    .into_line(plan)
}
