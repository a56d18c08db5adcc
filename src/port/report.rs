//! What became of a file.

use std::fmt;

/// How many reasons are kept.
const SHOWN: usize = 20;

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is stored now.
    Stored,
    /// It was there already, by its id.
    There,
    /// Another memory of the scope with the same text is active.
    Duplicate,
    /// It says how two memories stand to each other, and is so now.
    Related,
    /// What it refers to is not there, or it has expired meanwhile.
    LeftOut,
    /// It cannot be stored; the reason holds nothing of its content.
    Refused(String),
}

/// An entry with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Its line.
    pub line: u64,
    /// What became of it.
    pub fate: Fate,
    /// Whether credentials were taken out of it.
    pub redacted: bool,
}

impl Landed {
    /// An entry without credentials.
    #[must_use]
    pub const fn new(line: u64, fate: Fate) -> Self {
        Self { line, fate, redacted: false }
    }
}

/// What became of all entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All of them.
    pub read: u64,
    /// See [`Fate`].
    pub stored: u64,
    /// See [`Fate`].
    pub there: u64,
    /// See [`Fate`].
    pub duplicates: u64,
    /// See [`Fate`].
    pub related: u64,
    /// See [`Fate`].
    pub left_out: u64,
    /// See [`Fate`].
    pub refused: u64,
    /// Those that credentials were taken out of.
    pub redacted: u64,
    /// The first lines that were refused, and why.
    pub reasons: Vec<(u64, String)>,
}

impl Report {
    /// Counts an entry in.
    pub fn add(&mut self, landed: Landed) {
        self.read += 1;
        self.redacted += u64::from(landed.redacted);
        match landed.fate {
            Fate::Stored => self.stored += 1,
            Fate::There => self.there += 1,
            Fate::Duplicate => self.duplicates += 1,
            Fate::Related => self.related += 1,
            Fate::LeftOut => self.left_out += 1,
            Fate::Refused(reason) => {
                self.refused += 1;
                if self.reasons.len() < SHOWN {
                    self.reasons.push((landed.line, reason));
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, of) in [
            (self.read, "read"),
            (self.stored, "stored"),
            (self.there, "there already"),
            (self.duplicates, "of a text that is there already"),
            (self.related, "say how memories stand to each other"),
            (self.left_out, "left out, because what they refer to is not there or they have expired"),
            (self.redacted, "with credentials, which were taken out"),
            (self.refused, "refused"),
        ] {
            if count > 0 || matches!(of, "read" | "stored" | "refused") {
                writeln!(f, "{count:>9} {of}")?;
            }
        }
        for (line, reason) in &self.reasons {
            writeln!(f, "  line {line}: {reason}")?;
        }
        if self.refused > self.reasons.len() as u64 {
            writeln!(f, "  and {} more", self.refused - self.reasons.len() as u64)?;
        }
        Ok(())
    }
}
