-- Review of conflicts, restoring what was superseded, and erasing without a trace.

-- `undone`: a consolidated fact that a reviewer took apart again. It has no successor; its originals are active.
alter table memories drop constraint memories_reason_known;
alter table memories add constraint memories_reason_known
    check (superseded_reason in ('conflict', 'replaced', 'consolidated', 'undone'));

-- Restored out of a consolidated fact: consolidation leaves it alone from then on, or it would undo the review.
alter table memories add column kept_apart boolean not null default false;

-- The same event told again after it became history.
create index memories_superseded_content on memories (scope_id, content_hash) where valid_to is not null;

-- Null where the pair was never measured: a correction that was undone.
alter table conflicts alter column similarity drop not null;

-- Earlier lives of an erased text.
create index memory_snapshot_content on memory_snapshot (scope_id, content_hash);

-- An erasure empties the details of the memory's rows, in the transaction that deletes.
create index memory_audit_log_memory on memory_audit_log (scope, memory_id) where memory_id is not null;
create policy memory_audit_log_own on memory_audit_log for select using (
    scope = (select name from scopes where scope_id = (select nullif(memser_scope_setting(), '*')::bigint)));
create policy memory_audit_log_erase on memory_audit_log for update using (
    scope = (select name from scopes where scope_id = (select nullif(memser_scope_setting(), '*')::bigint)));
