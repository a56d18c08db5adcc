//! What memser talks about, parsed into types that cannot be wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use uuid::Uuid;

use crate::error::{Error, Result};

/// The longest scope name, in characters.
const SCOPE_MAX_CHARS: usize = 256;
/// The most tags of one memory.
pub const TAGS_MAX: usize = 32;
/// The longest tag, source or actor, in characters.
const LABEL_MAX_CHARS: usize = 256;
/// What a memory that was stated once is trusted; further sources raise it.
pub const FIRST_CONFIDENCE: f32 = 0.8;

/// A tenancy boundary: a user, an agent, a session. 1 to 256 printable characters without `*`, trimmed and in NFC.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Scope(String);

impl Scope {
    /// Parses a scope's name.
    ///
    /// # Errors
    /// `invalid_argument` on `scope` when the name is empty, too long, or has a `*` or an unprintable character.
    pub fn parse(name: &str) -> Result<Self> {
        let hint = "A scope is 1 to 256 printable characters without '*', for example user:42.";
        let name: String = name.trim().nfc().collect();
        if name.is_empty() {
            return Err(Error::invalid("scope", "scope is empty", hint));
        }
        if name.chars().count() > SCOPE_MAX_CHARS {
            return Err(Error::invalid("scope", "scope is longer than 256 characters", hint));
        }
        if name.contains('*') || name.chars().any(is_unprintable) {
            return Err(Error::invalid("scope", "scope has a '*' or an unprintable character", hint));
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Control characters and characters that cannot be seen: two scopes that look alike must not be two scopes. Those of
/// Unicode's `Default_Ignorable_Code_Point`, of line and paragraph separators, and of interlinear annotations.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What a grant allows; each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Recall and list.
    Read,
    /// Store, forget and consolidate.
    Write,
    /// Resolve conflicts.
    Review,
    /// Everything.
    Admin,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Review => "review",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            "review" => Ok(Self::Review),
            "admin" => Ok(Self::Admin),
            other => Err(format!("{other:?} is none of read, write, review, admin")),
        }
    }
}

/// How long a memory is meant to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Expires by itself after its `ttl_seconds`.
    Working,
    /// One statement or event, kept until forgotten.
    Episodic,
    /// A fact consolidated from several episodic memories.
    Semantic,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Self; 3] = [Self::Working, Self::Episodic, Self::Semantic];

    /// The name in the API and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Episodic => "episodic",
            Self::Semantic => "semantic",
        }
    }

    /// Reads a durable tier as the database holds it.
    ///
    /// # Errors
    /// `internal` for a name that the schema does not allow.
    pub fn from_db(name: &str) -> Result<Self> {
        match name {
            "episodic" => Ok(Self::Episodic),
            "semantic" => Ok(Self::Semantic),
            _ => Err(Error::internal("a memory row has an unknown tier")),
        }
    }
}

/// What to do with a memory that a new one contradicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictPolicy {
    /// The new memory supersedes the old one, which is kept as history.
    #[default]
    NewestWins,
    /// Both stay active and the pair waits for review.
    Flag,
    /// Both stay active.
    KeepBoth,
}

/// Which part of a scope's memories to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TagsMatch {
    /// A memory must carry every tag.
    #[default]
    All,
    /// One of the tags is enough.
    Any,
}

/// A durable memory as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Unique within everything memser stores; sorts by time of storing.
    pub id: Uuid,
    /// Where it lives.
    pub tier: Tier,
    /// The text, exactly as stored.
    pub content: String,
    /// Labels for filtering.
    pub tags: Vec<String>,
    /// Where it came from: a conversation, a file, a tool.
    pub source: Option<String>,
    /// Who stored it, as the caller said.
    pub actor: Option<String>,
    /// The caller's own data; memser never interprets it.
    pub metadata: BTreeMap<String, serde_json::Value>,
    /// 0 to 1.
    pub confidence: f32,
    /// How often it was explicitly stated.
    pub support: i32,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// When what it tells happened, where the caller said so.
    pub occurred_at: Option<DateTime<Utc>>,
    /// From when on it holds.
    pub valid_from: DateTime<Utc>,
    /// Until when it held; active exactly while `None`.
    pub valid_to: Option<DateTime<Utc>>,
    /// The memory that superseded it, while that one exists.
    pub superseded_by: Option<Uuid>,
    /// Why it was superseded.
    pub superseded_reason: Option<String>,
    /// When a working memory expires.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Memory {
    /// Whether it carries all of `tags`, or any of them where one is enough; no tags ask for nothing.
    #[must_use]
    pub fn carries(&self, tags: &[String], any: bool) -> bool {
        let mut found = tags.iter().map(|tag| self.tags.contains(tag));
        if any { tags.is_empty() || found.any(|found| found) } else { found.all(|found| found) }
    }
}

/// Checks a memory's text.
///
/// # Errors
/// `invalid_argument` on `content` when it is empty or has a NUL; `limit_exceeded` when it is longer than `max_bytes`.
pub fn check_content(content: &str, max_bytes: usize) -> Result<()> {
    let hint = "Send the text to remember, as plain text.";
    if content.contains('\0') {
        return Err(Error::invalid("content", "content has a NUL character", hint));
    }
    if content.chars().all(|c| c.is_whitespace() || is_unprintable(c)) {
        return Err(Error::invalid("content", "content is empty", hint));
    }
    if content.len() > max_bytes {
        return Err(Error::LimitExceeded {
            field: Some("content".to_owned()),
            message: format!("content has {} bytes; the limit is {max_bytes}", content.len()),
        });
    }
    Ok(())
}

/// Checks tags and drops repeats, keeping the caller's order.
///
/// # Errors
/// `invalid_argument` on `tags` when there are more than 32 or one is empty, too long or has a NUL.
pub fn check_tags(tags: Vec<String>) -> Result<Vec<String>> {
    let hint = "Up to 32 tags of 1 to 256 characters each.";
    if tags.len() > TAGS_MAX {
        return Err(Error::invalid("tags", format!("{} tags are more than 32", tags.len()), hint));
    }
    let mut distinct: Vec<String> = Vec::with_capacity(tags.len());
    for tag in tags {
        if tag.is_empty() || tag.contains('\0') || tag.chars().count() > LABEL_MAX_CHARS {
            return Err(Error::invalid("tags", "a tag is empty, too long or has a NUL character", hint));
        }
        if !distinct.contains(&tag) {
            distinct.push(tag);
        }
    }
    Ok(distinct)
}

/// Checks a short free text such as `source` or `actor`; white space at the ends is dropped, an empty one is none.
///
/// # Errors
/// `invalid_argument` on `field` when it is longer than 256 characters or has a control character.
pub fn check_label(field: &'static str, text: Option<String>) -> Result<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    let text = text.trim();
    if text.chars().count() > LABEL_MAX_CHARS || text.chars().any(char::is_control) {
        return Err(Error::invalid(
            field,
            format!("{field} is longer than 256 characters or has a control character"),
            "Send a short name.",
        ));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Checks a time: one that RFC 3339 can write. Postgres knows some others, but not all that chrono does.
///
/// # Errors
/// `invalid_argument` on `field` when its year is not one of 1 to 9999.
pub fn check_time(field: &'static str, at: DateTime<Utc>) -> Result<DateTime<Utc>> {
    if (1..=9999).contains(&at.year()) {
        return Ok(at);
    }
    Err(Error::invalid(field, format!("{field} is out of range"), "A time between the years 1 and 9999."))
}

/// Parses the id of a memory.
///
/// # Errors
/// `invalid_argument` on `field` when it is no UUID.
pub fn parse_id(field: &'static str, text: &str) -> Result<Uuid> {
    Uuid::try_parse(text.trim()).map_err(|_| {
        Error::invalid(
            field,
            format!("{field} is not a UUID"),
            "Use an id as store, recall or list returned it.",
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scopes_are_trimmed_and_composed() {
        assert_eq!(Scope::parse("  caf\u{65}\u{301} ").unwrap().as_str(), "caf\u{e9}");
    }

    #[test]
    fn scopes_that_could_mean_another_are_refused() {
        for name in [
            "",
            "  ",
            "*",
            "user:*",
            "a\0b",
            "a\u{200b}b",
            "a\nb",
            "a\u{202e}b",
            "a\u{fe0f}",
            "a\u{3164}",
            "a\u{61c}",
            "a\u{e0041}",
            "a\u{e0101}",
            &"x".repeat(257),
        ] {
            assert_eq!(Scope::parse(name).unwrap_err().field(), Some("scope"), "{name:?}");
        }
        assert!(Scope::parse(&"é".repeat(256)).is_ok());
    }

    #[test]
    fn each_action_includes_the_earlier_ones() {
        assert!(
            Action::Admin > Action::Review && Action::Review > Action::Write && Action::Write > Action::Read
        );
    }

    #[test]
    fn content_must_say_something() {
        for content in ["", " \n\t", "\u{200b}", "\u{feff} ", "\u{3164}", "a\0b"] {
            assert_eq!(check_content(content, 100).unwrap_err().field(), Some("content"), "{content:?}");
        }
        assert_eq!(check_content("12345", 4).unwrap_err().code(), "limit_exceeded");
        assert!(check_content("12345", 5).is_ok());
    }

    #[test]
    fn tags_are_kept_verbatim_without_repeats() {
        let tags = ["a,b", "c|d", "{x}", "'", " ", "a,b"].map(str::to_owned).to_vec();
        assert_eq!(check_tags(tags).unwrap(), ["a,b", "c|d", "{x}", "'", " "]);
    }

    proptest! {
        #[test]
        fn parsing_a_scope_twice_changes_nothing(name in "\\PC{1,40}") {
            if let Ok(scope) = Scope::parse(&name) {
                prop_assert_eq!(Scope::parse(scope.as_str()).unwrap(), scope);
            }
        }
    }
}
