//! `store_memory`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::rounded;
use crate::model::{ConflictPolicy, Tier};

/// Arguments of `store_memory`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["content"]))]
pub struct StoreArgs {
    /// The text to remember: one fact or event, up to 64 KiB.
    #[schemars(length(min = 1))]
    pub content: String,
    /// Whose memory it is, for example user:42. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub scope: Option<String>,
    /// Labels for filtering, matched exactly; up to 32.
    #[schemars(length(max = 32))]
    pub tags: Vec<String>,
    /// Where it came from: a conversation, a file, a tool. Memories of one source are neighbours in time.
    #[schemars(with = "String")]
    pub source: Option<String>,
    /// Seconds after which the memory expires. Without it the memory is kept until it is forgotten.
    #[schemars(with = "u64", range(min = 1, max = 31_536_000))]
    pub ttl_seconds: Option<u64>,
    /// Your own data, kept with the memory and never interpreted.
    pub metadata: BTreeMap<String, Value>,
    /// When what it tells happened (RFC 3339); the time of storing if left out. It then holds from that time on, and
    /// supersedes only what is older.
    #[schemars(with = "DateTime<Utc>")]
    pub occurred_at: Option<DateTime<Utc>>,
    /// Makes a repeated call harmless: the same key in the same scope gives the first answer again for 24 hours.
    #[schemars(with = "String")]
    pub idempotency_key: Option<String>,
    /// The id of the memory that this one corrects; it is superseded.
    #[schemars(with = "Uuid")]
    pub replaces: Option<String>,
    /// What to do with memories that this one contradicts; the server's default is `newest_wins`.
    #[schemars(with = "ConflictPolicy")]
    pub on_conflict: Option<ConflictPolicy>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// What became of a stored memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreOutcome {
    /// It is a new memory.
    Stored,
    /// It was known; the known memory gained support.
    Duplicate,
    /// It is a new memory and others were superseded by it.
    Superseded,
    /// It is a new memory and contradicts others, which wait for review.
    Flagged,
}

impl StoreOutcome {
    /// As answers write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Duplicate => "duplicate",
            Self::Superseded => "superseded",
            Self::Flagged => "flagged",
        }
    }
}

/// Whether a memory can be found by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmbeddingState {
    /// It can.
    Ready,
    /// Not yet: the embedder was down, or refused this text; it is found by words, and tried again without any action.
    Pending,
    /// Working memories are found by words alone.
    None,
}

/// Another memory with its likeness.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Likeness {
    /// The other memory's id.
    pub id: Uuid,
    /// Cosine similarity; 1 for the same text.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f32")]
    pub similarity: f32,
}

/// Answer of `store_memory`: the memory is durable and can be recalled when it arrives.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreAnswer {
    /// What became of it.
    pub outcome: StoreOutcome,
    /// The id of the memory that now holds the text.
    pub id: Uuid,
    /// Where it lives.
    pub tier: Tier,
    /// The memory that was known already.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Likeness")]
    pub duplicate_of: Option<Likeness>,
    /// Memories that this one superseded.
    pub supersedes: Vec<Likeness>,
    /// Memories that this one contradicts and that stay active; under `flag` they wait for review.
    pub conflicts_with: Vec<Likeness>,
    /// Set where the memory is history already: it tells of an earlier time than this memory, which it contradicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    pub superseded_by: Option<Uuid>,
    /// How often it was explicitly stated.
    pub support: i32,
    /// 0 to 1.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f32")]
    pub confidence: f32,
    /// Whether it can be found by meaning.
    pub embedding: EmbeddingState,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DateTime<Utc>")]
    pub expires_at: Option<DateTime<Utc>>,
    /// What looked like a credential and was replaced by `[redacted: kind]` before anything was stored, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    /// Parts of the service that are down and narrowed this answer.
    pub degraded: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_no_digits_that_say_nothing() {
        let likeness = Likeness { id: Uuid::nil(), similarity: 0.8 };
        assert_eq!(serde_json::to_value(likeness).unwrap()["similarity"].to_string(), "0.8");
    }
}
