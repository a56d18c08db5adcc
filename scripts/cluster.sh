#!/bin/bash
# Two memsers behind Caddy with a Postgres and a Redis of their own: a cluster of processes on this machine, to see what it
# does when one of them goes away. Any that ends is started again after a second. Ctrl-C ends it, with all that it stored.
#
# CLUSTER_PROGRAM names the memser to run; without it, the release build is brought up to date.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
. scripts/servers.sh

if [ -z "${CLUSTER_PROGRAM:-}" ]; then
    scripts/toolchain.sh
    cargo build --release --locked --bin memser
    CLUSTER_PROGRAM=${CARGO_TARGET_DIR:-target}/release/memser
fi
program=$(realpath "$CLUSTER_PROGRAM")
redis_server=$(scripts/redis.sh)
caddy=$(scripts/caddy.sh)

work=$(mktemp -d "${TMPDIR:-/tmp}/memser-cluster.XXXXXX")
# In the order in which they are started; ended the other way round.
names=(postgres redis memser-1 memser-2 caddy)
declare -A pids=() ports=()
clean_up() {
    status=$?
    trap '' INT TERM HUP
    local at name
    for ((at = ${#names[@]} - 1; at >= 0; at--)); do
        name=${names[at]}
        if [ -z "${pids[$name]:-}" ]; then continue; fi
        # Postgres' quick end; for the others the same as TERM.
        kill -INT "${pids[$name]}" 2>/dev/null || true
        wait "${pids[$name]}" 2>/dev/null || true
    done
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
init_postgres

# Below the range from which the system gives out ports by itself: they stay free while a server is started again.
for at in "${!names[@]}"; do
    until
        # Another remainder for each, so that no two are the same.
        port=$((10000 + RANDOM % 4000 * 5 + at))
        ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
    do :; done
    ports[${names[at]}]=$port
done
url=https://localhost:${ports[caddy]}
token=$(new_password)
database_password=$(new_password) redis_password=$(new_password)
# The composition's, but for the folder and the port.
(umask 077 && cat >"$work/redis.conf") <<CONF
bind 127.0.0.1
port ${ports[redis]}
dir $work
requirepass $redis_password
appendonly yes
maxmemory 256mb
maxmemory-policy noeviction
CONF
# The shipped file, with a certificate of Caddy's own that no other program is told to trust.
{
    printf '{\n%s\n}\n' "admin off
    persist_config off
    skip_install_trust
    local_certs
    auto_https disable_redirects
    default_bind 127.0.0.1
    https_port ${ports[caddy]}"
    sed "s/memser-1:8080 memser-2:8080/127.0.0.1:${ports[memser-1]} 127.0.0.1:${ports[memser-2]}/" deploy/Caddyfile
} >"$work/Caddyfile"
certificate=$work/caddy/pki/authorities/local/root.crt

run() {
    case $1 in
        postgres)
            cd /
            exec "${as_owner[@]}" "$bin/postgres" -D "$work/data" -p "${ports[$1]}" -c listen_addresses=127.0.0.1 -k ''
            ;;
        redis) exec "$redis_server" "$work/redis.conf" ;;
        memser-*)
            exec env -i PATH="$PATH" HOME="$work" EMBEDDER=hash MEMSER_BIND="127.0.0.1:${ports[$1]}" \
                MEMSER_TOKEN="$token" MEMSER_PUBLIC_URL="$url" \
                DATABASE_URL="postgres://memser:$database_password@127.0.0.1:${ports[postgres]}/memser" \
                REDIS_URL="redis://:$redis_password@127.0.0.1:${ports[redis]}/0" "$program" >"$work/$1.welcome"
            ;;
        caddy)
            exec env HOME="$work" XDG_DATA_HOME="$work" MEMSER_DOMAIN=localhost \
                "$caddy" run --config "$work/Caddyfile" --adapter caddyfile
            ;;
    esac
}

# start NAME: in a process group of its own, because Ctrl-C has to reach this script first.
start() {
    set -m
    run "$1" >>"$work/$1.log" 2>&1 </dev/null &
    set +m
    pids[$1]=$!
    echo "${pids[$1]}" >"$work/$1.pid"
}

# ready NAME: whether it serves.
ready() {
    case $1 in
        postgres) postgres_ready "${ports[$1]}" ;;
        redis) grep -qs 'Ready to accept connections' "$work/redis.log" ;;
        memser-*) MEMSER_BIND=127.0.0.1:${ports[$1]} "$program" healthcheck >/dev/null 2>&1 ;;
        caddy) [ -e "$certificate" ] && (: <>"/dev/tcp/127.0.0.1/${ports[$1]}") 2>/dev/null ;;
    esac
}

for name in "${names[@]}"; do
    start "$name"
    until ready "$name"; do
        if ! kill -0 "${pids[$name]}" 2>/dev/null; then
            echo "error: $name did not start" >&2
            tail -n 20 "$work/$name.log" >&2
            exit 1
        fi
        sleep 0.1
    done
    if [ "$name" = postgres ]; then
        # As the image of the composition does when its volume is new.
        PATH=$bin:$PATH PGHOST=127.0.0.1 PGPORT=${ports[postgres]} PGPASSWORD=$password \
            MEMSER_DB_PASSWORD=$database_password deploy/postgres/01-memser.sh >>"$work/postgres.log" 2>&1
    fi
done

# What memser itself tells, with what it cannot know.
sed "s|YOUR_TOKEN|$token|g; s|curl -s |curl -s --cacert $certificate |" "$work/memser-1.welcome"
cat <<TEXT
Token: $token
Certificate that clients have to trust (programs on Node.js: NODE_EXTRA_CA_CERTS): $certificate

Logs and pids: $work
$(for name in "${names[@]}"; do echo "  $name pid ${pids[$name]} port ${ports[$name]}"; done)
Try: kill -9 \$(cat $work/memser-1.pid)
Ctrl-C ends all of it.
TEXT

while true; do
    # Whichever it is: more than one may have ended. Bash's own words about it would only repeat ours.
    wait -n 2>/dev/null || true
    sleep 1
    for name in "${names[@]}"; do
        if ! kill -0 "${pids[$name]}" 2>/dev/null; then
            start "$name"
            echo "$name had ended and is started again: pid ${pids[$name]}"
        fi
    done
done
