//! `resolve_conflict`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a reviewer decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The newer memory of an open conflict is right; the older one is superseded by it.
    KeepNew,
    /// The older memory is right; the newer one is superseded by it and never held.
    KeepOld,
    /// Both are right; they are not flagged against each other again.
    KeepBoth,
    /// `content` says what is right; it supersedes both.
    Merge,
    /// Make a superseded memory active again, whatever superseded it.
    Restore,
}

impl Resolution {
    /// The name in the API and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeepNew => "keep_new",
            Self::KeepOld => "keep_old",
            Self::KeepBoth => "keep_both",
            Self::Merge => "merge",
            Self::Restore => "restore",
        }
    }
}

/// Arguments of `resolve_conflict`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["memory_id", "action"]))]
pub struct ResolveArgs {
    /// Whose memories. May be left out by a token that is granted exactly one scope.
    #[schemars(with = "String", length(min = 1, max = 256))]
    pub scope: Option<String>,
    /// A memory with an open conflict (`list_memories` with status conflicted), or with restore a superseded one.
    #[schemars(with = "Uuid")]
    pub memory_id: String,
    /// What to do: `keep_new`, `keep_old`, `keep_both`, merge or restore.
    #[schemars(with = "Resolution")]
    pub action: Option<Resolution>,
    /// The other memory of the conflict; all of `memory_id`'s open conflicts if left out.
    #[schemars(with = "Uuid")]
    pub other_id: Option<String>,
    /// What is right, with merge.
    #[schemars(with = "String")]
    pub content: Option<String>,
    /// Who acts, for the audit log only.
    #[schemars(with = "String")]
    pub actor: Option<String>,
}

/// A conflict of two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConflictView {
    /// The memory that came later.
    pub new_id: Uuid,
    /// The memory that it contradicts.
    pub old_id: Uuid,
}

/// Answer of `resolve_conflict`: what changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ResolveAnswer {
    /// What was done.
    pub action: Resolution,
    /// The conflicts that are resolved now.
    pub resolved: Vec<ConflictView>,
    /// The memory that holds the merged content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Uuid")]
    pub merged_into: Option<Uuid>,
    /// Memories that became history.
    pub superseded: Vec<Uuid>,
    /// Memories that are active again.
    pub restored: Vec<Uuid>,
    /// Conflicts that are open now: a restored memory and the one that had superseded it.
    pub conflicts: Vec<ConflictView>,
    /// What looked like a credential in the merged content and was replaced before it was stored, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub redacted: Vec<String>,
    /// Parts of the service that are down and narrowed this answer.
    pub degraded: Vec<String>,
}
