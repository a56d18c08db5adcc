-- Which memsers can work with this schema: those that know the migration of this number. A later migration that takes away
-- or changes what they use raises it to its own number; one that only adds leaves it, so that replicas of the release
-- before can be started during an upgrade.
alter table installation add column suits_from bigint not null default 8;
