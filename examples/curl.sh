#!/bin/sh
# Stores a memory in memser and recalls it, with curl alone: there is no session and no handshake to make first.
#
#   MEMSER_URL=http://127.0.0.1:8080 MEMSER_TOKEN=… sh curl.sh
set -eu

# call TOOL ARGUMENTS: the token goes in by standard input, because every user of a host sees a program's arguments.
call() {
    curl --silent --show-error --fail-with-body --config - "$MEMSER_URL/mcp" --header 'Content-Type: application/json' \
        --data "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"$1\",\"arguments\":$2}}" <<END
header = "Authorization: Bearer $MEMSER_TOKEN"
END
    echo
}

# The token needs `user:alan=write`.
call store_memory '{"scope":"user:alan","content":"Alan runs along the river before breakfast.","tags":["habits"]}'
call recall_memory '{"scope":"user:alan","query":"When does Alan run?","k":3}'
