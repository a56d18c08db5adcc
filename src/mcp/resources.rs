//! Memories as resources: `memory:///{scope}/{id}`, both parts percent-encoded.
//!
//! A resource is what a person picks from a list, so that it is shown whole, as JSON with its source and times. Whether
//! the caller may read it is asked again at each reading.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData as McpError;
use rmcp::model::{
    Annotations, CacheScope, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;

use super::protocol_error;
use crate::api::{ListArgs, MemoryView};
use crate::auth::Caller;
use crate::engine::Engine;
use crate::error::Error;
use crate::model::{Action, Scope};

pub(super) const TEMPLATE: &str = "memory:///{scope}/{id}";
const PREFIX: &str = "memory:///";
const MEDIA_TYPE: &str = "application/json";
/// How much of a memory stands in a list.
const TITLE_CHARS: usize = 80;
/// What RFC 6570 leaves as it is in a simple expansion.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(TEMPLATE, "memory")
        .with_title("A memory")
        .with_description("One memory of a scope, with its source, times and history.")
        .with_mime_type(MEDIA_TYPE);
    ListResourceTemplatesResult::with_all_items(vec![template])
}

/// A page of what the caller may read, scope by scope, newest first in each.
pub(super) async fn list(
    engine: &Engine,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, McpError> {
    let page = engine.resources(caller, cursor).await.map_err(|error| protocol_error(&error))?;
    let resources = page.memories.iter().map(|memory| resource(&page.scope, memory)).collect();
    let mut result =
        ListResourcesResult::with_all_items(resources).with_ttl_ms(0).with_cache_scope(CacheScope::Private);
    result.next_cursor = page.next_cursor;
    Ok(result)
}

/// A foreign memory, an absent one and a URI that names none are answered alike.
pub(super) async fn read(
    engine: &Engine,
    caller: &Caller,
    uri: &str,
) -> Result<ReadResourceResult, McpError> {
    let memory = find(engine, caller, uri).await.map_err(|error| match error {
        Error::NotFound => McpError::resource_not_found("no such memory", Some(json!({ "uri": uri }))),
        error => protocol_error(&error),
    })?;
    let text = serde_json::to_string_pretty(&memory)
        .map_err(|error| protocol_error(&Error::Internal(error.into())))?;
    let contents = ResourceContents::text(text, uri).with_mime_type(MEDIA_TYPE);
    Ok(ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

/// Whether a URI is one of memories that the caller may read; whether there is such a memory does not matter.
#[must_use]
pub fn may_watch(caller: &Caller, uri: &str) -> bool {
    let scope = parse(uri).and_then(|(scope, _)| Scope::parse(&scope).ok());
    scope.is_some_and(|scope| caller.authorise(&scope, Action::Read).is_ok())
}

/// The memory at a URI, where the caller may read it; `not_found` whatever the reason.
pub(super) async fn find(engine: &Engine, caller: &Caller, uri: &str) -> crate::error::Result<MemoryView> {
    let (scope, id) = parse(uri).ok_or(Error::NotFound)?;
    let args = ListArgs { scope: Some(scope), memory_id: Some(id), ..ListArgs::default() };
    match engine.list(caller, args).await {
        Ok(listed) => listed.memories.into_iter().next().ok_or(Error::NotFound),
        Err(Error::Invalid { .. } | Error::ScopeNotGranted { .. } | Error::ActionNotGranted { .. }) => {
            Err(Error::NotFound)
        }
        Err(error) => Err(error),
    }
}

fn resource(scope: &str, memory: &MemoryView) -> Resource {
    let mut annotations = Annotations::default();
    annotations.last_modified = Some(memory.created_at.to_rfc3339());
    Resource::new(uri_of(scope, &memory.id.to_string()), memory.id.to_string())
        .with_title(title(&memory.content))
        .with_description(format!("{} memory of {scope}", memory.tier.as_str()))
        .with_mime_type(MEDIA_TYPE)
        .with_annotations(annotations)
}

/// How a memory's text begins, in one line.
pub(super) fn title(content: &str) -> String {
    let mut title: String =
        content.chars().take(TITLE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if content.chars().nth(TITLE_CHARS).is_some() {
        title.push('…');
    }
    title
}

pub(super) fn uri_of(scope: &str, id: &str) -> String {
    format!("{PREFIX}{}/{}", utf8_percent_encode(scope, ENCODED), utf8_percent_encode(id, ENCODED))
}

/// The scope and the id that a URI names.
pub(super) fn parse(uri: &str) -> Option<(String, String)> {
    let (scope, id) = uri.strip_prefix(PREFIX)?.split_once('/')?;
    let decoded = |part| percent_decode_str(part).decode_utf8().ok().map(String::from);
    Some((decoded(scope)?, decoded(id)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_uri_that_names_no_memory_is_none() {
        for uri in ["", "memory:", "memory:///", "memory:///user:1", "file:///user:1/x", "memory:///%ff/x"] {
            assert_eq!(parse(uri), None, "{uri}");
        }
        assert_eq!(uri_of("user:42/a b", "x"), "memory:///user%3A42%2Fa%20b/x");
        // What a person writes by hand is understood as well.
        assert_eq!(parse("memory:///user:1/x"), Some(("user:1".to_owned(), "x".to_owned())));
    }

    proptest! {
        #[test]
        fn every_scope_comes_back_from_its_uri(scope in ".{1,40}", id in "[0-9a-f-]{1,36}") {
            prop_assert_eq!(parse(&uri_of(&scope, &id)), Some((scope, id)));
        }
    }
}
