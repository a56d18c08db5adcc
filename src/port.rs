//! Files that memories leave memser with, and those that they come in: memser's own and others'.
//!
//! Pure: a reader takes bytes and gives [`Line`]s of memser's own format, whatever the file's. It holds no more of a file
//! than one of its records, and a record that it cannot read is an entry like the others, so that the rest goes on.

mod chat;
mod chatgpt;
mod claude;
mod detect;
mod document;
mod foreign;
mod input;
pub mod line;
mod mcp_memory;
mod mcp_memory_service;
mod mem0;
mod own;
mod report;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::str::FromStr;

use chrono::{DateTime, Utc};

pub use detect::detect;
pub use report::{Fate, Landed, Report};

use crate::model::Scope;
use line::Line;

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// memser's own.
    Memser,
    /// The official memory server's `memory.jsonl`, or its graph as one document.
    McpMemory,
    /// mem0, also `OpenMemory`.
    Mem0,
    /// mcp-memory-service.
    McpMemoryService,
    /// claude.ai's data export.
    Claude,
    /// `ChatGPT`'s data export.
    ChatGpt,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 6] =
        [Self::Memser, Self::McpMemory, Self::Mem0, Self::McpMemoryService, Self::Claude, Self::ChatGpt];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memser => "memser",
            Self::McpMemory => "mcp-memory",
            Self::Mem0 => "mem0",
            Self::McpMemoryService => "mcp-memory-service",
            Self::Claude => "claude",
            Self::ChatGpt => "chatgpt",
        }
    }

    /// Whether its records say whose they are, so that nobody has to name a scope.
    #[must_use]
    pub const fn names_scopes(self) -> bool {
        matches!(self, Self::Memser | Self::Mem0)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("{name:?} is none of {known}, auto")
        })
    }
}

/// How to read a file.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose it is.
    pub format: Format,
    /// Where everything goes, whatever the file says.
    pub scope: Option<Scope>,
    /// Now: nothing that a file tells was stored later.
    pub now: DateTime<Utc>,
}

/// What a record gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The line of the file that it begins in, from 1 on.
    pub line: u64,
    /// What it says, or why it cannot be taken. The reason holds nothing of what the record says.
    pub what: Result<Line, String>,
}

/// Takes an entry; whether more are wanted.
pub type Give<'a> = dyn FnMut(Entry) -> bool + 'a;

/// The most bytes of one record: a conversation can be long.
const RECORD_MAX: u64 = 64 * 1024 * 1024;
/// How much of a file tells its format.
pub const HEAD: usize = 64 * 1024;

/// Reads a file, until its end or until no more is wanted.
///
/// # Errors
/// When it cannot be read on, in the words of the system.
pub fn read(file: impl Read, plan: &Plan, give: &mut Give<'_>) -> io::Result<()> {
    let mut file = BufReader::with_capacity(HEAD, file);
    if file.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    match plan.format {
        Format::Memser => own::read(file, plan, give),
        Format::McpMemory => mcp_memory::read(file, plan, give),
        Format::Mem0 => mem0::read(file, plan, give),
        Format::McpMemoryService => mcp_memory_service::read(file, plan, give),
        Format::Claude => claude::read(file, plan, give),
        Format::ChatGpt => chatgpt::read(file, plan, give),
    }
}
