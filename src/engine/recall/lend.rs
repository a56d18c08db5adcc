//! What the originals of a consolidated fact lend it: the fact is to be found wherever they were found before.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::{Pool, Question};
use crate::db::memory::StoredMemory;
use crate::engine::score::is_about;

/// What one fact has from its originals, as far as they were read.
#[derive(Default)]
struct Lent {
    /// The memories stored before and after each of them, with its source.
    beside: Vec<Uuid>,
    /// Whether one of them begins with a word of the query.
    is_about: bool,
    /// Whether one of them is of the source and the time that is asked for.
    is_asked_for: bool,
}

/// Facts with what their originals lend them.
#[derive(Default)]
pub(super) struct Lending {
    by_fact: HashMap<Uuid, Lent>,
    /// The fact that stands for an original.
    fact_of: HashMap<Uuid, Uuid>,
}

impl Lending {
    /// The memories beside a fact or any other memory; a fact stands for its originals there.
    pub(super) fn beside(&self, stored: &StoredMemory) -> Vec<Uuid> {
        let id = stored.memory.id;
        let lent = self.by_fact.get(&id).into_iter().flat_map(|lent| &lent.beside).copied();
        let all = stored.previous.into_iter().chain(stored.next).chain(lent);
        let all: HashSet<Uuid> = all.map(|id| self.fact_of.get(&id).copied().unwrap_or(id)).collect();
        all.into_iter().filter(|other| *other != id).collect()
    }

    /// Whether an original begins with a word of the query.
    pub(super) fn is_about(&self, fact: Uuid) -> bool {
        self.by_fact.get(&fact).is_some_and(|lent| lent.is_about)
    }

    /// Whether an original is of the source and the time that is asked for.
    pub(super) fn is_asked_for(&self, fact: Uuid) -> bool {
        self.by_fact.get(&fact).is_some_and(|lent| lent.is_asked_for)
    }
}

/// Puts what was fetched into the pool. The originals of a consolidated fact lend it what they have and step back.
pub(super) fn lend_to_facts(pool: &mut Pool, stored: Vec<StoredMemory>, question: &Question) {
    for stored in stored {
        let memory = &stored.memory;
        let consolidated = memory.superseded_reason.as_deref() == Some("consolidated");
        if !consolidated || question.filter.as_of.is_some() || question.filter.superseded {
            pool.durable.insert(memory.id, stored);
            continue;
        }
        let signals = pool.signals.remove(&memory.id);
        let Some(fact) = memory.superseded_by else { continue };
        if let Some(signals) = signals {
            pool.signals.entry(fact).or_default().raise(signals);
        }
        pool.lending.fact_of.insert(memory.id, fact);
        let lent = pool.lending.by_fact.entry(fact).or_default();
        lent.beside.extend(stored.previous.into_iter().chain(stored.next));
        lent.is_about |= is_about(&memory.content, &question.words);
        lent.is_asked_for |= question.asks_for(memory);
    }
}
