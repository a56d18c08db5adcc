#!/bin/sh
# Checks what a build of memser needs: Rust, a C compiler (for the TLS library) and make.
set -eu

oldest=1.94

missing=
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
command -v make >/dev/null || missing="$missing make"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq >&2
        # shellcheck disable=SC2086 # a list of names
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
    else
        echo "error: a C compiler (cc) and make are needed. Install them:" >&2
        echo "  Debian, Ubuntu: sudo apt-get install gcc libc6-dev make" >&2
        echo "  Fedora:         sudo dnf install gcc make" >&2
        echo "  macOS:          xcode-select --install" >&2
        exit 1
    fi
fi

if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    echo "error: Rust $oldest or newer is needed: install rustup (https://rustup.rs), then: rustup default stable" >&2
    exit 1
fi
version=$(rustc --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n%s\n' "$oldest" "${version%%-*}" | sort -V | head -n 1)" != "$oldest" ]; then
    echo "error: rustc is $version, but memser needs $oldest or newer: rustup update stable" >&2
    exit 1
fi
