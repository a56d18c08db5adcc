#!/bin/bash
# Runs a command with a throw-away Postgres, a PgBouncer before it and a throw-away Redis, all on 127.0.0.1 and gone
# afterwards:
#
#   scripts/test-services.sh cargo test
#
# The command finds MEMSER_TEST_DATABASE_URL (a superuser's, since tests create databases and roles),
# MEMSER_TEST_REDIS_URL, MEMSER_PG_BIN, MEMSER_TEST_MODEL_DIR, MEMSER_TEST_NGINX and MEMSER_TEST_CADDY (programs that it
# starts itself) and MEMSER_TEST_POOLER, the address of the PgBouncer. That gives each transaction another session, and lets
# memser's test role in with its name as the password.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/group.sh
. "$here/group.sh"
# shellcheck source=scripts/servers.sh
. "$here/servers.sh"

redis_server=$("$here/redis.sh")
pgbouncer_program=$("$here/pgbouncer.sh")
# The folder of a sentence transformer: the one that was named, or that of `make model`.
if [ -z "${MEMSER_TEST_MODEL_DIR:-}" ]; then
    "$here/model.sh"
    MEMSER_TEST_MODEL_DIR=$(cd "$here/../.models/all-MiniLM-L6-v2" && pwd)
fi
export MEMSER_TEST_MODEL_DIR
MEMSER_TEST_NGINX=$("$here/nginx.sh")
MEMSER_TEST_CADDY=$("$here/caddy.sh")
export MEMSER_TEST_NGINX MEMSER_TEST_CADDY

work=$(mktemp -d "${TMPDIR:-/tmp}/memser-test.XXXXXX")
postgres= redis= pgbouncer=
clean_up() {
    status=$?
    trap '' INT TERM HUP
    end_group
    # Immediate shutdown: nobody will read this data again.
    if [ -n "$postgres" ]; then kill -QUIT "$postgres" 2>/dev/null || true; fi
    if [ -n "$redis" ]; then kill "$redis" 2>/dev/null || true; fi
    # Not QUIT, which a program that was started in the background may have been told to ignore.
    if [ -n "$pgbouncer" ]; then kill -KILL "$pgbouncer" 2>/dev/null || true; fi
    wait 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

init_postgres
export MEMSER_PG_BIN=$bin
if [ "$(id -u)" = 0 ] && ! "${as_owner[@]}" "$pgbouncer_program" --version >/dev/null 2>&1; then
    cp -r "${pgbouncer_program%/*}" "$work/pgbouncer"
    chmod -R a+rX "$work/pgbouncer"
    pgbouncer_program=$work/pgbouncer/pgbouncer
fi

# start_on_free_port NAME LOG READY COMMAND...: tries ports until the server keeps one; sets NAME and NAME_port.
# READY is run with the port until it succeeds.
start_on_free_port() {
    local name=$1 log=$2 ready=$3 attempt port pid tick
    shift 3
    for attempt in 1 2 3 4 5; do
        # Below the range from which the system gives out ports by itself.
        port=$((10000 + RANDOM % 20000))
        # A process group of its own: Ctrl-C must reach the tests before their servers.
        set -m
        "$@" "$port" >"$log" 2>&1 </dev/null &
        pid=$!
        set +m
        printf -v "$name" %s "$pid"
        printf -v "${name}_port" %s "$port"
        for ((tick = 0; tick < 600; tick++)); do
            if ! kill -0 "$pid" 2>/dev/null; then break; fi
            if "$ready" "$port"; then return; fi
            sleep 0.05
        done
        printf -v "$name" %s ''
        kill -KILL "$pid" 2>/dev/null || true
    done
    echo "error: $name did not start ($attempt attempts)" >&2
    cat "$log" >&2
    exit 1
}

run_postgres() {
    cd /
    # fsync is off because this database is thrown away: never copy that to one that is kept.
    exec "${as_owner[@]}" "$bin/postgres" -D "$work/data" -p "$1" -c listen_addresses=127.0.0.1 -k '' \
        -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 -c jit=off
}
run_redis() {
    exec "$redis_server" --port "$1" --bind 127.0.0.1 --dir "$work" --save '' --appendonly no --daemonize no
}
redis_ready() {
    grep -qs 'Ready to accept connections' "$work/redis.log"
}
# As strict as Debian's default: an option at the start that it does not know, or a statement that was prepared in another
# transaction, is an error. Few sessions, so that clients do not keep meeting their own. Idle ones go at once, because each
# test has a database of its own.
run_pgbouncer() {
    cat >"$work/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=${postgres_port:?}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
pool_mode = transaction
auth_type = plain
auth_file = $work/pgbouncer.users
default_pool_size = 4
max_client_conn = 500
server_idle_timeout = 2
INI
    echo '"memser_test" "memser_test"' >"$work/pgbouncer.users"
    chmod 644 "$work/pgbouncer.ini" "$work/pgbouncer.users"
    cd /
    exec "${as_owner[@]}" "$pgbouncer_program" "$work/pgbouncer.ini"
}
pgbouncer_ready() {
    grep -q 'process up' "$work/pgbouncer.log"
}

start_on_free_port postgres "$work/postgres.log" postgres_ready run_postgres
start_on_free_port redis "$work/redis.log" redis_ready run_redis
start_on_free_port pgbouncer "$work/pgbouncer.log" pgbouncer_ready run_pgbouncer

export MEMSER_TEST_DATABASE_URL="postgres://postgres:$password@127.0.0.1:${postgres_port:?}/postgres"
export MEMSER_TEST_POOLER="127.0.0.1:${pgbouncer_port:?}"
export MEMSER_TEST_REDIS_URL="redis://127.0.0.1:${redis_port:?}/0"

run_group "$@"
