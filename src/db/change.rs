//! What a transaction changes of the memories that people see. Postgres tells it to every replica once it is committed,
//! and never when it is rolled back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::ScopeId;
use crate::error::{Error, Result};

/// Where changes are told.
pub(super) const CHANNEL: &str = "memser_changes";
/// From this many memories on they are not named one by one: a notification holds less than 8,000 bytes.
const MAX_NAMED: usize = 100;

/// What a transaction changed in one scope: numbers, and nothing of what is stored there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    /// The scope's number.
    pub(super) scope: i64,
    /// Whether another set of memories is active now.
    pub(super) listed: bool,
    /// The memories that are not as they were; `None` where they are too many to name.
    pub(super) memories: Option<Vec<Uuid>>,
}

/// The changes of a transaction that is not committed yet: one notification a scope, however many rows it was.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<i64, Change>);

impl Changes {
    /// Notes memories that a statement changed.
    pub(super) fn note(&mut self, scope: ScopeId, listed: bool, ids: &[Uuid]) {
        if ids.is_empty() {
            return;
        }
        let scope = scope.0;
        let change =
            self.0.entry(scope).or_insert_with(|| Change { scope, listed, memories: Some(Vec::new()) });
        change.listed |= listed;
        let Some(named) = &mut change.memories else { return };
        for id in ids {
            if named.contains(id) {
                continue;
            }
            if named.len() == MAX_NAMED {
                change.memories = None;
                return;
            }
            named.push(*id);
        }
    }

    /// Leaves them to Postgres, which tells them at the commit.
    pub(super) async fn send(&self, connection: &mut PgConnection) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let payload = |change| serde_json::to_string(change).map_err(|error| Error::Internal(error.into()));
        let payloads = self.0.values().map(payload).collect::<Result<Vec<_>>>()?;
        sqlx::query!("select pg_notify($1, payload) from unnest($2::text[]) as payload", CHANNEL, &payloads)
            .fetch_all(connection)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_one_change_and_fits_a_notification_however_many_memories_it_names() {
        let mut changes = Changes::default();
        let ids: Vec<Uuid> = (0..MAX_NAMED).map(|_| Uuid::new_v4()).collect();
        changes.note(ScopeId(i64::MAX), false, &[]);
        assert!(changes.0.is_empty());
        changes.note(ScopeId(i64::MAX), false, &ids);
        changes.note(ScopeId(i64::MAX), true, &ids);
        let change = changes.0[&i64::MAX].clone();
        assert_eq!((change.listed, change.memories.as_deref()), (true, Some(&ids[..])));
        assert!(serde_json::to_string(&change).unwrap().len() < 8_000);
        changes.note(ScopeId(i64::MAX), false, &[Uuid::new_v4()]);
        changes.note(ScopeId(1), false, &ids[..1]);
        assert_eq!((changes.0.len(), &changes.0[&i64::MAX].memories), (2, &None));
    }
}
