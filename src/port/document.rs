//! Documents of JSON, element by element, and files of a record a line.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead};

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::input::{Found, Input, Position, newlines, next_line};
use super::{Entry, Give};

/// Reads a record's JSON as what it has to be.
///
/// # Errors
/// Where it is something else; the reason names the place and nothing of what stands there.
pub(super) fn parse<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        match error.classify() {
            serde_json::error::Category::Data if path == "." => missing(&error.to_string()),
            serde_json::error::Category::Data => format!("{path}: {}", missing(&error.to_string())),
            _ => "it is no JSON".to_owned(),
        }
    })
}

/// A missing or unknown field by its name, which is the format's own; other complaints repeat what stands there.
fn missing(words: &str) -> String {
    if let Some(name) = words.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return format!("{name} is missing");
    }
    if words.starts_with("unknown field") {
        return "a field that the format does not have".to_owned();
    }
    if words.starts_with("unknown variant") {
        return "a kind that the format does not have".to_owned();
    }
    "not of the kind that the format has there".to_owned()
}

/// Reads a file with a record a line; empty lines are none. `each` gets the line's number and its text, and says whether
/// more are wanted.
pub(super) fn lines(
    mut file: impl BufRead,
    give: &mut Give<'_>,
    each: &mut dyn FnMut(u64, &str, &mut Give<'_>) -> bool,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for line in 1.. {
        let found = next_line(&mut file, &mut bytes)?;
        let refuse = |reason: &str| Entry { line, what: Err(reason.to_owned()) };
        let more = match (found, std::str::from_utf8(&bytes)) {
            (Found::End, _) => break,
            (Found::TooLong, _) => give(refuse("it is longer than 64 MiB")),
            (Found::Line, Err(_)) => give(refuse("it is no UTF-8")),
            (Found::Line, Ok(text)) if text.trim().is_empty() => true,
            (Found::Line, Ok(text)) => each(line, text, give),
        };
        if !more {
            break;
        }
    }
    Ok(())
}

/// Gets the key of the list that an element stands in (empty for the document itself), its line and its JSON; says
/// whether more are wanted.
type Each<'a> = dyn FnMut(&str, u64, &str) -> bool + 'a;

/// Reads a document that is a list, or an object in which some keys hold lists: each element by itself. Other keys are
/// passed over. Where the document is broken, that is the last entry.
pub(super) fn elements(
    file: impl BufRead,
    keys: &[&str],
    give: &mut Give<'_>,
    each: &mut dyn FnMut(&str, u64, &str, &mut Give<'_>) -> bool,
) -> io::Result<()> {
    let input = Input::new(file);
    let (at, stopped) = (input.position(), Cell::new(false));
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let mut each_here = |key: &str, line: u64, json: &str| {
        let more = each(key, line, json, give);
        stopped.set(!more);
        more
    };
    let document = Document { keys, at: &at, each: &mut each_here };
    let read = document.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    let Err(error) = read else { return Ok(()) };
    if stopped.get() {
        return Ok(());
    }
    let reason = match (error.io_error_kind(), error.classify()) {
        (Some(io::ErrorKind::FileTooLarge), _) => "an element from here on is longer than 64 MiB",
        (Some(_), _) => return Err(error.into()),
        (None, serde_json::error::Category::Eof) => "the file ends in the middle",
        (None, serde_json::error::Category::Syntax) => "it is no JSON from here on",
        (None, _) => "the document is not of the kind that the format has",
    };
    give(Entry { line: at.line(), what: Err(reason.to_owned()) });
    Ok(())
}

/// The document's own value.
struct Document<'a, 'e> {
    keys: &'a [&'a str],
    at: &'a Position,
    each: &'a mut Each<'e>,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records, or an object with one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Elements { key: "", at: self.at, each: self.each }.visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.keys.contains(&key.as_str()) {
                map.next_value_seed(Elements { key: &key, at: self.at, each: &mut *self.each })?;
            } else {
                map.next_value::<IgnoredAny>()?;
                self.at.next_record();
            }
        }
        Ok(())
    }
}

/// A list of records.
struct Elements<'a, 'e> {
    key: &'a str,
    at: &'a Position,
    each: &'a mut Each<'e>,
}

impl<'de> DeserializeSeed<'de> for Elements<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    /// `null` for a list of none.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<Box<RawValue>>()? {
            let json = element.get();
            let line = self.at.line() - newlines(json.as_bytes());
            self.at.next_record();
            if !(self.each)(self.key, line, json) {
                return Err(A::Error::custom("no more is wanted"));
            }
        }
        Ok(())
    }
}
