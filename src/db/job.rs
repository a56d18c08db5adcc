//! What sweeps did, and what stands in their way.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::types::Json;

use super::{Db, ScopeId, Tx};
use crate::error::Result;
use crate::model::Scope;

/// One run of a job.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job's name.
    pub job: String,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it ended, or was seen to have ended; none while it runs.
    pub finished_at: Option<DateTime<Utc>>,
    /// `running`, `done`, `failed`, `stopped`, or `lost` where its memser ended without a word.
    pub outcome: String,
    /// What it says of itself.
    pub detail: Value,
}

/// How things stand with a job.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// When its last run started.
    pub last_start: Option<DateTime<Utc>>,
    /// Whether a replica holds its lock.
    pub is_running: bool,
}

/// A scope that consolidation failed in.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The scope.
    pub scope: Scope,
    /// How often in a row.
    pub tries: i32,
    /// The last error's code and words.
    pub reason: String,
    /// When it failed last.
    pub failed_at: DateTime<Utc>,
    /// When it is tried again.
    pub retry_at: DateTime<Utc>,
}

/// How things stand with a job whose lock has this key.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn standing(db: &Db, job: &str, lock_key: i64) -> Result<Standing> {
    let mut tx = Tx::of_no_scope(db).await?;
    // A lock's bigint key is shown in two halves.
    let row = sqlx::query!(
        r#"select (select max(started_at) from job_runs where job = $1) as last_start,
                  exists (select from pg_locks
                           where locktype = 'advisory' and objsubid = 1 and granted
                             and database = (select oid from pg_database where datname = current_database())
                             and (classid::bigint << 32 | objid::bigint) = $2) as "is_running!""#,
        job,
        lock_key
    )
    .fetch_one(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(Standing { last_start: row.last_start, is_running: row.is_running })
}

/// Notes that a run starts; answers its number.
///
/// The caller has the job's lock, so that an earlier run that did not end is lost. With `reuse`, the run takes the place
/// of the one before where that changed nothing.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn start_run(db: &Db, job: &str, now: DateTime<Utc>, reuse: bool) -> Result<i64> {
    let mut tx = Tx::of_no_scope(db).await?;
    sqlx::query!(
        "update job_runs set outcome = 'lost', finished_at = $2 where job = $1 and outcome = 'running'",
        job,
        now
    )
    .execute(tx.conn())
    .await?;
    let reused = if reuse {
        sqlx::query_scalar!(
            "update job_runs set outcome = 'running', started_at = $2, finished_at = null
              where run_id = (select run_id from job_runs where job = $1 order by started_at desc limit 1)
                and outcome = 'done' and detail = '{\"changed\": 0}'
          returning run_id",
            job,
            now
        )
        .fetch_optional(tx.conn())
        .await?
    } else {
        None
    };
    let run =
        match reused {
            Some(run) => run,
            None => sqlx::query_scalar!(
                "insert into job_runs (job, started_at, outcome) values ($1, $2, 'running') returning run_id",
                job,
                now
            )
            .fetch_one(tx.conn())
            .await?,
        };
    tx.commit().await?;
    Ok(run)
}

/// Notes how a run ended.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn finish_run(db: &Db, run: i64, now: DateTime<Utc>, outcome: &str, detail: &Value) -> Result<()> {
    let mut tx = Tx::of_no_scope(db).await?;
    sqlx::query!(
        "update job_runs set outcome = $2, finished_at = $3, detail = $4 where run_id = $1",
        run,
        outcome,
        now,
        Json(detail) as _
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await
}

/// The last runs of a job, latest first.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn runs(db: &Db, job: &str, limit: i64) -> Result<Vec<Run>> {
    let mut tx = Tx::of_no_scope(db).await?;
    let rows = sqlx::query!(
        "select job, started_at, finished_at, outcome, detail from job_runs
          where job = $1 order by started_at desc, run_id desc limit $2",
        job,
        limit
    )
    .fetch_all(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(rows
        .into_iter()
        .map(|row| Run {
            job: row.job,
            started_at: row.started_at,
            finished_at: row.finished_at,
            outcome: row.outcome,
            detail: row.detail,
        })
        .collect())
}

/// Drops up to `limit` runs that started before a time; answers how many. The last run of each job stays, and the last that
/// ended well: they say when a job is due and whether it works.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn prune_runs(db: &Db, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    let mut tx = Tx::of_no_scope(db).await?;
    let pruned = sqlx::query!(
        "delete from job_runs where run_id in (
             select run_id from job_runs old
              where started_at < $1
                and exists (select from job_runs later
                             where later.job = old.job and later.started_at > old.started_at
                               and (old.outcome <> 'done' or later.outcome = 'done'))
              order by run_id limit $2)",
        before,
        limit
    )
    .execute(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(pruned.rows_affected())
}

/// When a job last ended well.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn last_success(db: &Db, job: &str) -> Result<Option<DateTime<Utc>>> {
    let mut tx = Tx::of_no_scope(db).await?;
    let at = sqlx::query_scalar!(
        "select finished_at from job_runs where job = $1 and outcome = 'done' order by started_at desc limit 1",
        job
    )
    .fetch_optional(tx.conn())
    .await?;
    tx.commit().await?;
    Ok(at.flatten())
}

/// One more failure in a scope; answers how many in a row there were.
///
/// One after which a fact was made starts a new row: the scope is only slow.
///
/// # Errors
/// When the connection is lost.
pub async fn count_failure(tx: &mut Tx, scope: ScopeId, reason: &str, now: DateTime<Utc>) -> Result<i32> {
    Ok(sqlx::query_scalar!(
        "insert into consolidation_failures as known (scope_id, tries, reason, failed_at, retry_at)
         values ($1, 1, $2, $3, $3)
             on conflict (scope_id) do update
                set tries = 1 + case when exists (select from memories m
                                                   where m.scope_id = $1 and m.tier = 'semantic'
                                                     and m.created_at > known.failed_at)
                                     then 0 else known.tries end,
                    reason = excluded.reason, failed_at = excluded.failed_at
         returning tries",
        scope.0,
        reason,
        now
    )
    .fetch_one(tx.conn())
    .await?)
}

/// When a scope that failed is tried again.
///
/// # Errors
/// When the connection is lost.
pub async fn rest_until(tx: &mut Tx, scope: ScopeId, retry_at: DateTime<Utc>) -> Result<()> {
    sqlx::query!("update consolidation_failures set retry_at = $2 where scope_id = $1", scope.0, retry_at)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Forgets the failures of a scope.
///
/// # Errors
/// When the connection is lost.
pub async fn clear_failures(tx: &mut Tx, scope: ScopeId) -> Result<()> {
    sqlx::query!("delete from consolidation_failures where scope_id = $1", scope.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Forgets the failures of all scopes; answers how many there were.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn clear_all_failures(db: &Db) -> Result<u64> {
    let mut tx = Tx::all_scopes(db).await?;
    let cleared =
        sqlx::query!("delete from consolidation_failures").execute(tx.conn()).await?.rows_affected();
    tx.commit().await?;
    Ok(cleared)
}

/// The scopes that failed at least `tries` times in a row, the latest first.
///
/// # Errors
/// `unavailable` when the database is down.
pub async fn failures(db: &Db, tries: i32) -> Result<Vec<Failure>> {
    let mut tx = Tx::all_scopes(db).await?;
    let rows = sqlx::query!(
        "select s.name, f.tries, f.reason, f.failed_at, f.retry_at
           from consolidation_failures f join scopes s using (scope_id)
          where f.tries >= $1 order by f.failed_at desc, scope_id",
        tries
    )
    .fetch_all(tx.conn())
    .await?;
    tx.commit().await?;
    rows.into_iter()
        .map(|row| {
            Ok(Failure {
                scope: Scope::parse(&row.name)?,
                tries: row.tries,
                reason: row.reason,
                failed_at: row.failed_at,
                retry_at: row.retry_at,
            })
        })
        .collect()
}
