#!/bin/bash
# Runs the official MCP conformance suite against a live memser, for each revision of the protocol that it scores.
# What may fail is in tests/conformance/REVISION.yml. An entry there that passes is a failure too: the file stays true.
#
#   scripts/live.sh scripts/conformance.sh own
#       the scenarios that need nothing but a server, of which none may fail
#   LIVE_PROGRAM=examples/conformance scripts/live.sh scripts/conformance.sh all
#       every scenario, with the tools, prompts and resources that the suite expects
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:?is missing: own or all}
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

# suite NAME OPTION...: runs a part of the suite; its results stay in .tools, for whoever looks into a failure.
results=.tools/conformance/results/$part
rm -rf "$results"
failed=
suite() {
    local name=$1
    shift
    if .tools/conformance/node_modules/.bin/conformance server --url "$url/mcp" -o "$results/$name" "$@" >"$log" 2>&1
    then
        # One that is shown may still have warnings in the baseline; one without a single check says nothing.
        sed -n 's/^✓ \(.*: [1-9][0-9]* passed\), 0 failed.*/  \1/p' "$log"
        echo "ok $name: $(sed -n 's/^Total: //p; s/^Passed: //p' "$log")"
    else
        # From the summary on, or all of it where the suite did not come that far.
        if grep -q '^=== SUMMARY' "$log"; then sed -n '/^=== SUMMARY/,$p' "$log"; else cat "$log"; fi
        echo "FAILED $name: see $results/$name"
        failed=1
    fi
}

everywhere=(tools-list resources-list prompts-list dns-rebinding-protection)
case $part in
    own)
        for scenario in "${everywhere[@]}" server-initialize ping; do
            suite "2025-11-25-$scenario" --scenario "$scenario" --spec-version 2025-11-25
        done
        for scenario in "${everywhere[@]}" caching sep-2164-resource-not-found server-sse-multiple-streams \
            input-required-result-unsupported-methods input-required-result-validate-input http-header-validation
        do
            suite "2026-07-28-$scenario" --scenario "$scenario" --spec-version 2026-07-28
        done
        ;;
    all)
        # What failed is in the baseline or not scored.
        for revision in 2025-11-25 2026-07-28; do
            suite "$revision" --requirements "$revision" --expected-failures "tests/conformance/$revision.yml"
        done
        # Not scored either, but nothing that memser leaves out.
        for scenario in json-schema-2020-12 http-custom-header-server-validation; do
            suite "2026-07-28-$scenario" --scenario "$scenario" --spec-version 2026-07-28
        done
        ;;
esac
[ -z "$failed" ]
