-- When autovacuum comes: by default after a fifth of a table has changed, which in a large one is late. docs/operations.md has
-- what was measured. Each statement holds back other changes of the schema and vacuums, no reader and no writer.

-- A recall reads postings from the index alone, but only on pages that a vacuum has seen since they were written.
alter table memory_term set (autovacuum_vacuum_insert_scale_factor = 0.02);

-- Rows that live for a short while: the sweep that drops them reads over those that are dead already.
alter table idempotency_keys set (autovacuum_vacuum_scale_factor = 0.05);
alter table working_memories set (autovacuum_vacuum_scale_factor = 0.05);
