//! Whether a schema and this memser suit each other.

use anyhow::ensure;
use sqlx::postgres::PgConnection;

use super::{MIGRATOR, last_migration, with_advice};

/// The migration with which a schema began to say whom it suits.
const SAYS_WHOM_IT_SUITS: i64 = 8;

/// What a database has of the schema.
#[derive(Clone, Debug, Default)]
pub(super) struct Applied {
    /// The migrations that succeeded, in order.
    versions: Vec<i64>,
    /// The schema suits a memser that knows this migration; none where it does not say so.
    suits_from: Option<i64>,
}

/// How a schema that this memser can work with stands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It lacks migrations that this memser knows.
    Behind,
    /// It is this memser's own.
    Current,
    /// A newer memser brought it up to date, and it still suits this one.
    Ahead,
}

impl Applied {
    /// What the database says; nothing where it has no schema yet.
    pub(super) async fn of(connection: &mut PgConnection) -> anyhow::Result<Self> {
        let is_made = sqlx::query_scalar!("select to_regclass('_sqlx_migrations') is not null")
            .fetch_one(&mut *connection)
            .await?;
        if is_made != Some(true) {
            return Ok(Self::default());
        }
        // The migrator's table is in no migration, so that this cannot be checked at build time.
        let versions: Vec<i64> =
            sqlx::query_scalar("select version from _sqlx_migrations where success order by version")
                .fetch_all(&mut *connection)
                .await
                .map_err(with_advice)?;
        let suits_from = if versions.contains(&SAYS_WHOM_IT_SUITS) {
            Some(
                sqlx::query_scalar!("select suits_from from installation")
                    .fetch_one(&mut *connection)
                    .await?,
            )
        } else {
            None
        };
        Ok(Self { versions, suits_from })
    }

    /// The last migration that was applied; none before the first.
    pub(super) fn last(&self) -> Option<i64> {
        self.versions.last().copied()
    }

    /// Refuses a schema that this memser cannot work with, now or after its own migrations, with the way out.
    pub(super) fn judge(&self) -> anyhow::Result<Standing> {
        let known: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
        self.judge_by(&known, last_migration())
    }

    fn judge_by(&self, known: &[i64], last_known: i64) -> anyhow::Result<Standing> {
        let unknown: Vec<i64> =
            self.versions.iter().copied().filter(|version| !known.contains(version)).collect();
        if let Some(strange) = unknown.iter().find(|&&version| version < last_known) {
            anyhow::bail!(
                "migration {strange} of the database's schema is not one that this memser has: it was made by a \
                 modified memser; use that one, or another database"
            );
        }
        let lacks_any = known.iter().any(|version| !self.versions.contains(version));
        let Some(newest) = unknown.last() else {
            return Ok(if lacks_any { Standing::Behind } else { Standing::Current });
        };
        ensure!(
            self.suits_from.is_some_and(|from| from <= last_known) && !lacks_any,
            "the database's schema (migration {newest}) is newer than this memser, which knows migration {last_known} as \
             the last, and does not suit it: start a memser that is as new, or restore a backup that is as old"
        );
        Ok(Standing::Ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(versions: &[i64], suits_from: Option<i64>) -> Result<Standing, String> {
        let applied = Applied { versions: versions.to_vec(), suits_from };
        applied.judge_by(&[1, 2, 8, 9], 9).map_err(|error| error.to_string())
    }

    #[test]
    fn a_schema_without_the_last_migrations_is_behind() {
        assert_eq!(judge(&[], None), Ok(Standing::Behind));
        assert_eq!(judge(&[1, 2], None), Ok(Standing::Behind));
        assert_eq!(judge(&[1, 2, 8], Some(8)), Ok(Standing::Behind));
        assert_eq!(judge(&[1, 2, 8, 9], Some(8)), Ok(Standing::Current));
        // It has all that this memser knows, whatever it says.
        assert_eq!(judge(&[1, 2, 8, 9], Some(9)), Ok(Standing::Current));
    }

    #[test]
    fn a_newer_schema_is_taken_only_where_it_says_that_it_suits() {
        for suits_from in [8, 9] {
            assert_eq!(judge(&[1, 2, 8, 9, 10, 11], Some(suits_from)), Ok(Standing::Ahead));
        }
        for suits_from in [None, Some(10), Some(11)] {
            let words = judge(&[1, 2, 8, 9, 10, 11], suits_from).unwrap_err();
            assert!(words.contains("migration 11") && words.contains("migration 9"), "{words}");
        }
    }

    #[test]
    fn a_schema_with_a_gap_or_a_strange_migration_is_refused() {
        let words = judge(&[1, 2, 3, 8, 9], Some(8)).unwrap_err();
        assert!(words.contains("migration 3") && words.contains("modified memser"), "{words}");
        assert!(judge(&[1, 8, 9, 10], Some(8)).is_err());
    }
}
