-- Whose token made a scope: how many one token may make is limited. Null for scopes that were made before this was noted.
alter table scopes add column created_by text collate "C";

create index scopes_created_by on scopes (created_by) where created_by is not null;
