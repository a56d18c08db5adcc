//! What is no memory is kept for as long as an operator says, and then dropped without holding anybody up.

use std::time::Duration;

use memser::jobs::{Ran, Sweep};
use sqlx::{AssertSqlSafe, Executor, PgConnection};

use crate::support::{TestApp, start_of_time};

const DAY: Duration = Duration::from_hours(24);

async fn ask<T>(connection: &mut PgConnection, query: &str) -> Vec<T>
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_all(connection).await.unwrap()
}

/// Audit rows of many chunks, a minute from each other, the last at the start of the test's time.
async fn many_calls(connection: &mut PgConnection) {
    sqlx::query(
        "insert into memory_audit_log (at, request_id, subject, action, outcome)
         select $1 - n * interval '1 minute', 'r' || n, 'test', 'recall_memory', 'ok' from generate_series(0, 2499) n",
    )
    .bind(start_of_time())
    .execute(connection)
    .await
    .unwrap();
}

#[tokio::test]
async fn the_audit_log_is_kept_for_ever_unless_a_time_is_set() {
    let app = TestApp::start().await;
    let mut connection = app.database.connect().await;
    many_calls(&mut connection).await;
    app.clock.advance(DAY * 3_650);
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    assert_eq!(ask::<i64>(&mut connection, "select count(*) from memory_audit_log").await, [2_500]);
    app.stop().await;
}

#[tokio::test]
async fn calls_before_the_time_that_is_set_are_dropped_and_no_lock_is_waited_for() {
    let app = TestApp::builder().set("AUDIT_RETENTION_DAYS", "30").start().await;
    let mut connection = app.database.connect().await;
    many_calls(&mut connection).await;
    // What an erasure has under its hands is left for the next time.
    let mut erasure = app.database.connect().await;
    erasure
        .execute("begin; select from memory_audit_log where request_id = 'r2000' for update")
        .await
        .unwrap();
    // 2,499 minutes are a day and three quarters: those of the last 720 minutes stay.
    app.clock.advance(DAY * 29 + DAY / 2);
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let left: Vec<String> = ask(
        &mut connection,
        "select request_id from memory_audit_log where subject = 'test' order by at desc",
    )
    .await;
    assert_eq!((left.len(), &*left[720], &*left[721]), (722, "r720", "r2000"));
    erasure.execute("rollback").await.unwrap();
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let left: Vec<i64> =
        ask(&mut connection, "select count(*) from memory_audit_log where subject = 'test'").await;
    assert_eq!(left, [721]);
    app.stop().await;
}

#[tokio::test]
async fn runs_are_dropped_but_for_those_that_say_how_a_job_is() {
    let app = TestApp::builder().set("JOB_RUNS_RETENTION_DAYS", "10").start().await;
    let mut connection = app.database.connect().await;
    for (job, day, outcome) in [
        ("consolidate", 1, "done"),
        ("consolidate", 2, "done"),
        ("consolidate", 3, "failed"),
        ("consolidate", 4, "failed"),
        ("decay", 1, "lost"),
        ("decay", 2, "done"),
        ("decay", 15, "failed"),
        ("decay", 16, "failed"),
        ("embed", 1, "done"),
        ("embed", 19, "stopped"),
    ] {
        sqlx::query(
            "insert into job_runs (job, started_at, finished_at, outcome)
             select $1, at, at, $3 from (select $2 + make_interval(days => $4) as at) as day",
        )
        .bind(job)
        .bind(start_of_time())
        .bind(outcome)
        .bind(day)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    app.clock.advance(DAY * 20);
    assert_eq!(app.jobs.run(Sweep::Prune).await, Ran::Done);
    let left: Vec<String> = ask(
        &mut connection,
        "select job || ' ' || extract(day from started_at - timestamptz '2026-03-01T12:00:00Z') || ' ' || outcome
           from job_runs where job <> 'prune' order by job, started_at",
    )
    .await;
    assert_eq!(
        left,
        [
            "consolidate 2 done",
            "consolidate 4 failed",
            "decay 2 done",
            "decay 15 failed",
            "decay 16 failed",
            "embed 1 done",
            "embed 19 stopped"
        ]
    );
    app.stop().await;
}
