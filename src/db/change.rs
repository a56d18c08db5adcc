//! What transactions change of the memories that people see: numbers, and nothing of what is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ScopeId;
use crate::error::{Error, Result};

/// From this many memories of a scope on they are not named one by one: a notification holds less than 8,000 bytes.
const MAX_NAMED: usize = 100;
/// From this many scopes on they are not named one by one, so that what waits to be told is bounded.
const MAX_SCOPES: usize = 1_000;

/// What changed in one scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    /// The scope's number.
    pub(super) scope: i64,
    /// Whether another set of memories is active now.
    pub(super) listed: bool,
    /// The memories that are not as they were; `None` where they are too many to name.
    pub(super) memories: Option<Vec<Uuid>>,
}

impl Change {
    fn add(&mut self, listed: bool, ids: Option<&[Uuid]>) {
        self.listed |= listed;
        let (Some(named), Some(ids)) = (&mut self.memories, ids) else {
            self.memories = None;
            return;
        };
        for id in ids {
            if named.contains(id) {
                continue;
            }
            if named.len() == MAX_NAMED {
                self.memories = None;
                return;
            }
            named.push(*id);
        }
    }
}

/// What is to be told: one notification a scope, however many rows and transactions it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// By the scope's number.
    Of(BTreeMap<i64, Change>),
    /// Anything may have changed, in any scope.
    Everything,
}

impl Default for Changes {
    fn default() -> Self {
        Self::Of(BTreeMap::new())
    }
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Of(scopes) if scopes.is_empty())
    }

    /// Adds memories that a statement changed.
    pub(super) fn note(&mut self, scope: ScopeId, listed: bool, ids: &[Uuid]) {
        if !ids.is_empty() {
            self.add(scope.0, listed, Some(ids));
        }
    }

    /// Adds what another transaction changed.
    pub(super) fn merge(&mut self, other: Self) {
        match other {
            Self::Of(scopes) => {
                for Change { scope, listed, memories } in scopes.into_values() {
                    self.add(scope, listed, memories.as_deref());
                }
            }
            Self::Everything => *self = Self::Everything,
        }
    }

    fn add(&mut self, scope: i64, listed: bool, ids: Option<&[Uuid]>) {
        let Self::Of(scopes) = self else { return };
        if scopes.len() == MAX_SCOPES && !scopes.contains_key(&scope) {
            *self = Self::Everything;
            return;
        }
        let nothing = || Change { scope, listed: false, memories: Some(Vec::new()) };
        scopes.entry(scope).or_insert_with(nothing).add(listed, ids);
    }

    /// As notifications, each of which [`read`] understands.
    pub(super) fn payloads(&self) -> Result<Vec<String>> {
        let payload = |change: Option<&Change>| {
            serde_json::to_string(&change).map_err(|error| Error::Internal(error.into()))
        };
        match self {
            Self::Of(scopes) => scopes.values().map(|change| payload(Some(change))).collect(),
            Self::Everything => Ok(vec![payload(None)?]),
        }
    }
}

/// What a notification tells; `None` is that anything may have changed.
pub(super) fn read(payload: &str) -> serde_json::Result<Option<Change>> {
    serde_json::from_str(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<Uuid> {
        (0..count).map(|_| Uuid::new_v4()).collect()
    }

    fn of(scope: i64, listed: bool, ids: &[Uuid]) -> Changes {
        let mut changes = Changes::default();
        changes.note(ScopeId(scope), listed, ids);
        changes
    }

    fn told(changes: &Changes) -> Vec<Option<Change>> {
        changes.payloads().unwrap().iter().map(|payload| read(payload).unwrap()).collect()
    }

    #[test]
    fn a_scope_is_one_change_and_fits_a_notification_however_many_memories_it_names() {
        let ids = ids(MAX_NAMED);
        assert!(of(1, true, &[]).is_empty());
        let mut changes = of(i64::MAX, false, &ids);
        changes.note(ScopeId(i64::MAX), true, &ids);
        let change = Change { scope: i64::MAX, listed: true, memories: Some(ids.clone()) };
        assert_eq!(told(&changes), [Some(change.clone())]);
        assert!(changes.payloads().unwrap()[0].len() < 8_000);
        changes.note(ScopeId(i64::MAX), false, &[Uuid::new_v4()]);
        changes.note(ScopeId(1), false, &ids[..1]);
        let one = Change { scope: 1, listed: false, memories: Some(ids[..1].to_vec()) };
        assert_eq!(told(&changes), [Some(one), Some(Change { memories: None, ..change })]);
    }

    #[test]
    fn what_transactions_change_one_after_the_other_is_told_together() {
        let ids = ids(3);
        let mut changes = of(1, false, &ids[..2]);
        changes.merge(of(2, true, &ids[2..]));
        changes.merge(of(1, true, &ids[1..]));
        let change = |scope, ids: &[Uuid]| Some(Change { scope, listed: true, memories: Some(ids.to_vec()) });
        assert_eq!(told(&changes), [change(1, &ids), change(2, &ids[2..])]);
        changes.merge(of(2, false, &self::ids(MAX_NAMED)));
        changes.merge(of(2, false, &ids[..1]));
        assert_eq!(told(&changes)[1].as_ref().unwrap().memories, None);
    }

    #[test]
    fn too_many_scopes_are_all_of_them() {
        let ids = ids(1);
        let mut changes = Changes::default();
        for scope in 0..1_000 {
            changes.merge(of(scope, true, &ids));
        }
        changes.merge(of(7, true, &ids));
        assert_eq!(told(&changes).len(), 1_000);
        changes.merge(of(1_000, true, &ids));
        changes.merge(of(7, true, &ids));
        assert_eq!(told(&changes), [None]);
        let mut changes = of(7, true, &ids);
        changes.merge(Changes::Everything);
        assert_eq!((told(&changes), changes.is_empty()), (vec![None], false));
    }
}
