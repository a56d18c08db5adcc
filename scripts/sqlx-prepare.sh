#!/bin/bash
# Brings .sqlx/, the checked form of every query, up to date with the code and the migrations, as
# `cargo sqlx prepare` does; with --check only says whether it is. Brings its own Postgres.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${MEMSER_TEST_DATABASE_URL:-}" ]; then
    exec scripts/test-services.sh scripts/sqlx-prepare.sh "$@"
fi

new=$(mktemp -d ./.sqlx.XXXXXX)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
# The macros resolve a relative path from wherever the compiler runs.
new=$PWD/${new#./}

database=memser_prepare_$$
psql=("$MEMSER_PG_BIN/psql" -X -q -v ON_ERROR_STOP=1)
"${psql[@]}" "$MEMSER_TEST_DATABASE_URL" -c "create database $database"
url=${MEMSER_TEST_DATABASE_URL%/*}/$database
for migration in migrations/*.sql; do
    [ -e "$migration" ] || continue
    case $(head -n 1 "$migration") in
        '-- no-transaction'*) "${psql[@]}" "$url" -f "$migration" ;;
        *) "${psql[@]}" "$url" -1 -f "$migration" ;;
    esac
done

# A macro writes what it learns only when it runs: a new timestamp makes cargo check the library again.
touch src/lib.rs
SQLX_OFFLINE=false SQLX_OFFLINE_DIR=$new DATABASE_URL=$url cargo check --locked --lib

if [ "${1:-}" = --check ]; then
    touch src/lib.rs # what was built now did not see .sqlx
    # `-N` lets a missing .sqlx pass for an empty one, which is right while there is no query.
    if ! diff -rqN "$new" .sqlx >&2; then
        echo "The queries above differ between the code (${new##*/}) and .sqlx:" >&2
        diff -ruN .sqlx "$new" | grep -E '^[+-] *"query"' >&2 || true
        echo "error: .sqlx is out of date: make prepare" >&2
        exit 1
    fi
else
    chmod 755 "$new"
    rm -rf .sqlx
    mv "$new" .sqlx
fi
