//! What refers to two memories: written where both are there, and otherwise left out. A dry run, in which no memory
//! stays, takes it as it is.

use std::collections::HashSet;

use super::Mode;
use crate::db::import;
use crate::db::{ScopeId, Tx};
use crate::error::Result;
use crate::port::line::{ConflictLine, OriginLine, SupersededLine};
use crate::port::{Fate, Landed};

pub(super) async fn superseded(
    tx: &mut Tx,
    scope: ScopeId,
    lines: &[(u64, SupersededLine)],
    mode: Mode,
    landed: &mut Vec<Landed>,
) -> Result<()> {
    let (ids, by): (Vec<_>, Vec<_>) = lines.iter().map(|(_, line)| (line.id, line.by)).unzip();
    let done = match mode {
        _ if lines.is_empty() => return Ok(()),
        Mode::Write => Some(import::link(tx, scope, &ids, &by).await?),
        Mode::DryRun => None,
    };
    note(lines, done, landed);
    Ok(())
}

pub(super) async fn origins(
    tx: &mut Tx,
    scope: ScopeId,
    lines: &[(u64, OriginLine)],
    mode: Mode,
    landed: &mut Vec<Landed>,
) -> Result<()> {
    let (facts, origins): (Vec<_>, Vec<_>) = lines.iter().map(|(_, line)| (line.id, line.origin)).unzip();
    let done = match mode {
        _ if lines.is_empty() => return Ok(()),
        Mode::Write => Some(import::add_origins(tx, scope, &facts, &origins).await?),
        Mode::DryRun => None,
    };
    note(lines, done, landed);
    Ok(())
}

pub(super) async fn conflicts(
    tx: &mut Tx,
    scope: ScopeId,
    lines: &[(u64, ConflictLine)],
    mode: Mode,
    landed: &mut Vec<Landed>,
) -> Result<()> {
    let pairs: Vec<&ConflictLine> = lines.iter().map(|(_, line)| line).collect();
    let done = match mode {
        _ if lines.is_empty() => return Ok(()),
        Mode::Write => Some(import::add_conflicts(tx, scope, &pairs).await?),
        Mode::DryRun => None,
    };
    note(lines, done, landed);
    Ok(())
}

/// `done` has the numbers of those that are so now, from 1 on; none for all.
fn note<T>(lines: &[(u64, T)], done: Option<Vec<i64>>, landed: &mut Vec<Landed>) {
    let done: Option<HashSet<i64>> = done.map(|done| done.into_iter().collect());
    for (n, (line, _)) in (1..).zip(lines) {
        let is_so = done.as_ref().is_none_or(|done| done.contains(&n));
        landed.push(Landed::new(*line, if is_so { Fate::Related } else { Fate::LeftOut }));
    }
}
