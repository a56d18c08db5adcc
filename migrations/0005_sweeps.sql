-- Sweeps: each run is noted when it starts, a scope that keeps failing is parked, and decay goes by real time.

-- A run is there from its start on. One whose memser ended without a word is `lost`: the next run of the job, which has
-- the lock, says so.
alter table job_runs alter column finished_at drop not null;
alter table job_runs drop constraint job_runs_outcome_known;
alter table job_runs add constraint job_runs_outcome_known
    check (outcome in ('running', 'done', 'failed', 'stopped', 'lost'));
alter table job_runs add constraint job_runs_finished check ((outcome = 'running') = (finished_at is null));

-- When a memory was last stated again; never shown to users. A memory that was stated again or recalled starts to decay
-- anew.
alter table memories add column restated_at timestamptz;

-- Scopes that consolidation failed in, without a success since. One with too many tries is parked until `retry_at`.
create table consolidation_failures (
    scope_id   bigint primary key references scopes,
    tries      integer not null,
    -- The error's code and words, never content.
    reason     text not null,
    failed_at  timestamptz not null,
    retry_at   timestamptz not null
);

alter table consolidation_failures enable row level security;
alter table consolidation_failures force row level security;
create policy consolidation_failures_wall on consolidation_failures using (
    scope_id = (select nullif(memser_scope_setting(), '*')::bigint)
    or (select memser_scope_setting() = '*'));
