//! mcp-memory-service. See docs/import.md for where its shape is from.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::document::{elements, parse};
use super::foreign::{Foreign, time};
use super::line::Line;
use super::{Entry, Give, Plan};

#[derive(Deserialize)]
struct Record {
    content: String,
    content_hash: Option<String>,
    tags: Option<Tags>,
    memory_type: Option<String>,
    metadata: Option<Map<String, Value>>,
    created_at: Option<Value>,
    /// Vectors are of another model.
    #[serde(rename = "embedding")]
    _embedding: Option<serde::de::IgnoredAny>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A list; older versions joined it with commas.
#[derive(Deserialize)]
#[serde(untagged)]
enum Tags {
    List(Vec<String>),
    Joined(String),
}

impl Tags {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::List(tags) => tags,
            Self::Joined(tags) => {
                tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
            }
        }
    }
}

/// Reads the `memories` of an export.
pub(super) fn read(file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    elements(file, &["memories"], give, &mut |_, line, json, give| {
        give(Entry { line, what: parse(json).and_then(|record| of(record, plan)) })
    })
}

fn of(record: Record, plan: &Plan) -> Result<Line, String> {
    let mut metadata = record.metadata.unwrap_or_default();
    let mut rest = record.rest;
    let known = [("content_hash", &record.content_hash), ("memory_type", &record.memory_type)];
    for (name, value) in known {
        rest.insert(name.to_owned(), value.clone().into());
    }
    rest.retain(|_, value| !value.is_null());
    metadata.insert("mcp-memory-service".to_owned(), Value::Object(rest));
    Foreign {
        key: record.content_hash.unwrap_or_else(|| record.content.clone()),
        owner: None,
        content: record.content,
        tags: record.tags.map(Tags::into_list).unwrap_or_default(),
        source: Some("mcp-memory-service".to_owned()),
        metadata: metadata.into_iter().collect(),
        created_at: time("created_at", record.created_at.as_ref())?,
        occurred_at: None,
    }
    .into_line(plan)
}
