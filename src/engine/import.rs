//! What a file holds, put beside what is stored: checked as a store is, but not judged. What the file says of a memory
//! stays true of it, and whatever is there already stays as it is.

mod check;
mod relate;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::statement::check_room;
use super::{Engine, Quota};
use crate::db::audit::AuditRow;
use crate::db::import::{self, NewRow};
use crate::db::{self, ScopeId, Tx, audit};
use crate::error::Result;
use crate::model::Scope;
use crate::port::line::{ConflictLine, OriginLine, ScopeLine, SupersededLine};
use crate::port::{Fate, Landed};
use crate::working::NewWorking;

/// Entries of one scope that have been checked, each with its line.
#[derive(Debug, Default)]
pub struct Bundle {
    scope: Option<ScopeLine>,
    memories: Vec<Checked<NewRow>>,
    superseded: Vec<(u64, SupersededLine)>,
    origins: Vec<(u64, OriginLine)>,
    conflicts: Vec<(u64, ConflictLine)>,
    working: Vec<Checked<(NewWorking, DateTime<Utc>)>>,
}

/// Something that can be stored.
#[derive(Debug)]
struct Checked<T> {
    line: u64,
    what: T,
    /// Whether credentials were taken out of it.
    redacted: bool,
}

impl<T> Checked<T> {
    const fn landed(&self, fate: Fate) -> Landed {
        Landed { line: self.line, fate, redacted: self.redacted }
    }
}

/// Whether an import writes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Write,
    /// It only says what it would do.
    DryRun,
}

impl Engine {
    /// Writes what was checked of one scope, in one transaction under its lock, and then its working memories. Vectors are
    /// left to the embed sweep.
    ///
    /// # Errors
    /// `unavailable`; nothing of the transaction is kept then, and the same again goes on.
    pub async fn import(&self, scope: &Scope, bundle: Bundle, mode: Mode) -> Result<Vec<Landed>> {
        let now = self.clock.now();
        let _turn = self.wait_for(scope).await;
        let (created_at, created_by) =
            bundle.scope.as_ref().map_or((now, None), |line| (line.created_at, line.created_by.as_deref()));
        let (mut tx, id) = import::enter(&self.db, scope, created_at, created_by).await?;
        tx.lock_scope(id).await?;
        let Bundle { memories, superseded, origins, conflicts, working, .. } = bundle;
        let mut landed = self.import_memories(&mut tx, id, memories).await?;
        relate::superseded(&mut tx, id, &superseded, mode, &mut landed).await?;
        relate::origins(&mut tx, id, &origins, mode, &mut landed).await?;
        relate::conflicts(&mut tx, id, &conflicts, mode, &mut landed).await?;
        if mode == Mode::Write {
            if !landed.is_empty() {
                audit::append(tx.conn(), &[imported(scope, now, &landed)]).await?;
            }
            tx.commit().await?;
            self.scope_ids.insert(scope.clone(), id).await;
        }
        self.import_working(id, working, mode, &mut landed).await?;
        Ok(landed)
    }

    async fn import_memories(
        &self,
        tx: &mut Tx,
        scope: ScopeId,
        memories: Vec<Checked<NewRow>>,
    ) -> Result<Vec<Landed>> {
        if memories.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = memories.iter().map(|memory| memory.what.memory.id).collect();
        let hashes: Vec<Vec<u8>> = memories.iter().map(|memory| memory.what.content_hash.to_vec()).collect();
        let mut known = Known::default();
        for row in import::known(tx, scope, &ids, &hashes).await? {
            known.ids.insert(row.id);
            known.active.extend(row.active_hash);
        }
        let (mut memories_held, mut bytes_held) = match self.settings.quota {
            Quota { memories: None, bytes: None } => (0, 0),
            _ => db::scope::holds(tx, scope).await?,
        };
        let (mut landed, mut rows) = (Vec::with_capacity(memories.len()), Vec::new());
        for memory in memories {
            let bytes = memory.what.memory.content.len();
            let fate = match known.fate(&memory.what) {
                Fate::Stored => match check_room(self.settings.quota, memories_held, bytes_held, bytes) {
                    Ok(()) => Fate::Stored,
                    Err(error) => Fate::Refused(error.to_string()),
                },
                fate => fate,
            };
            landed.push(memory.landed(fate.clone()));
            if fate == Fate::Stored {
                known.add(&memory.what);
                memories_held += 1;
                bytes_held += bytes as u64;
                rows.push(memory.what);
            }
        }
        place(tx, scope, &mut rows).await?;
        if !rows.is_empty() {
            import::insert(tx, scope, &rows).await?;
        }
        Ok(landed)
    }

    async fn import_working(
        &self,
        scope: ScopeId,
        working: Vec<Checked<(NewWorking, DateTime<Utc>)>>,
        mode: Mode,
        landed: &mut Vec<Landed>,
    ) -> Result<()> {
        if working.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut known = Known::default();
        for memory in self.working.list(scope, now).await? {
            known.ids.insert(memory.id);
            known.active.insert(crate::text::content_hash(&memory.content).to_vec());
        }
        for entry in working {
            let (new, expires_at) = &entry.what;
            let fate = if known.ids.contains(&new.id) {
                Fate::There
            } else if known.active.contains(new.content_hash.as_slice()) {
                Fate::Duplicate
            } else {
                match (*expires_at - now).to_std() {
                    Ok(ttl) if !ttl.is_zero() && mode == Mode::Write => {
                        match self.working.put(scope, new.clone(), ttl, now).await {
                            Ok(_) => Fate::Stored,
                            Err(error @ crate::error::Error::LimitExceeded { .. }) => {
                                Fate::Refused(error.to_string())
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    Ok(ttl) if !ttl.is_zero() => Fate::Stored,
                    _ => Fate::LeftOut,
                }
            };
            if fate == Fate::Stored {
                known.ids.insert(new.id);
                known.active.insert(new.content_hash.to_vec());
            }
            landed.push(entry.landed(fate));
        }
        Ok(())
    }
}

/// What a scope holds of what a file says.
#[derive(Debug, Default)]
struct Known {
    ids: HashSet<Uuid>,
    /// The hashes of the active texts.
    active: HashSet<Vec<u8>>,
}

impl Known {
    fn fate(&self, row: &NewRow) -> Fate {
        if self.ids.contains(&row.memory.id) {
            Fate::There
        } else if row.memory.valid_to.is_none() && self.active.contains(row.content_hash.as_slice()) {
            Fate::Duplicate
        } else {
            Fate::Stored
        }
    }

    fn add(&mut self, row: &NewRow) {
        self.ids.insert(row.memory.id);
        if row.memory.valid_to.is_none() {
            self.active.insert(row.content_hash.to_vec());
        }
    }
}

/// Gives each memory its place in its source: the one that the file says, unless another memory has it; then, and without
/// one, the next behind all others. So memories of two files stay in their order, and a file that comes back to an empty
/// scope is as it was.
async fn place(tx: &mut Tx, scope: ScopeId, rows: &mut [NewRow]) -> Result<()> {
    let asked = rows.iter().filter_map(|row| {
        let source = row.memory.source.clone()?;
        Some((source, row.memory.seq.unwrap_or(0)))
    });
    let (sources, seqs): (Vec<String>, Vec<i64>) = asked.unzip();
    let mut taken: HashSet<(String, i64)> = HashSet::new();
    let mut last: HashMap<String, i64> = HashMap::new();
    if !sources.is_empty() {
        for place in import::places(tx, scope, &sources, &seqs).await? {
            last.insert(place.source.clone(), place.last);
            if place.is_taken {
                taken.insert((place.source, place.seq));
            }
        }
    }
    for row in rows {
        let Some(source) = &row.memory.source else {
            // Without a source there are no neighbours.
            row.memory.seq = Some(row.memory.seq.unwrap_or(1));
            continue;
        };
        let last = last.entry(source.clone()).or_default();
        let free = row.memory.seq.filter(|seq| !taken.contains(&(source.clone(), *seq)));
        let seq = free.unwrap_or_else(|| last.saturating_add(1));
        *last = seq.max(*last);
        taken.insert((source.clone(), seq));
        row.memory.seq = Some(seq);
    }
    Ok(())
}

fn imported(scope: &Scope, at: DateTime<Utc>, landed: &[Landed]) -> AuditRow {
    let count = |fate: &Fate| landed.iter().filter(|entry| entry.fate == *fate).count();
    AuditRow {
        at,
        request_id: String::new(),
        subject: "memser".to_owned(),
        actor: None,
        action: "import",
        scope: Some(scope.as_str().to_owned()),
        memory_id: None,
        outcome: "ok",
        detail: json!({
            "stored": count(&Fate::Stored),
            "there": count(&Fate::There),
            "duplicates": count(&Fate::Duplicate),
        }),
    }
}
