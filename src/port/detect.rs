//! Whose file it is, by the names of its fields.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Format;

/// How deep fields are looked for: a record of a list within an object.
const DEPTH: usize = 2;

/// Tells the format by the beginning of a file.
///
/// # Errors
/// Where it cannot be told; the words say what to do.
pub fn detect(head: &[u8]) -> Result<Format, String> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if head.starts_with(b"PK") || head.starts_with(b"\x1f\x8b") {
        return Err("it is an archive: unpack it and name the file within".to_owned());
    }
    let names = names(head);
    let has = |any: &[&str]| any.iter().any(|name| names.contains(*name));
    let all = |each: &[&str]| each.iter().all(|name| names.contains(*name));
    if all(&["type", "scope"]) || all(&["type", "format", "version"]) {
        Ok(Format::Memser)
    } else if has(&["mapping"]) {
        Ok(Format::ChatGpt)
    } else if has(&["chat_messages", "conversations_memory", "prompt_template"]) {
        Ok(Format::Claude)
    } else if has(&["entities", "entityType", "relationType"]) {
        Ok(Format::McpMemory)
    } else if has(&["export_metadata", "memory_type", "content_hash"]) {
        Ok(Format::McpMemoryService)
    } else if has(&["memory", "memories", "results", "categories"]) {
        Ok(Format::Mem0)
    } else {
        let known = Format::ALL.map(Format::name).join(", ");
        Err(format!("its format cannot be told: name it with --format, one of {known}"))
    }
}

/// Whether the beginning of a file is that of one document: a list, or an object with one of these fields. Otherwise it
/// has a record a line.
pub(super) fn is_document(head: &[u8], keys: &[&str]) -> bool {
    let seen = RefCell::new(BTreeSet::new());
    // It breaks off somewhere; what came before that counts.
    let _ = Names { into: &seen, depth: DEPTH }.deserialize(&mut serde_json::Deserializer::from_slice(head));
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    first == Some(&b'[') || keys.iter().any(|key| seen.borrow().contains(*key))
}

/// The names of the fields in the first value.
fn names(head: &[u8]) -> BTreeSet<String> {
    let into = RefCell::new(BTreeSet::new());
    // It breaks off somewhere; what came before that counts.
    let _ = Names { into: &into, depth: 0 }.deserialize(&mut serde_json::Deserializer::from_slice(head));
    into.into_inner()
}

/// Collects names from a value that is so deep already.
struct Names<'a> {
    into: &'a RefCell<BTreeSet<String>>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.into.borrow_mut().insert(name);
            if self.depth < DEPTH {
                map.next_value_seed(Names { into: self.into, depth: self.depth + 1 })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Names { into: self.into, depth: self.depth + 1 })?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_told_by_its_beginning_also_where_that_breaks_off() {
        for (format, head) in [
            (Format::Memser, r#"{"type":"header","format":"memser","version":1,"exp"#),
            (Format::Memser, r#"{"type":"memory","scope":"user:1","id":"#),
            (Format::McpMemory, r#"{"type":"entity","name":"Ann","entityType":"person","observations":["#),
            (Format::McpMemory, r#"{"type":"relation","from":"a","to":"b","relationType":"knows"}"#),
            (Format::McpMemory, "{\n  \"entities\": ["),
            (Format::Mem0, r#"{"results":[{"id":"1","memory":"x"}]}"#),
            (Format::Mem0, r#"[{"id":"1","memory":"x","hash":"y","metad"#),
            (Format::Mem0, r#"{"id":"1","content":"x","state":"active","app":null,"categories":[]}"#),
            (Format::McpMemoryService, r#"{"export_metadata":{"source_machine":"a"},"memories":[{"#),
            (Format::Claude, r#"[{"uuid":"1","name":"x","chat_messages":[{"text":"x"#),
            (Format::Claude, r#"[{"conversations_memory":"**Work**"#),
            (Format::Claude, r#"[{"uuid":"1","name":"x","description":"","prompt_template":"#),
            (Format::ChatGpt, "\u{feff}[{\"title\":\"x\",\"create_time\":1.5,\"mapping\":{"),
        ] {
            assert_eq!(detect(head.as_bytes()), Ok(format), "{head}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_said_with_the_way_out() {
        for head in ["", "[]", "{}", "hello", "[1,2]", r#"{"a":{"b":{"c":{"memory":1}}}}"#] {
            assert!(detect(head.as_bytes()).unwrap_err().contains("--format"), "{head}");
        }
        assert!(detect(b"PK\x03\x04").unwrap_err().contains("unpack"));
    }
}
