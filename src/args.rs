//! JSON arguments -> the typed arguments of a tool.
//!
//! What a client sends is written by a language model: strings stand where numbers or lists belong, names are almost
//! right. What is exactly meant is taken; everything else is refused with the name of the argument at fault. The
//! rules come from the same schema that the client was shown.

mod exact;
pub mod schema;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

pub use exact::{parse_exact, parse_query};

use crate::error::{Error, Result};
use crate::model::Scope;

/// The longest part of a caller's own text that a message repeats, in characters.
const ECHO_CHARS: usize = 64;
/// How alike (Jaro-Winkler) an unknown name must be to a known one to be offered it.
const ALIKE: f64 = 0.75;
/// Beyond this, not every whole number has a float of its own.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Reads a tool's arguments.
///
/// # Errors
/// `invalid_argument` with the name of the first argument that is unknown, missing, ill-typed or out of range.
pub fn parse<T: DeserializeOwned + JsonSchema>(arguments: Map<String, Value>) -> Result<T> {
    let schema = schema::input::<T>();
    let none = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut read = Map::new();
    for (name, value) in arguments {
        let Some(expected) = known.get(&name) else {
            return Err(unknown(&name, known));
        };
        if value.is_null() {
            continue;
        }
        let value = coerce(&name, value, expected)?;
        if let ("scope", Some(scope)) = (name.as_str(), value.as_str()) {
            Scope::parse(scope)?;
        }
        read.insert(name, value);
    }
    for name in
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    {
        if !read.contains_key(name) {
            let hint = describe(known.get(name).unwrap_or(&Value::Null));
            return Err(Error::invalid(name, format!("{name} is missing"), hint));
        }
    }
    serde_path_to_error::deserialize(Value::Object(read)).map_err(|error| {
        let path = error.path().to_string();
        let name = path.split(['.', '[']).next().unwrap_or_default();
        let hint = describe(known.get(name).unwrap_or(&Value::Null));
        Error::invalid(path.as_str(), format!("{path} cannot be read: {}", error.inner()), hint)
    })
}

fn unknown(name: &str, known: &Map<String, Value>) -> Error {
    // What is longer is like no argument, and takes long to compare.
    let name = echo(name);
    let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let nearest = known
        .keys()
        .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
        .filter(|(likeness, candidate)| *likeness >= ALIKE || candidate.contains(&name) && name.len() > 1)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((_, candidate)) => format!("Did you mean {candidate}? Known arguments: {names}."),
        None => format!("Known arguments: {names}."),
    };
    Error::invalid(name.as_str(), format!("{name} is no argument of this tool"), hint)
}

/// A caller's own text, cut and made printable, for a message.
fn echo(text: &str) -> String {
    let mut shown: String =
        text.chars().take(ECHO_CHARS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(ECHO_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// Brings `value` into the type that `expected` asks for, where it says exactly that.
fn coerce(field: &str, value: Value, expected: &Value) -> Result<Value> {
    let kind = expected.get("type").and_then(Value::as_str).unwrap_or_default();
    match (kind, value) {
        ("string", Value::String(text)) => choice(field, text, expected),
        ("integer", value) => {
            let number = number(value).and_then(whole).ok_or_else(|| mistyped(field, expected))?;
            in_range(field, number, expected)
        }
        ("number", value) => {
            in_range(field, number(value).ok_or_else(|| mistyped(field, expected))?, expected)
        }
        ("boolean", value @ Value::Bool(_)) | ("object", value @ Value::Object(_)) | ("", value) => Ok(value),
        ("boolean", Value::String(text)) => {
            text.parse().map(Value::Bool).map_err(|_| mistyped(field, expected))
        }
        ("array", value) => list(field, value, expected),
        ("object", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => Ok(value),
            _ => Err(mistyped(field, expected)),
        },
        _ => Err(mistyped(field, expected)),
    }
}

fn choice(field: &str, text: String, expected: &Value) -> Result<Value> {
    let Some(choices) = expected.get("enum").and_then(Value::as_array) else {
        return Ok(Value::String(text));
    };
    if choices.iter().any(|choice| choice == &text) {
        return Ok(Value::String(text));
    }
    Err(Error::invalid(field, format!("{field} cannot be {:?}", echo(&text)), describe(expected)))
}

/// A list, a list written as JSON in a string, or one string that stands for a list of one.
fn list(field: &str, value: Value, expected: &Value) -> Result<Value> {
    let items = match value {
        Value::Array(items) => items,
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Array(items)) => items,
            _ => vec![Value::String(text)],
        },
        _ => return Err(mistyped(field, expected)),
    };
    let item = expected.get("items").unwrap_or(&Value::Null);
    let items = items.into_iter().enumerate();
    items
        .map(|(at, value)| coerce(&format!("{field}[{at}]"), value, item))
        .collect::<Result<_>>()
        .map(Value::Array)
}

fn number(value: Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(number),
        Value::String(text) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}

/// The number without its fraction, where that is zero.
fn whole(number: Number) -> Option<Number> {
    if !number.is_f64() {
        return Some(number);
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_INTEGERS)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53 fits")]
    Some(Number::from(float as i64))
}

fn in_range(field: &str, number: Number, expected: &Value) -> Result<Value> {
    let bound = |key| expected.get(key).and_then(Value::as_f64);
    let float = number.as_f64().unwrap_or(f64::NAN);
    let above = bound("minimum").is_none_or(|minimum| float >= minimum);
    let below = bound("maximum").is_none_or(|maximum| float <= maximum);
    if above && below {
        return Ok(Value::Number(number));
    }
    Err(Error::invalid(field, format!("{field} is out of range: {number}"), describe(expected)))
}

fn mistyped(field: &str, expected: &Value) -> Error {
    let kind = match expected.get("type").and_then(Value::as_str).unwrap_or_default() {
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        _ => "an object",
    };
    Error::invalid(field, format!("{field} must be {kind}"), describe(expected))
}

/// What an argument takes, in a sentence or two.
fn describe(expected: &Value) -> String {
    let number = |key| expected.get(key).and_then(Value::as_f64);
    let text = |key| expected.get(key).and_then(Value::as_str).unwrap_or_default();
    let accepted = if let Some(choices) = expected.get("enum").and_then(Value::as_array) {
        let names = choices.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
        format!("One of: {names}.")
    } else {
        match (text("type"), number("minimum"), number("maximum")) {
            ("integer" | "number", Some(minimum), Some(maximum)) => format!("From {minimum} to {maximum}."),
            ("integer" | "number", Some(minimum), None) => format!("At least {minimum}."),
            ("string", ..) if text("format") == "date-time" => {
                "A date and time with its offset, for example 2026-01-31T09:30:00Z.".to_owned()
            }
            ("array", ..) => match expected.get("items").filter(|items| items.get("enum").is_some()) {
                Some(items) => return describe(items),
                None => "A list of strings.".to_owned(),
            },
            ("object", ..) => "A JSON object.".to_owned(),
            _ => String::new(),
        }
    };
    format!("{accepted} {}", text("description")).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::{ForgetArgs, ListArgs, RecallArgs, StoreArgs};
    use crate::model::Tier;

    fn read<T: DeserializeOwned + JsonSchema>(arguments: &Value) -> Result<T> {
        parse(arguments.as_object().unwrap().clone())
    }

    fn refused<T: DeserializeOwned + JsonSchema>(arguments: &Value) -> (String, String, String) {
        let error = read::<T>(arguments).err().unwrap_or_else(|| panic!("{arguments} was accepted"));
        assert_eq!(error.code(), "invalid_argument");
        (error.field().unwrap().to_owned(), error.to_string(), error.hint())
    }

    #[test]
    fn strings_that_are_exactly_a_value_are_that_value() {
        let args: RecallArgs = read(&json!({
            "query": "q", "k": "5", "min_score": "0.5", "include_superseded": "true", "tags": "[\"a\",\"b\"]",
            "tiers": "semantic",
        }))
        .unwrap();
        assert_eq!((args.k, args.min_score, args.include_superseded), (Some(5), Some(0.5), true));
        assert_eq!(args.tags, ["a", "b"]);
        assert_eq!(args.tiers, [Tier::Semantic]);
        let args: StoreArgs = read(&json!({"content": "c", "tags": "a,b", "metadata": "{\"a\":1}"})).unwrap();
        assert_eq!(args.tags, ["a,b"]);
        assert_eq!(args.metadata["a"], 1);
    }

    #[test]
    fn null_is_left_out_and_a_whole_float_is_an_integer() {
        let args: RecallArgs =
            read(&json!({"query": "q", "scope": null, "k": 5.0, "tags": null, "tiers": null})).unwrap();
        assert_eq!((args.k, args.scope), (Some(5), None));
        assert_eq!(refused::<RecallArgs>(&json!({"query": null})).1, "query is missing");
        assert_eq!(refused::<RecallArgs>(&json!({})).0, "query");
    }

    #[test]
    fn numbers_outside_their_range_are_refused_with_it() {
        for k in [
            json!(0),
            json!(101),
            json!(-1),
            json!(5.5),
            json!("5.5"),
            json!(1e300),
            json!(u64::MAX),
            json!("x"),
        ] {
            let (field, _, hint) = refused::<RecallArgs>(&json!({"query": "q", "k": k}));
            assert_eq!(field, "k", "{k}");
            assert!(hint.starts_with("From 1 to 100."), "{hint}");
        }
        for ttl in [json!(0), json!(-5), json!(31_536_001), json!(true), json!([1])] {
            assert_eq!(refused::<StoreArgs>(&json!({"content": "c", "ttl_seconds": ttl})).0, "ttl_seconds");
        }
        assert_eq!(refused::<RecallArgs>(&json!({"query": "q", "min_score": 1.5})).0, "min_score");
        assert_eq!(
            refused::<RecallArgs>(&json!({"query": "q", "max_chars": 4_294_967_296_u64})).0,
            "max_chars"
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_one() {
        let (field, message, hint) = refused::<StoreArgs>(&json!({"content": "c", "tag": ["a"]}));
        assert_eq!((field.as_str(), message.as_str()), ("tag", "tag is no argument of this tool"));
        assert!(hint.starts_with("Did you mean tags?") && hint.contains("idempotency_key"), "{hint}");
        assert!(refused::<ForgetArgs>(&json!({"id": "x"})).2.contains("Did you mean memory_id?"));
        assert!(refused::<ForgetArgs>(&json!({"zzz": 1})).2.starts_with("Known arguments:"));
        let long = "x".repeat(10_000);
        assert!(refused::<ForgetArgs>(&json!({ long: 1 })).0.len() < 100);
    }

    #[test]
    fn a_scope_is_one_name() {
        for scope in
            [json!(""), json!(" "), json!([]), json!(["user:1"]), json!(5), json!({}), json!("user:*")]
        {
            assert_eq!(refused::<ListArgs>(&json!({ "scope": scope })).0, "scope", "{scope}");
        }
    }

    #[test]
    fn ill_typed_values_are_refused_by_name() {
        for (arguments, field) in [
            (json!({"content": 5}), "content"),
            (json!({"content": ["a"]}), "content"),
            (json!({"content": "c", "tags": [1]}), "tags[0]"),
            (json!({"content": "c", "tags": ["a", null]}), "tags[1]"),
            (json!({"content": "c", "tags": {"a": 1}}), "tags"),
            (json!({"content": "c", "metadata": [1]}), "metadata"),
            (json!({"content": "c", "metadata": "text"}), "metadata"),
            (json!({"content": "c", "occurred_at": "yesterday"}), "occurred_at"),
            (json!({"content": "c", "occurred_at": 5}), "occurred_at"),
            (json!({"content": "c", "on_conflict": "merge"}), "on_conflict"),
        ] {
            assert_eq!(refused::<StoreArgs>(&arguments).0, field, "{arguments}");
        }
        assert!(
            refused::<StoreArgs>(&json!({"content": "c", "on_conflict": "merge"}))
                .2
                .starts_with("One of: newest")
        );
        assert_eq!(refused::<RecallArgs>(&json!({"query": "q", "tiers": ["deep"]})).0, "tiers[0]");
        assert_eq!(refused::<ForgetArgs>(&json!({"all": "yes"})).0, "all");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
            "[\\[\\]{}\",0-9a-z:]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_arguments_make_it_panic(values in prop::collection::vec((0_usize..20, any_json()), 0..6)) {
            let names: Vec<String> = schema::input::<RecallArgs>()["properties"].as_object().unwrap().keys().cloned()
                .chain(schema::input::<StoreArgs>()["properties"].as_object().unwrap().keys().cloned()).collect();
            let arguments: Map<String, Value> =
                values.into_iter().map(|(at, value)| (names[at % names.len()].clone(), value)).collect();
            let _ = parse::<RecallArgs>(arguments.clone());
            let _ = parse::<StoreArgs>(arguments.clone());
            if let Err(error) = parse::<ForgetArgs>(arguments) {
                prop_assert!(error.field().is_some());
            }
        }
    }
}
