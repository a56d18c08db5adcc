-- The schema of memser.
--
-- Rules that hold for every scoped table, so that it can be hash-partitioned or distributed by scope without a change:
--   * its primary key, unique constraints and foreign keys contain scope_id;
--   * row-level security is enabled and forced: a statement sees the scope that its transaction named
--     (memser.scope_id, set by Tx::for_scope), all scopes where it named '*' (Tx::all_scopes), and otherwise nothing;
--   * no index condition relies on an operator that is not leakproof, or row-level security would turn the index off.
--
-- The extension is created by whoever provisions the database: pgvector is not a trusted extension, and memser's own
-- role is no superuser. Where it is there already, this is a no-op.
create extension if not exists vector;

-- What the transaction may see: null (nothing), '*' (everything) or one scope id.
create function memser_scope_setting() returns text
language sql stable parallel safe
return nullif(current_setting('memser.scope_id', true), '');

create table scopes (
    scope_id        bigint generated always as identity primary key,
    name            text collate "C" not null,
    -- Counters, changed only under the scope's lock.
    memories        bigint not null default 0,
    -- Sum of memories.token_count: with `memories` the average length that BM25 needs.
    tokens          bigint not null default 0,
    bytes           bigint not null default 0,
    -- Active episodic rows: what consolidation has still to look at.
    unconsolidated  bigint not null default 0,
    created_at      timestamptz not null,
    constraint scopes_name_key unique (name)
);

create table memories (
    scope_id          bigint not null references scopes,
    id                uuid not null,
    tier              text not null constraint memories_tier_known check (tier in ('episodic', 'semantic')),
    content           text not null,
    -- SHA-256 of the normalised text: trivial repeats are one memory.
    content_hash      bytea not null,
    tags              text[] not null default '{}',
    source            text collate "C",
    actor             text,
    metadata          jsonb not null default '{}',
    confidence        real not null constraint memories_confidence_range check (confidence between 0 and 1),
    -- How often the memory was explicitly stated.
    support           integer not null default 1,
    created_at        timestamptz not null,
    -- When what it tells happened, where the caller said so.
    occurred_at       timestamptz,
    valid_from        timestamptz not null,
    -- Set when the memory is superseded; a row is active exactly while this is null.
    valid_to          timestamptz,
    superseded_by     uuid,
    superseded_reason text constraint memories_reason_known
                      check (superseded_reason in ('conflict', 'replaced', 'consolidated')),
    -- Order of storing within scope and source: the neighbour boost's axis.
    seq               bigint not null,
    token_count       integer not null,
    -- Times confidence last decayed; never shown to users.
    decayed_at        timestamptz,
    primary key (scope_id, id),
    -- Deferred, because the old row is superseded before its successor is inserted: the unique index below demands
    -- that order when both have the same text.
    constraint memories_superseded_by_fkey foreign key (scope_id, superseded_by) references memories (scope_id, id)
        on delete set null (superseded_by) deferrable initially deferred,
    constraint memories_superseded_whole check ((valid_to is null) = (superseded_reason is null))
) with (fillfactor = 85);

create unique index memories_active_content on memories (scope_id, content_hash) where valid_to is null;
create index memories_newest on memories (scope_id, created_at desc, id desc);
create index memories_source_seq on memories (scope_id, source, seq);
create index memories_superseded_by on memories (scope_id, superseded_by) where superseded_by is not null;

create table embedding_spaces (
    space_id    integer generated always as identity primary key,
    provider    text not null,
    model       text not null,
    dimensions  integer not null constraint embedding_spaces_dimensions_range check (dimensions between 1 and 16000),
    state       text not null constraint embedding_spaces_state_known check (state in ('building', 'active', 'retired')),
    created_at  timestamptz not null,
    constraint embedding_spaces_identity_key unique (provider, model, dimensions)
);

-- Apart from memories, so that updates of a memory never touch a vector index. Rows are never updated. No row in the
-- active space means that the embedding is pending.
create table memory_embedding (
    scope_id   bigint not null,
    memory_id  uuid not null,
    space_id   integer not null references embedding_spaces,
    embedding  vector not null,
    primary key (scope_id, memory_id, space_id),
    constraint memory_embedding_memory_fkey foreign key (scope_id, memory_id)
        references memories (scope_id, id) on delete cascade
-- Vectors of up to 2,000 dimensions stay in the row: an exact scan that must fetch each from TOAST is several times
-- slower.
) with (toast_tuple_target = 8160);
alter table memory_embedding alter column embedding set storage main;

-- Postings for BM25. The index holds everything that a query needs, so that it is read index-only.
create table memory_term (
    scope_id   bigint not null,
    term       text collate "C" not null,
    memory_id  uuid not null,
    tf         integer not null,
    -- The memory's token_count.
    len        integer not null,
    primary key (scope_id, term, memory_id) include (tf, len),
    constraint memory_term_memory_fkey foreign key (scope_id, memory_id)
        references memories (scope_id, id) on delete cascade
);
create index memory_term_memory on memory_term (scope_id, memory_id);

create table memory_access (
    scope_id          bigint not null,
    memory_id         uuid not null,
    access_count      bigint not null,
    last_accessed_at  timestamptz not null,
    primary key (scope_id, memory_id),
    constraint memory_access_memory_fkey foreign key (scope_id, memory_id)
        references memories (scope_id, id) on delete cascade
) with (fillfactor = 70);

-- Which episodic rows a semantic row was made from.
create table memory_origin (
    scope_id   bigint not null,
    memory_id  uuid not null,
    origin_id  uuid not null,
    primary key (scope_id, memory_id, origin_id),
    constraint memory_origin_memory_fkey foreign key (scope_id, memory_id)
        references memories (scope_id, id) on delete cascade,
    constraint memory_origin_origin_fkey foreign key (scope_id, origin_id)
        references memories (scope_id, id) on delete cascade
);
create index memory_origin_origin on memory_origin (scope_id, origin_id);

-- How often each source stated a memory; '' stands for no source.
create table memory_sources (
    scope_id   bigint not null,
    memory_id  uuid not null,
    source     text collate "C" not null,
    statements integer not null default 1,
    primary key (scope_id, memory_id, source),
    constraint memory_sources_memory_fkey foreign key (scope_id, memory_id)
        references memories (scope_id, id) on delete cascade
);

-- What was forgotten: the last copy, written in the transaction that deletes.
create table memory_snapshot (
    scope_id      bigint not null references scopes,
    memory_id     uuid not null,
    tier          text not null,
    -- Null after an erasure, which leaves the hash alone.
    content       text,
    content_hash  bytea not null,
    tags          text[] not null default '{}',
    source        text,
    metadata      jsonb not null default '{}',
    created_at    timestamptz not null,
    forgotten_at  timestamptz not null,
    forgotten_by  text not null,
    primary key (scope_id, memory_id)
);
create index memory_snapshot_forgotten_at on memory_snapshot (forgotten_at);

-- Pairs that a reviewer has to look at.
create table conflicts (
    scope_id     bigint not null,
    conflict_id  uuid not null,
    new_id       uuid not null,
    old_id       uuid not null,
    similarity   real not null,
    status       text not null default 'open' constraint conflicts_status_known check (status in ('open', 'resolved')),
    resolution   text,
    resolved_by  text,
    resolved_at  timestamptz,
    created_at   timestamptz not null,
    primary key (scope_id, conflict_id),
    constraint conflicts_pair_key unique (scope_id, new_id, old_id),
    constraint conflicts_new_fkey foreign key (scope_id, new_id) references memories (scope_id, id) on delete cascade,
    constraint conflicts_old_fkey foreign key (scope_id, old_id) references memories (scope_id, id) on delete cascade
);
create index conflicts_old on conflicts (scope_id, old_id);

create table idempotency_keys (
    scope_id    bigint not null references scopes,
    key         text collate "C" not null,
    body_hash   bytea not null,
    answer      jsonb not null,
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    primary key (scope_id, key)
);
create index idempotency_keys_expires_at on idempotency_keys (expires_at);

-- The working tier where no Redis is configured. Keyed by content, because storing the same text again refreshes it.
create table working_memories (
    scope_id      bigint not null references scopes,
    content_hash  bytea not null,
    id            uuid not null,
    entry         jsonb not null,
    expires_at    timestamptz not null,
    primary key (scope_id, content_hash)
);
create index working_memories_expires_at on working_memories (expires_at);

-- Scope by name, because a refused call on a scope that never existed is a row as well.
create table memory_audit_log (
    audit_id    bigint generated always as identity primary key,
    at          timestamptz not null,
    request_id  text not null,
    subject     text not null,
    actor       text,
    action      text not null,
    scope       text,
    memory_id   uuid,
    outcome     text not null,
    detail      jsonb not null default '{}'
);
create index memory_audit_log_at on memory_audit_log (at);
create index memory_audit_log_scope on memory_audit_log (scope, at);

create table job_runs (
    run_id       bigint generated always as identity primary key,
    job          text not null,
    started_at   timestamptz not null,
    finished_at  timestamptz not null,
    outcome      text not null constraint job_runs_outcome_known check (outcome in ('done', 'failed', 'stopped')),
    detail       jsonb not null default '{}'
);
create index job_runs_job on job_runs (job, started_at desc);

-- The second wall. The sub-selects make each setting a constant of the query instead of a call per row.
do $$
declare
    scoped text;
begin
    foreach scoped in array array[
        'scopes', 'memories', 'memory_embedding', 'memory_term', 'memory_access', 'memory_origin', 'memory_sources',
        'memory_snapshot', 'conflicts', 'idempotency_keys', 'working_memories'
    ] loop
        execute format('alter table %I enable row level security', scoped);
        execute format('alter table %I force row level security', scoped);
        execute format(
            'create policy %I on %I using ('
            '    scope_id = (select nullif(memser_scope_setting(), ''*'')::bigint)'
            '    or (select memser_scope_setting() = ''*''))',
            scoped || '_wall', scoped);
    end loop;
end
$$;

-- The audit log is written by every transaction and read only by those that may see all scopes.
alter table memory_audit_log enable row level security;
alter table memory_audit_log force row level security;
create policy memory_audit_log_write on memory_audit_log for insert with check (true);
create policy memory_audit_log_read on memory_audit_log using ((select memser_scope_setting() = '*'));
