//! JSON schemas that every client can read: no references, no nullable types, no formats of Rust's own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

/// A schema as JSON.
pub type Schema = Arc<Map<String, Value>>;

/// What a schema is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    Arguments,
    Answer,
    AnswerOrError,
}

/// The schema of a tool's arguments; names that it does not list are refused.
#[must_use]
pub fn input<T: JsonSchema>() -> Schema {
    cached::<T>(Purpose::Arguments)
}

/// The schema of an answer.
#[must_use]
pub fn answer<T: JsonSchema>() -> Schema {
    cached::<T>(Purpose::Answer)
}

/// The schema of a tool's answer, or of the error in its place.
#[must_use]
pub fn output<T: JsonSchema>() -> Schema {
    cached::<T>(Purpose::AnswerOrError)
}

fn cached<T: JsonSchema>(purpose: Purpose) -> Schema {
    static CACHE: Mutex<Option<HashMap<(String, Purpose), Schema>>> = Mutex::new(None);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = cache.get_or_insert_default().entry((T::schema_id().into_owned(), purpose));
    Arc::clone(entry.or_insert_with(|| Arc::new(generate::<T>(purpose))))
}

fn generate<T: JsonSchema>(purpose: Purpose) -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.contract = match purpose {
            Purpose::Arguments => Contract::Deserialize,
            Purpose::Answer | Purpose::AnswerOrError => Contract::Serialize,
        };
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.remove("title");
    schema.remove("description");
    match purpose {
        Purpose::Arguments => {
            schema.insert("additionalProperties".to_owned(), json!(false));
        }
        Purpose::Answer => {}
        Purpose::AnswerOrError => or_an_error(&mut schema),
    }
    schema
}

/// Lets an error stand in place of the answer: the npm package `@modelcontextprotocol/sdk` and the inspector check the
/// structure of an `isError` result against the tool's schema too, and refuse one that does not fit.
fn or_an_error(schema: &mut Map<String, Value>) {
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    schema.insert("anyOf".to_owned(), json!([{ "required": required }, { "required": ["error"] }]));
    let error = json!({
        "type": "object",
        "description": "Only with isError: what is wrong and what to do.",
        "properties": {
            "code": { "type": "string", "description": "What kind of error, as a stable name." },
            "message": { "type": "string" },
            "hint": { "type": "string", "description": "What to do about it." },
            "field": { "type": "string", "description": "The argument at fault, where it is one." },
        },
        "required": ["code", "message", "hint"],
    });
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("error".to_owned(), error);
    }
}

/// Rewrites what clients stumble over, at every depth.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            name_the_choices(object);
            // Every format of Rust's own is a number's; date-time and uuid are standard and a string's.
            if !matches!(object.get("type"), Some(Value::String(kind)) if kind == "string")
                && object.get("format").is_some_and(Value::is_string)
            {
                object.remove("format");
            }
            if object.contains_key("type") && object.get("default").is_some_and(says_nothing) {
                object.remove("default");
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// A default that equals leaving the argument out.
fn says_nothing(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// `oneOf` of documented constants becomes `enum`, which every client knows, with the documentation in one text.
fn name_the_choices(object: &mut Map<String, Value>) {
    let Some(choices) = object.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let names: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    let Some(names) = names else { return };
    let meanings: Vec<String> = choices
        .iter()
        .filter_map(|choice| {
            Some(format!("{}: {}", choice["const"].as_str()?, choice["description"].as_str()?))
        })
        .collect();
    let description = object.get("description").and_then(Value::as_str).into_iter().map(str::to_owned);
    let description = description.chain(meanings).collect::<Vec<_>>().join(" ");
    object.remove("oneOf");
    object.insert("type".to_owned(), json!("string"));
    object.insert("enum".to_owned(), Value::Array(names));
    object.insert("description".to_owned(), Value::String(description));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ForgetArgs, ListAnswer, ListArgs, RecallAnswer, RecallArgs, StoreAnswer, StoreArgs};

    fn assert_portable(schema: &Value) {
        match schema {
            Value::Object(object) => {
                for key in ["$ref", "$defs", "oneOf", "anyOf", "allOf", "nullable"] {
                    assert!(!object.contains_key(key), "{key} in {schema}");
                }
                if let Some(kind) = object.get("type") {
                    assert!(kind.is_string() || kind.is_object(), "{schema}");
                }
                object.values().for_each(assert_portable);
            }
            Value::Array(items) => items.iter().for_each(assert_portable),
            _ => {}
        }
    }

    #[test]
    fn schemas_are_flat_and_without_null() {
        for schema in
            [input::<StoreArgs>(), input::<RecallArgs>(), input::<ForgetArgs>(), input::<ListArgs>()]
        {
            assert_portable(&Value::Object(schema.as_ref().clone()));
        }
        // An answer is one of two, and says so at its root alone; models do not get to see it.
        for schema in [output::<StoreAnswer>(), output::<RecallAnswer>(), output::<ListAnswer>()] {
            let mut schema = schema.as_ref().clone();
            assert!(schema.remove("anyOf").is_some());
            assert_portable(&Value::Object(schema));
        }
    }

    #[test]
    fn arguments_name_what_is_required_and_refuse_the_rest() {
        let schema = input::<StoreArgs>();
        assert_eq!(schema["required"], json!(["content"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["on_conflict"]["enum"], json!(["newest_wins", "flag", "keep_both"]));
        assert_eq!(schema["properties"]["ttl_seconds"]["type"], "integer");
        assert_eq!(schema["properties"]["occurred_at"]["format"], "date-time");
    }

    #[test]
    fn an_answer_lists_what_it_always_has_unless_it_is_an_error() {
        let schema = output::<StoreAnswer>();
        let required = schema["anyOf"][0]["required"].as_array().unwrap();
        assert!(required.contains(&json!("outcome")) && !required.contains(&json!("expires_at")));
        assert_eq!(schema["anyOf"][1]["required"], json!(["error"]));
        assert!(!schema.contains_key("required"));
        assert!(!schema.contains_key("additionalProperties"));
    }
}
