#!/bin/bash
# Checks a live memser against its own description (/openapi.json) with schemathesis: requests that fit it and requests
# that do not, on every operation. The seed is fixed, so that a failure comes again.
#
#   scripts/live.sh scripts/rest.sh
set -euo pipefail
cd "$(dirname "$0")/.."
: "${MEMSER_URL:?is not set: run scripts/live.sh $0}" "${MEMSER_SOLE_TOKEN:?}"

. scripts/pip.sh
install_packages .tools/schemathesis schemathesis==4.32.5

log=$(mktemp "${TMPDIR:-/tmp}/memser-rest.XXXXXX")
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A token of one scope, so that requests without a scope are right, too.
if PYTHONPATH=.tools/schemathesis python3 -m schemathesis.cli --config-file tests/rest/schemathesis.toml \
    run "$MEMSER_URL/openapi.json" --header "Authorization: Bearer $MEMSER_SOLE_TOKEN" \
    --max-examples 50 --seed 1 --no-color --suppress-health-check all >"$log" 2>&1 </dev/null
then
    sed -n '/= SUMMARY =/,$p' "$log" | grep -E 'Selected|Tested|generated|passed' || true
else
    cat "$log"
    exit 1
fi
