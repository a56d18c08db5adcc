-- When an embedding space came into use and went out of it: the vectors of a retired one are kept for a while, for a
-- change back. At any time at most one space is in use.
alter table embedding_spaces
    add column activated_at timestamptz,
    add column retired_at   timestamptz;

update embedding_spaces set activated_at = created_at where state = 'active';
update embedding_spaces set retired_at = now() where state = 'retired';

create unique index embedding_spaces_one_active on embedding_spaces (state) where state = 'active';

-- What the hash embedder computes has a name with a version from now on; these vectors are of the first one.
update embedding_spaces set model = 'hash-v1' where provider = 'hash' and model = 'hash';
