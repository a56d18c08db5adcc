#!/bin/sh
# Run once by the Postgres image, when its data folder is new: memser's role, its database and pgvector.
#
# The role is no superuser, so that row-level security binds it. pgvector is no trusted extension, so that a superuser
# has to create it.
set -eu

: "${MEMSER_DB_PASSWORD:?}"
export MEMSER_DB_PASSWORD

psql -X -v ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
-- Read from the environment, where `ps` does not show it.
\getenv password MEMSER_DB_PASSWORD
create role memser login nosuperuser nobypassrls nocreatedb nocreaterole password :'password';
create database memser owner memser encoding 'UTF8' locale 'C' template template0;
\connect memser
create extension vector;
SQL
