//! Postgres: what it is, the way to it, and how well memser's data in it is.

use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::timeout;

use super::{Finding, Health, disk, failure, warning, well};
use crate::clock::Clock;
use crate::config::{Config, External, Storage};
use crate::db::checkup::{has_session, time, unusable_indexes};
use crate::db::embedded::Embedded;
use crate::db::schema::{Inspection, inspect, last_migration};
use crate::db::space::{self, Progress, State};
use crate::db::{Db, Pooler};

/// How far two clocks may be apart before it shows: in expiry, in what is due, in the order of what replicas store.
const SKEW_MAX: TimeDelta = TimeDelta::seconds(2);
/// How long Postgres may take to say what it is: a person waits.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn examine(config: &Config, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    let External { options, direct, pooler } = match &config.storage {
        Storage::External(external) => (**external).clone(),
        Storage::Embedded(settings) => {
            let folder = settings.resolve_data_dir()?;
            if folder.exists() {
                findings.push(disk::examine(&folder));
            }
            let Some(options) = Embedded::running(settings)? else {
                findings.push(warning(format!(
                    "database: no memser runs its own Postgres in {}: start it to have its database looked at",
                    folder.display()
                )));
                return Ok(());
            };
            External { direct: options.clone(), options, pooler: Pooler::None }
        }
    };
    // Where there is no connection to be had, the next look says why. It needs a session that is kept.
    if !in_time(has_session(&direct)).await?.unwrap_or(true) {
        findings.push(judge_way(pooler, false, false));
        return Ok(());
    }
    let found = in_time(inspect(&direct)).await??;
    if let Some(objection) = found.objection {
        findings.push(failure(format!("database: {objection}")));
        return Ok(());
    }
    let pgvector = found.pgvector.as_deref().unwrap_or("not yet added");
    findings.push(well(format!("database: PostgreSQL {}, pgvector {pgvector}", found.postgres)));
    let way = judge_way(pooler, true, in_time(has_session(&options)).await?.context("DATABASE_URL")?);
    let is_wrong = way.health == Health::Failure;
    findings.push(way);
    if is_wrong {
        return Ok(());
    }
    let schema = judge_schema(&found, last_migration());
    let is_usable = schema.health == Health::Well;
    findings.push(schema);
    if !is_usable {
        return Ok(());
    }
    let db = Db::new(options, 1, pooler);
    let examined = examine_data(&db, findings).await;
    db.close().await;
    examined
}

/// What is asked of a server that may hang, be starting, or be behind a firewall that lets nothing back.
async fn in_time<T>(answer: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(PATIENCE, answer).await.map_err(|_| {
        anyhow::anyhow!(
            "no answer from Postgres within {} s: look at the way to it (host, port, firewall) and at its log; one that \
             starts takes its time, one that hangs has to be started anew",
            PATIENCE.as_secs()
        )
    })
}

async fn examine_data(db: &Db, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    findings.push(if db.has_second_wall().await? {
        well("role: row-level security binds it".to_owned())
    } else {
        warning(
            "role: row-level security does not bind it; use one without SUPERUSER and BYPASSRLS".to_owned(),
        )
    });
    let (before, told, after) = (Clock::System.now(), time(db).await?, Clock::System.now());
    findings.push(judge_clock(skew(before, told, after)));
    findings.push(judge_indexes(&unusable_indexes(db).await?));
    let census = space::census(db).await?;
    findings.extend(census.spaces.iter().map(|space| describe(space, census.episodic + census.semantic)));
    Ok(())
}

/// How the schema stands to this memser, whose last migration is `last`, and whether a start can bring it up to date.
fn judge_schema(found: &Inspection, last: i64) -> Finding {
    let applied = found.migration.unwrap_or_default();
    if applied > last {
        return well(format!(
            "schema: at migration {applied}, newer than this memser, which knows {last}, and suits it"
        ));
    }
    if applied == last {
        return well(format!("schema: up to date (migration {applied})"));
    }
    let behind = format!("schema: at migration {applied} of {last}");
    if !found.may_make_tables {
        return failure(format!(
            "{behind}, and memser's role may make no tables: alter database NAME owner to ROLE"
        ));
    }
    if found.pgvector.is_none() && !found.may_add_pgvector {
        // A managed server may allow by other means what its tables say only a superuser may do.
        return warning(format!(
            "{behind}, and by Postgres' rules memser's role may not add pgvector, which the next start needs: as a \
             superuser, run in the database: create extension vector"
        ));
    }
    warning(format!("{behind}; the next start, or memser migrate, goes on"))
}

/// Whether the connections are what the settings say they are.
fn judge_way(pooler: Pooler, direct_has_session: bool, has_session: bool) -> Finding {
    match (pooler, direct_has_session, has_session) {
        (Pooler::Transaction, false, _) => failure(
            "pooler: DATABASE_DIRECT_URL leads to a pooler of transactions: name a way past it, for migrations, the locks of \
             sweeps and indexes"
                .to_owned(),
        ),
        (Pooler::None, _, false) => failure(
            "pooler: DATABASE_URL leads to a pooler of transactions: set DATABASE_DIRECT_URL to a way past it".to_owned(),
        ),
        (Pooler::Transaction, true, false) => well("pooler: of transactions, as DATABASE_POOLER says".to_owned()),
        (Pooler::Transaction, true, true) => warning(
            "pooler: DATABASE_URL keeps its sessions, so that each statement is prepared anew for nothing: leave out \
             DATABASE_POOLER and DATABASE_DIRECT_URL"
                .to_owned(),
        ),
        (Pooler::None, _, true) => well("pooler: none, or one of sessions".to_owned()),
    }
}

/// How far a clock that told its time between two looks at this one is ahead of it, at least.
fn skew(before: DateTime<Utc>, told: DateTime<Utc>, after: DateTime<Utc>) -> TimeDelta {
    told - told.clamp(before, after.max(before))
}

fn judge_clock(ahead: TimeDelta) -> Finding {
    if ahead.abs() <= SKEW_MAX {
        return well("clock: Postgres' agrees with this machine's".to_owned());
    }
    let way = if ahead > TimeDelta::zero() { "ahead of" } else { "behind" };
    warning(format!(
        "clock: Postgres' is {} s {way} this machine's: let NTP set both, because expiry, sweeps and the order of memories go \
         by the clocks of memser's machines",
        ahead.abs().num_seconds()
    ))
}

fn judge_indexes(unusable: &[String]) -> Finding {
    if unusable.is_empty() {
        return well("indexes: all can be used".to_owned());
    }
    warning(format!(
        "indexes: {} cannot be used, so that what needs them is slow: memser jobs run embed makes those named \
         memory_embedding_hnsw_ anew, reindex index concurrently the others, as the tables' owner",
        unusable.join(", ")
    ))
}

/// How full a space is.
fn describe(space: &Progress, memories: i64) -> Finding {
    let Progress { known, vectors, .. } = space;
    let name = format!("{} {} ({} dimensions)", known.provider, known.model, known.space.dimensions);
    let share = if memories > 0 { vectors * 100 / memories } else { 100 };
    let fill = format!("{vectors} of {memories} memories have their vector ({share} %)");
    match space.state {
        State::Building => warning(format!("embeddings: {name} is being filled: {fill}")),
        State::Retired => well(format!("embeddings: {name} is no longer used; {vectors} vectors are kept")),
        State::Active if *vectors < memories => {
            warning(format!("embeddings: {name} is in use: {fill}; the others wait for the embed sweep"))
        }
        State::Active if known.space.is_indexed() && !space.has_index => {
            warning(format!("embeddings: {name} is in use: {fill}; its index waits for the embed sweep"))
        }
        State::Active => well(format!("embeddings: {name} is in use: {fill}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::space::{Known, Space};

    fn space(state: State, vectors: i64, has_index: bool) -> Progress {
        let known = Known {
            space: Space { id: 1, dimensions: 8 },
            provider: "hash".to_owned(),
            model: "hash".to_owned(),
        };
        Progress { known, state, vectors, has_index }
    }

    #[test]
    fn a_space_is_described_by_what_it_lacks() {
        let Finding { health, text } = describe(&space(State::Building, 25, false), 200);
        assert_eq!(health, Health::Warning);
        assert!(
            text.contains("being filled") && text.contains("25 of 200") && text.contains("12 %"),
            "{text}"
        );
        assert_eq!(describe(&space(State::Active, 200, true), 200).health, Health::Well);
        assert_eq!(describe(&space(State::Active, 0, true), 0).health, Health::Well);
        assert!(describe(&space(State::Active, 199, true), 200).text.contains("the others wait"));
        assert!(describe(&space(State::Active, 200, false), 200).text.contains("its index waits"));
        assert_eq!(describe(&space(State::Retired, 3, false), 200).health, Health::Well);
    }

    #[test]
    fn a_schema_that_is_behind_is_told_apart_from_one_that_cannot_go_on() {
        let found = Inspection {
            postgres: "18.6".to_owned(),
            pgvector: None,
            migration: None,
            may_add_pgvector: true,
            may_make_tables: true,
            objection: None,
        };
        let judge = |found: &Inspection| {
            let Finding { health, text } = judge_schema(found, 9);
            (health, text)
        };
        let at = |migration| Inspection { migration: Some(migration), ..found.clone() };
        assert_eq!(judge(&at(9)), (Health::Well, "schema: up to date (migration 9)".to_owned()));
        let (health, text) = judge(&at(12));
        assert!(health == Health::Well && text.contains("newer than this memser"), "{text}");
        let (health, text) = judge(&found);
        assert!(health == Health::Warning && text.contains("memser migrate"), "{text}");
        let (health, text) = judge(&Inspection { may_add_pgvector: false, ..found.clone() });
        assert!(health == Health::Warning && text.contains("create extension vector"), "{text}");
        let added =
            Inspection { pgvector: Some("0.8.6".to_owned()), may_add_pgvector: false, ..found.clone() };
        assert!(judge(&added).1.contains("memser migrate"));
        let (health, text) = judge(&Inspection { may_make_tables: false, ..found });
        assert!(health == Health::Failure && text.contains("owner to"), "{text}");
    }

    #[test]
    fn a_pooler_is_to_be_what_the_settings_say() {
        let health = |pooler, direct, url| judge_way(pooler, direct, url).health;
        assert_eq!(health(Pooler::None, true, true), Health::Well);
        assert_eq!(health(Pooler::Transaction, true, false), Health::Well);
        assert_eq!(health(Pooler::Transaction, true, true), Health::Warning);
        assert_eq!(health(Pooler::None, false, false), Health::Failure);
        assert_eq!(health(Pooler::Transaction, false, false), Health::Failure);
    }

    #[test]
    fn only_what_a_slow_answer_does_not_explain_is_skew() {
        let at = |seconds: i64| DateTime::from_timestamp(1_000_000 + seconds, 0).unwrap();
        let skew = |before, told, after| skew(at(before), at(told), at(after)).num_seconds();
        assert_eq!(skew(0, 5, 9), 0);
        assert_eq!(skew(0, 12, 9), 3);
        assert_eq!(skew(0, -4, 9), -4);
        assert_eq!(judge_clock(TimeDelta::seconds(2)).health, Health::Well);
        let text = judge_clock(TimeDelta::seconds(-90)).text;
        assert!(text.contains("90 s behind") && text.contains("NTP"), "{text}");
    }

    #[test]
    fn an_unusable_index_comes_with_the_way_to_mend_it() {
        assert_eq!(judge_indexes(&[]).health, Health::Well);
        let Finding { health, text } = judge_indexes(&["memories_a".to_owned(), "memories_b".to_owned()]);
        assert_eq!(health, Health::Warning);
        assert!(text.contains("memories_a, memories_b cannot be used") && text.contains("reindex"), "{text}");
    }
}
