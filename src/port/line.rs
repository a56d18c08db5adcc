//! The lines of memser's own files.
//!
//! Each is one JSON object that says what it is and which scope it belongs to, so that a damaged line can never move the
//! ones after it to another scope. What refers to two memories is a line of its own behind all memories of the scope.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::model::Tier;

/// What the first line says the file is.
pub const FORMAT: &str = "memser";
/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Header(Header),
    /// Comes before everything else of its scope.
    Scope(ScopeLine),
    /// A durable memory.
    Memory(Box<MemoryLine>),
    /// What superseded a memory.
    Superseded(SupersededLine),
    /// What a fact was made from.
    Origin(OriginLine),
    /// A contradiction, open or resolved.
    Conflict(ConflictLine),
    /// A memory that expires.
    Working(WorkingLine),
    /// The last one.
    End(Counts),
}

/// What the file is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// At most [`VERSION`].
    pub version: u32,
    /// When everything was as the file says.
    pub exported_at: DateTime<Utc>,
}

/// A scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScopeLine {
    /// Its name.
    pub scope: String,
    /// When something was first stored there.
    pub created_at: DateTime<Utc>,
    /// Whose token made it, where that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
}

/// A durable memory with all that is known of it alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLine {
    /// Where it lives.
    pub scope: String,
    /// Its id.
    pub id: Uuid,
    /// Episodic or semantic.
    pub tier: Tier,
    /// The text.
    pub content: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its place among the memories of its source; behind them all without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// Who stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The caller's own data.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// 0 to 1, as far as it has decayed.
    pub confidence: f32,
    /// How often it was stated.
    pub support: i32,
    /// How often each source stated it; the empty one stands for none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, i32>,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// When what it tells happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<DateTime<Utc>>,
    /// From when on it holds.
    pub valid_from: DateTime<Utc>,
    /// Until when it held; active without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<DateTime<Utc>>,
    /// Why it was superseded: exactly where `valid_to` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_reason: Option<String>,
    /// How often it was recalled.
    #[serde(default)]
    pub access_count: i64,
    /// When it was last recalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accessed_at: Option<DateTime<Utc>>,
    /// When it was last stated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restated_at: Option<DateTime<Utc>>,
    /// When its confidence last decayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decayed_at: Option<DateTime<Utc>>,
    /// Whether a reviewer keeps it out of consolidation.
    #[serde(default)]
    pub kept_apart: bool,
    /// Whether consolidation has looked at it.
    #[serde(default)]
    pub looked_at: bool,
}

/// What superseded a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SupersededLine {
    /// Where both live.
    pub scope: String,
    /// The memory that is history.
    pub id: Uuid,
    /// Its successor.
    pub by: Uuid,
}

/// What a fact was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginLine {
    /// Where both live.
    pub scope: String,
    /// The fact.
    pub id: Uuid,
    /// A memory that it was made from.
    pub origin: Uuid,
}

/// A pair of memories that contradict each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictLine {
    /// Where both live.
    pub scope: String,
    /// The pair's id.
    pub id: Uuid,
    /// The memory that came later.
    pub new: Uuid,
    /// The memory that it contradicts.
    pub old: Uuid,
    /// Absent where it was never measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f32>,
    /// `open` or `resolved`.
    pub status: String,
    /// When it was found.
    pub created_at: DateTime<Utc>,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<DateTime<Utc>>,
}

/// A memory that expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkingLine {
    /// Where it lives.
    pub scope: String,
    /// Its id.
    pub id: Uuid,
    /// The text.
    pub content: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Who stored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The caller's own data.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// How often it was stated.
    pub support: i32,
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// When what it tells happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<DateTime<Utc>>,
    /// When it stops to exist.
    pub expires_at: DateTime<Utc>,
}

/// How many lines of each kind there are: a file without this as its last line is not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Scopes.
    pub scopes: u64,
    /// Durable memories.
    pub memories: u64,
    /// Supersessions.
    pub superseded: u64,
    /// Origins of facts.
    pub origins: u64,
    /// Contradictions.
    pub conflicts: u64,
    /// Memories that expire.
    pub working: u64,
}

impl Counts {
    /// Counts a line in.
    pub const fn add(&mut self, line: &Line) {
        match line {
            Line::Header(_) | Line::End(_) => {}
            Line::Scope(_) => self.scopes += 1,
            Line::Memory(_) => self.memories += 1,
            Line::Superseded(_) => self.superseded += 1,
            Line::Origin(_) => self.origins += 1,
            Line::Conflict(_) => self.conflicts += 1,
            Line::Working(_) => self.working += 1,
        }
    }
}

impl Line {
    /// The scope that it belongs to; the first and the last line belong to none.
    pub const fn scope_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Header(_) | Self::End(_) => None,
            Self::Scope(line) => Some(&mut line.scope),
            Self::Memory(line) => Some(&mut line.scope),
            Self::Superseded(line) => Some(&mut line.scope),
            Self::Origin(line) => Some(&mut line.scope),
            Self::Conflict(line) => Some(&mut line.scope),
            Self::Working(line) => Some(&mut line.scope),
        }
    }
}
