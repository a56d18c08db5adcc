#!/bin/bash
# Uses a live memser with the clients that others write: each lists the tools, calls each and checks an error;
# one also uses tokens that lack a right. Then runs what users are to start from, as it is.
# Prints a line for each client and mode, and fails if one did. The programs are in tests/interop and examples.
#
#   scripts/live.sh scripts/interop.sh
set -euo pipefail
cd "$(dirname "$0")/.."
: "${MEMSER_URL:?is not set: run scripts/live.sh $0}" "${MEMSER_TOKEN:?}" "${MEMSER_READER_TOKEN:?}" \
    "${MEMSER_SOLE_TOKEN:?}"

. scripts/node.sh
npm_get .tools/interop @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2 \
    @modelcontextprotocol/inspector@2.12.0
install_packages .tools/python mcp==2.3.0
# Apart, because the adapters are for the line of `mcp` before 2.
install_packages .tools/langgraph langgraph==1.2.22 langchain-mcp-adapters==0.3.2

log=$(mktemp "${TMPDIR:-/tmp}/memser-interop.XXXXXX")
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

passed=0 failed=0
# try NAME COMMAND...: says nothing of a client's output unless it fails.
try() {
    local name=$1
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "FAILED $name"
        sed 's/^/    /' "$log"
        failed=$((failed + 1))
    fi
}

# shows TEXT COMMAND...: that a command succeeds and prints the text.
shows() {
    local text=$1
    shift
    local printed
    printed=$("$@") || return
    printf '%s\n' "$printed"
    grep -qF -- "$text" <<<"$printed"
}

for mode in auto legacy 2026-07-28; do
    try "python $mode" env PYTHONPATH=.tools/python python3 tests/interop/python_client.py "$mode"
    try "python $mode, refusals" env PYTHONPATH=.tools/python python3 tests/interop/refusals.py "$mode"
    # Another memser, which trusts an authorization server that lives as long.
    try "python $mode, OAuth" env PYTHONPATH=.tools/python python3 tests/interop/issuer.py \
        scripts/live.sh python3 tests/interop/oauth.py "$mode"
    try "python $mode, stdio" env PYTHONPATH=.tools/python python3 tests/interop/python_stdio.py "$mode" \
        "${CARGO_TARGET_DIR:-target}/debug/memser"
done
# A copy beside the packages: Node looks for them from where a program is.
cp tests/interop/typescript.mjs .tools/interop/
for mode in auto legacy sdk; do
    try "typescript $mode" node .tools/interop/typescript.mjs "$mode"
done
try rmcp cargo run --locked --quiet --example rmcp_client
for era in legacy modern; do
    try "inspector $era" node tests/interop/inspector.mjs .tools/interop/node_modules/.bin/mcp-inspector "$era"
done

try 'example curl' shows 'before breakfast' sh examples/curl.sh
try 'example python' shows 'called Byron' env PYTHONPATH=.tools/python python3 examples/python/remember.py
cp examples/typescript/remember.ts .tools/interop/
try 'example typescript' shows 'the cello' node .tools/interop/remember.ts
# The second message is a conversation of its own, which knows of the first by memser alone.
try 'example langgraph' shows '| My bicycle is green.' \
    env PYTHONPATH=.tools/langgraph MEMSER_TOKEN="$MEMSER_SOLE_TOKEN" \
    python3 examples/python/langgraph_agent.py 'My bicycle is green.' 'Which bicycle is mine?'
try 'example telegram_bot' cargo test --locked --quiet -p memser-telegram-bot
try 'example claude-code-plugin' python3 tests/interop/plugin.py

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
