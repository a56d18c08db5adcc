#!/bin/bash
# Runs the official MCP conformance suite against a live memser, for each revision of the protocol that it scores.
# What may fail is in tests/conformance/REVISION.yml. An entry there that passes is a failure too: the file stays true.
#
#   scripts/live.sh scripts/conformance.sh
set -euo pipefail
cd "$(dirname "$0")/.."
: "${MEMSER_URL:?is not set: run scripts/live.sh $0}" "${MEMSER_TOKEN:?}"

. scripts/node.sh
npm_get .tools/conformance @modelcontextprotocol/conformance@0.2.0-alpha.12

log=$(mktemp "${TMPDIR:-/tmp}/memser-conformance.XXXXXX")
proxy=
clean_up() {
    if [ -n "$proxy" ]; then kill "$proxy" 2>/dev/null || true; fi
    rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

exec 3< <(exec node tests/conformance/bearer-proxy.mjs)
proxy=$!
read -r url <&3

# suite REVISION NAME OPTION...: runs a part of the suite; its results stay in .tools, for whoever looks into a failure.
results=.tools/conformance/results
rm -rf "$results"
failed=
suite() {
    local revision=$1 name=$2
    shift 2
    if .tools/conformance/node_modules/.bin/conformance server --url "$url/mcp" -o "$results/$name" "$@" \
        --expected-failures "tests/conformance/$revision.yml" >"$log" 2>&1
    then
        # One that is shown may still have warnings in the baseline; one without a single check says nothing.
        sed -n 's/^✓ \(.*: [1-9][0-9]* passed\), 0 failed.*/  \1/p' "$log"
        echo "ok $name: $(sed -n 's/^Total: //p; s/^Passed: //p' "$log"); what failed is in the baseline or not scored"
    else
        # From the summary on, or all of it where the suite did not come that far.
        if grep -q '^=== SUMMARY' "$log"; then sed -n '/^=== SUMMARY/,$p' "$log"; else cat "$log"; fi
        echo "FAILED $name: see $results/$name"
        failed=1
    fi
}

for revision in 2025-11-25 2026-07-28; do
    suite "$revision" "$revision" --requirements "$revision"
done
# The suite has this one for that revision, but does not score it yet.
suite 2026-07-28 http-header-validation --scenario http-header-validation --spec-version 2026-07-28
[ -z "$failed" ]
