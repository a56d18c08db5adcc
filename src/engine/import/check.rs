//! The rules of a store, for what comes from a file.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike, Utc};
use rayon::prelude::*;
use serde_json::Value;

use super::{Bundle, Checked};
use crate::api::StoreArgs;
use crate::db::import::NewRow;
use crate::engine::statement::Statement;
use crate::engine::{Engine, Settings};
use crate::model::{Scope, Tier, check_label};
use crate::port::line::{ConflictLine, Line, MemoryLine, ScopeLine, WorkingLine};
use crate::port::{Entry, Fate, Landed};
use crate::text;
use crate::working::NewWorking;

/// Why memories are superseded.
const REASONS: [&str; 4] = ["conflict", "replaced", "consolidated", "undone"];

/// What a line became, checked.
enum Outcome {
    Memory(Checked<NewRow>),
    Working(Checked<(NewWorking, DateTime<Utc>)>),
    Other(u64, Line),
}

impl Engine {
    /// Checks entries by the rules of a store: limits, credentials, names of scopes. Gives the bundle of each scope, in the
    /// order of their first entries, and what was refused. Takes a while, and all processors.
    #[must_use]
    pub fn check(&self, entries: Vec<Entry>) -> (Vec<(Scope, Bundle)>, Vec<Landed>) {
        let of_entry =
            |entry: Entry| (entry.line, entry.what.and_then(|what| check(entry.line, what, &self.settings)));
        let checked: Vec<_> = entries.into_par_iter().map(of_entry).collect();
        let (mut bundles, mut refused): (Vec<(Scope, Bundle)>, Vec<Landed>) = (Vec::new(), Vec::new());
        for (line, outcome) in checked {
            let (scope, outcome) = match outcome {
                Ok(checked) => checked,
                Err(reason) => {
                    refused.push(Landed::new(line, Fate::Refused(reason)));
                    continue;
                }
            };
            let at = bundles.iter().position(|(known, _)| *known == scope).unwrap_or_else(|| {
                bundles.push((scope, Bundle::default()));
                bundles.len() - 1
            });
            bundles[at].1.take(outcome);
        }
        (bundles, refused)
    }
}

impl Bundle {
    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Memory(memory) => self.memories.push(memory),
            Outcome::Working(memory) => self.working.push(memory),
            Outcome::Other(_, Line::Scope(line)) => self.scope = Some(line),
            Outcome::Other(at, Line::Superseded(line)) => self.superseded.push((at, line)),
            Outcome::Other(at, Line::Origin(line)) => self.origins.push((at, line)),
            Outcome::Other(at, Line::Conflict(line)) => self.conflicts.push((at, line)),
            // Readers keep the first and the last line to themselves, and the others are checked above.
            Outcome::Other(..) => {}
        }
    }
}

fn check(at: u64, line: Line, settings: &Settings) -> Result<(Scope, Outcome), String> {
    let mut line = line;
    let name = line.scope_mut().ok_or("it belongs to no scope")?;
    let scope = Scope::parse(name).map_err(|error| error.to_string())?;
    let outcome = match line {
        Line::Memory(line) => {
            let (what, redacted) = memory(*line, settings)?;
            Outcome::Memory(Checked { line: at, what, redacted })
        }
        Line::Working(line) => {
            let (what, redacted) = working(line, settings)?;
            Outcome::Working(Checked { line: at, what, redacted })
        }
        Line::Scope(line) => Outcome::Other(at, Line::Scope(scope_line(line)?)),
        Line::Conflict(line) => Outcome::Other(at, Line::Conflict(conflict(line)?)),
        other => Outcome::Other(at, other),
    };
    Ok((scope, outcome))
}

/// What every memory has.
struct Said {
    content: String,
    tags: Vec<String>,
    source: Option<String>,
    actor: Option<String>,
    metadata: BTreeMap<String, Value>,
    occurred_at: Option<DateTime<Utc>>,
}

/// Checks what a store checks; also says whether credentials were taken out.
fn said(said: Said, settings: &Settings) -> Result<(Statement, Option<String>, bool), String> {
    let sifted = settings.sieve.sift(StoreArgs {
        content: said.content,
        tags: said.tags,
        source: said.source,
        actor: said.actor,
        metadata: said.metadata,
        occurred_at: said.occurred_at,
        ..StoreArgs::default()
    });
    let words = |error: crate::error::Error| error.to_string();
    let actor = check_label("actor", sifted.args.actor.clone()).map_err(words)?;
    let statement = Statement::check(sifted, settings).map_err(words)?;
    let redacted = !statement.redacted.is_empty();
    Ok((statement, actor, redacted))
}

fn memory(mut of: MemoryLine, settings: &Settings) -> Result<(NewRow, bool), String> {
    let taken = Said {
        content: std::mem::take(&mut of.content),
        tags: std::mem::take(&mut of.tags),
        source: of.source.take(),
        actor: of.actor.take(),
        metadata: std::mem::take(&mut of.metadata),
        occurred_at: of.occurred_at,
    };
    let (statement, actor, redacted) = said(taken, settings)?;
    let holds = |is_so: bool, words: &str| if is_so { Ok(()) } else { Err(words.to_owned()) };
    holds(of.tier != Tier::Working, "tier is working: such a memory is a line of type working")?;
    holds((0.0..=1.0).contains(&of.confidence), "confidence is not from 0 to 1")?;
    holds(of.support >= 1, "support is less than 1")?;
    holds(of.seq.is_none_or(|seq| seq >= 0), "seq is negative")?;
    holds(of.access_count >= 0, "access_count is negative")?;
    holds(of.sources.values().all(|stated| *stated >= 1), "sources: a source that stated it less than once")?;
    holds(
        of.valid_to.is_some() == of.superseded_reason.is_some(),
        "valid_to and superseded_reason go together",
    )?;
    let reason = of.superseded_reason.as_deref();
    holds(
        reason.is_none_or(|reason| REASONS.contains(&reason)),
        "superseded_reason is none that memser knows",
    )?;
    holds(of.access_count == 0 || of.last_accessed_at.is_some(), "last_accessed_at is missing")?;
    let times = [Some(of.created_at), Some(of.valid_from), of.valid_to, of.last_accessed_at, of.restated_at];
    check_times(times.into_iter().chain([of.decayed_at]).flatten())?;
    for source in of.sources.keys() {
        let kept = check_label("sources", Some(source.clone())).map_err(|error| error.to_string())?;
        holds(kept.unwrap_or_default() == *source, "sources: white space around a source")?;
    }
    let analysis = text::analyse(&statement.content);
    let content_hash = statement.content_hash;
    let memory = MemoryLine {
        content: statement.content,
        tags: statement.tags,
        source: statement.source,
        actor,
        metadata: statement.metadata,
        ..of
    };
    Ok((NewRow { memory, content_hash, analysis }, redacted))
}

fn working(mut of: WorkingLine, settings: &Settings) -> Result<((NewWorking, DateTime<Utc>), bool), String> {
    let taken = Said {
        content: std::mem::take(&mut of.content),
        tags: std::mem::take(&mut of.tags),
        source: of.source.take(),
        actor: of.actor.take(),
        metadata: std::mem::take(&mut of.metadata),
        occurred_at: of.occurred_at,
    };
    let (statement, actor, redacted) = said(taken, settings)?;
    if of.support < 1 {
        return Err("support is less than 1".to_owned());
    }
    check_times([of.created_at, of.expires_at])?;
    let new = NewWorking {
        id: of.id,
        content: statement.content,
        content_hash: statement.content_hash,
        tags: statement.tags,
        source: statement.source,
        actor,
        metadata: statement.metadata,
        occurred_at: of.occurred_at,
        created_at: of.created_at,
        support: of.support,
    };
    Ok(((new, of.expires_at), redacted))
}

fn scope_line(of: ScopeLine) -> Result<ScopeLine, String> {
    check_times([of.created_at])?;
    Ok(ScopeLine { created_by: short("created_by", of.created_by)?, ..of })
}

fn conflict(of: ConflictLine) -> Result<ConflictLine, String> {
    if of.status != "open" && of.status != "resolved" {
        return Err("status is neither open nor resolved".to_owned());
    }
    if of.new == of.old || of.similarity.is_some_and(|similarity| !similarity.is_finite()) {
        return Err("it is no pair of two memories".to_owned());
    }
    check_times([Some(of.created_at), of.resolved_at].into_iter().flatten())?;
    let (resolution, resolved_by) =
        (short("resolution", of.resolution)?, short("resolved_by", of.resolved_by)?);
    Ok(ConflictLine { resolution, resolved_by, ..of })
}

/// A name as a token or a decision has it.
fn short(field: &'static str, text: Option<String>) -> Result<Option<String>, String> {
    check_label(field, text).map_err(|error| error.to_string())
}

fn check_times(times: impl IntoIterator<Item = DateTime<Utc>>) -> Result<(), String> {
    let is_in_range = |at: DateTime<Utc>| (1..=9999).contains(&at.year());
    if times.into_iter().all(is_in_range) { Ok(()) } else { Err("a time is out of range".to_owned()) }
}
