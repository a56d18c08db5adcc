//! What only REST shows: open conflicts as pairs, the scopes of a token, the audit log.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::MemoryView;

/// Which open conflicts to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConflictsArgs {
    /// Whose memories. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub scope: Option<String>,
    /// The most conflicts to return, 1 to 100; 20 if left out.
    #[schemars(with = "u32", range(min = 1, max = 100))]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[schemars(with = "String")]
    pub cursor: Option<String>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// Two active memories that contradict each other.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OpenConflict {
    /// The memory that came later.
    pub new: MemoryView,
    /// The memory that it contradicts.
    pub old: MemoryView,
    /// How alike they are, 0 to 1, where that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f32")]
    pub similarity: Option<f32>,
    /// Since when it waits.
    pub opened_at: DateTime<Utc>,
}

/// Open conflicts, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConflictsAnswer {
    /// One page.
    pub conflicts: Vec<OpenConflict>,
    /// Where the next page starts; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next_cursor: Option<String>,
}

/// Which scopes to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScopesArgs {
    /// Only scopes whose names begin so.
    #[schemars(with = "String")]
    pub prefix: Option<String>,
    /// The most scopes to return, 1 to 100; 20 if left out.
    #[schemars(with = "u32", range(min = 1, max = 100))]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before.
    #[schemars(with = "String")]
    pub cursor: Option<String>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// A scope with what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeView {
    /// Its name.
    pub scope: String,
    /// What the token may do there: read, write, review or admin, each with those before.
    pub granted: String,
    /// Durable memories, superseded ones included.
    pub memories: i64,
    /// Bytes of their content.
    pub bytes: i64,
    /// When something was first stored there.
    pub created_at: DateTime<Utc>,
}

/// The scopes that a token may read and that something was stored in, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScopesAnswer {
    /// One page.
    pub scopes: Vec<ScopeView>,
    /// Where the next page starts; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next_cursor: Option<String>,
}

/// Which rows of the audit log to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditArgs {
    /// The scope that the calls were for. May be left out by a token that is granted exactly one scope, and by one that
    /// may administer all of them: it then sees every call.
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub scope: Option<String>,
    /// Only calls of this token.
    #[schemars(with = "String")]
    pub subject: Option<String>,
    /// Only calls of this tool.
    #[schemars(with = "String")]
    pub action: Option<String>,
    /// Only calls that ended so: ok, or an error's code.
    #[schemars(with = "String")]
    pub outcome: Option<String>,
    /// Only calls about this memory.
    #[schemars(with = "Uuid")]
    pub memory_id: Option<String>,
    /// Only calls at or after this time (RFC 3339).
    #[schemars(with = "DateTime<Utc>")]
    pub after: Option<DateTime<Utc>>,
    /// Only calls before this time (RFC 3339).
    #[schemars(with = "DateTime<Utc>")]
    pub before: Option<DateTime<Utc>>,
    /// The most rows to return, 1 to 100; 20 if left out.
    #[schemars(with = "u32", range(min = 1, max = 100))]
    pub limit: Option<u32>,
    /// `next_cursor` of the page before, with otherwise the same arguments.
    #[schemars(with = "String")]
    pub cursor: Option<String>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// One call. It holds no content, query or token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its number.
    pub id: i64,
    /// When it was made.
    pub at: DateTime<Utc>,
    /// The request's id, as in the log and in `X-Request-Id`.
    pub request_id: String,
    /// The token's name, or `memser` for what it does by itself.
    pub subject: String,
    /// Who acted, as the caller said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub actor: Option<String>,
    /// The tool.
    pub action: String,
    /// The scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub scope: Option<String>,
    /// The memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    pub memory_id: Option<Uuid>,
    /// ok, or the error's code.
    pub outcome: String,
    /// What else the call says of itself: an object.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub detail: Value,
}

/// Rows of the audit log, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditAnswer {
    /// One page.
    pub calls: Vec<AuditEntry>,
    /// Where the next page starts; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next_cursor: Option<String>,
}
