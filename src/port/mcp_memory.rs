//! The official memory server: entities with observations, and relations. See docs/import.md for where its shape is from.

use std::io::{self, BufRead};

use serde::Deserialize;
use serde_json::json;

use super::detect::is_document;
use super::document::{elements, lines, parse};
use super::foreign::Foreign;
use super::{Entry, Give, Plan};

/// A thing that something is known of.
#[derive(Deserialize)]
struct Entity {
    name: String,
    #[serde(rename = "entityType")]
    kind: String,
    observations: Vec<String>,
}

/// How one thing stands to another.
#[derive(Deserialize)]
struct Relation {
    from: String,
    to: String,
    #[serde(rename = "relationType")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record {
    Entity(Entity),
    Relation(Relation),
}

/// Reads `memory.jsonl`, or the graph as one document.
pub(super) fn read(mut file: impl BufRead, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    let keys = ["entities", "relations"];
    if is_document(file.fill_buf()?, &keys) {
        return elements(file, &keys, give, &mut |key, line, json, give| {
            let record = match key {
                "relations" => parse(json).map(Record::Relation),
                "entities" => parse(json).map(Record::Entity),
                _ => parse(json),
            };
            tell(record, line, plan, give)
        });
    }
    lines(file, give, &mut |line, text, give| tell(parse(text), line, plan, give))
}

/// Gives what a record says, one memory after the other.
fn tell(record: Result<Record, String>, line: u64, plan: &Plan, give: &mut Give<'_>) -> bool {
    let memories = match record {
        Err(reason) => return give(Entry { line, what: Err(reason) }),
        Ok(Record::Entity(entity)) => of_entity(&entity),
        Ok(Record::Relation(relation)) => vec![of_relation(&relation)],
    };
    memories.into_iter().all(|memory| give(Entry { line, what: memory.into_line(plan) }))
}

/// Each observation begins with whom it is of; an entity without one is a memory of what it is.
fn of_entity(entity: &Entity) -> Vec<Foreign> {
    let name = &entity.name;
    let memory = |said: &str| Foreign {
        key: format!("{name}\n{said}"),
        content: format!("{name}: {said}"),
        tags: vec![entity.kind.clone()],
        source: Some(name.clone()),
        metadata: [("entity".to_owned(), json!(name)), ("entityType".to_owned(), json!(entity.kind))].into(),
        ..Foreign::default()
    };
    if entity.observations.is_empty() {
        return vec![memory(&entity.kind)];
    }
    entity.observations.iter().map(|said| memory(said)).collect()
}

fn of_relation(relation: &Relation) -> Foreign {
    let Relation { from, to, kind } = relation;
    Foreign {
        key: format!("{from}\n{kind}\n{to}"),
        content: format!("{from} {} {to}", kind.replace('_', " ")),
        tags: vec!["relation".to_owned()],
        source: Some(from.clone()),
        metadata: [
            ("from".to_owned(), json!(from)),
            ("relationType".to_owned(), json!(kind)),
            ("to".to_owned(), json!(to)),
        ]
        .into(),
        ..Foreign::default()
    }
}
