-- Consolidation looks at each memory once, and again only when a new one comes near it.

-- Looked at, or kept apart by a reviewer: nothing is to be done about it until a new memory comes near.
alter table memories add column looked_at boolean not null default false;

-- What is still to be looked at, in order.
create index memories_unconsolidated on memories (scope_id, id)
    where tier = 'episodic' and valid_to is null and not looked_at;

-- Row-level security is forced on the owner too.
select set_config('memser.scope_id', '*', true);

update memories set looked_at = true where kept_apart;
update scopes s set unconsolidated = (
    select count(*) from memories m
     where m.scope_id = s.scope_id and m.tier = 'episodic' and m.valid_to is null and not m.looked_at);
