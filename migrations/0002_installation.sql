-- Which memser this is: servers outside this database keep its data apart from other installations' by this id.
create table installation (
    installation_id  uuid not null default gen_random_uuid(),
    is_only_row      boolean primary key default true constraint installation_is_one check (is_only_row)
);

insert into installation default values;
