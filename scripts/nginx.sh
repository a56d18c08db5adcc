#!/bin/sh
# Prints the path of an nginx, or of a script that runs one. Gets one where there is none: Debian's package and its
# libraries, unpacked into .tools/nginx/ and not installed, so that no root is needed. Starts nothing.
set -eu
cd "$(dirname "$0")/.."
. scripts/deb.sh

run=$PWD/.tools/nginx/nginx
usable() {
    program=$(command -v "$1" 2>/dev/null) && "$program" -v >/dev/null 2>&1 && echo "$program"
}

for program in nginx /usr/sbin/nginx "$run"; do
    if usable "$program"; then exit; fi
done
mkdir -p .tools
# Its libraries, where the system lacks them; the rest every Debian has.
unpack_program .tools/nginx usr/sbin/nginx -v nginx libpcre2-8-0? libssl3? libssl3t64?
echo "$run"
