//! Arguments as programs write them: of exactly the type that the schema names, or as a query string, where everything
//! is text.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{mistyped, parse, schema};
use crate::error::{Error, Result};

/// Reads arguments of exactly the types of the schema. A program that writes another one has a fault worth knowing of,
/// which [`parse`] would hide.
///
/// # Errors
/// `invalid_argument` with the name of the first argument that is unknown, missing, ill-typed or out of range.
pub fn parse_exact<T: DeserializeOwned + JsonSchema>(arguments: Map<String, Value>) -> Result<T> {
    let schema = schema::input::<T>();
    let properties = schema.get("properties");
    for (name, value) in &arguments {
        // An unknown name is refused below, with what is known.
        if let Some(expected) = properties.and_then(|properties| properties.get(name)) {
            check(name, value, expected)?;
        }
    }
    parse(arguments)
}

/// Reads the arguments of a query string. A list is one name given several times.
///
/// # Errors
/// `invalid_argument` with the name of the first argument that is unknown, missing, ill-typed or out of range, or given
/// twice where there can be one.
pub fn parse_query<T: DeserializeOwned + JsonSchema>(pairs: Vec<(String, String)>) -> Result<T> {
    let schema = schema::input::<T>();
    let mut arguments = Map::new();
    for (name, value) in pairs {
        let expected = schema.get("properties").and_then(|properties| properties.get(&name));
        let is_list = expected.is_some_and(|expected| expected["type"] == "array");
        let value = Value::String(value);
        if !is_list {
            if arguments.insert(name.clone(), value).is_some() {
                let message = format!("{name} is given twice");
                return Err(Error::invalid(name, message, "Give it once."));
            }
        } else if let Value::Array(items) = arguments.entry(name).or_insert_with(|| Value::Array(Vec::new()))
        {
            items.push(value);
        }
    }
    parse(arguments)
}

fn check(field: &str, value: &Value, expected: &Value) -> Result<()> {
    let fits = match expected["type"].as_str().unwrap_or_default() {
        "string" => value.is_string(),
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if !fits {
        return Err(mistyped(field, expected));
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&format!("{field}[{at}]"), item, &expected["items"])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{ListArgs, RecallArgs, StoreArgs};

    fn exact<T: DeserializeOwned + JsonSchema>(arguments: Value) -> Result<T> {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        parse_exact(arguments)
    }

    fn query<T: DeserializeOwned + JsonSchema>(query: &str) -> Result<T> {
        parse_query(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    #[test]
    fn a_program_writes_the_type_that_is_meant() {
        let args: RecallArgs =
            exact(json!({ "query": "tea", "k": 5, "tags": ["a"], "min_score": 1 })).unwrap();
        assert_eq!((args.k, args.tags, args.min_score), (Some(5), vec!["a".to_owned()], Some(1.0)));
        for (arguments, field) in [
            (json!({ "query": "tea", "k": "5" }), "k"),
            (json!({ "query": "tea", "k": null }), "k"),
            (json!({ "query": "tea", "k": 1.5 }), "k"),
            (json!({ "query": "tea", "k": 0 }), "k"),
            (json!({ "query": "tea", "tags": "a" }), "tags"),
            (json!({ "query": "tea", "tags": [1] }), "tags[0]"),
            (json!({ "query": "tea", "tiers": [["episodic"]] }), "tiers[0]"),
            (json!({ "query": "tea", "include_superseded": "true" }), "include_superseded"),
            (json!({ "query": "tea", "limit": 1 }), "limit"),
            (json!({ "k": 1 }), "query"),
        ] {
            let error = exact::<RecallArgs>(arguments.clone()).unwrap_err();
            assert_eq!(error.field(), Some(field), "{arguments}");
        }
        assert_eq!(
            exact::<StoreArgs>(json!({ "content": "c", "metadata": "{}" })).unwrap_err().field(),
            Some("metadata")
        );
    }

    #[test]
    fn a_query_string_holds_text_and_names_given_several_times() {
        let args: ListArgs = query("scope=user%3A1&limit=5&tags=a&tags=%5B1%5D&tier=episodic").unwrap();
        assert_eq!((args.scope.as_deref(), args.limit), (Some("user:1"), Some(5)));
        assert_eq!(args.tags, ["a", "[1]"]);
        assert_eq!(query::<ListArgs>("tags=%5B%22a%22%5D").unwrap().tags, ["[\"a\"]"]);
        for (text, field) in [
            ("limit=5&limit=6", "limit"),
            ("limit=x", "limit"),
            ("limit=", "limit"),
            ("tier=deep", "tier"),
            ("k=1", "k"),
        ] {
            assert_eq!(query::<ListArgs>(text).unwrap_err().field(), Some(field), "{text}");
        }
    }
}
