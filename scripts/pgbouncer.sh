#!/bin/sh
# Prints the path of a PgBouncer, or of a script that runs one. Gets one where there is none: Debian's package and its
# libraries, unpacked into .pgbouncer/ and not installed, so that no root is needed. Starts nothing.
set -eu
cd "$(dirname "$0")/.."
. scripts/deb.sh

run=$PWD/.pgbouncer/pgbouncer
usable() {
    program=$(command -v "$1" 2>/dev/null) && "$program" --version >/dev/null 2>&1 && echo "$program"
}

for program in pgbouncer /usr/sbin/pgbouncer "$run"; do
    if usable "$program"; then exit; fi
done
# Its libraries, where the system lacks them; the rest every Debian has.
unpack_program .pgbouncer usr/sbin/pgbouncer --version pgbouncer libc-ares2? libevent-2.1-7? libevent-2.1-7t64?
echo "$run"
