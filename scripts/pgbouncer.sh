#!/bin/sh
# Prints the path of a PgBouncer, or of a script that runs one. Gets one where there is none: Debian's package and its
# libraries, unpacked into .pgbouncer/ and not installed, so that no root is needed. Starts nothing.
set -eu
cd "$(dirname "$0")/.."

run=$PWD/.pgbouncer/pgbouncer
usable() {
    program=$(command -v "$1" 2>/dev/null) && "$program" --version >/dev/null 2>&1 && echo "$program"
}

for program in pgbouncer /usr/sbin/pgbouncer "$run"; do
    if usable "$program"; then exit; fi
done
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "error: no PgBouncer: install pgbouncer" >&2
    exit 1
fi

echo "Getting PgBouncer into .pgbouncer/" >&2
new=$(mktemp -d ./.pgbouncer.XXXXXX)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$new"
mkdir -p "$new/state/lists/partial" "$new/cache/archives/partial" "$new/root"
# A state of its own: a user that is not root may not write the system's. The packages' signatures are checked as usual.
apt() {
    apt-get -qq -o Dir::State="$PWD/state" -o Dir::State::Lists="$PWD/state/lists" -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Cache="$PWD/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" >&2
}
(
    cd "$new"
    apt update
    apt download pgbouncer
    # Its libraries, where the system lacks them; the rest every Debian has.
    for library in libc-ares2 libevent-2.1-7 libevent-2.1-7t64; do
        if apt download "$library" 2>/dev/null; then :; fi
    done
    for package in *.deb; do dpkg-deb -x "$package" root; done
    rm -rf ./*.deb state cache
)
libraries=$(find "$new/root/usr/lib" -name '*.so.*' -exec dirname {} + | sort -u | head -n 1)
cat >"$new/pgbouncer" <<SCRIPT
#!/bin/sh
here=\$(dirname "\$0")
export LD_LIBRARY_PATH="\$here${libraries#"$new"}"
exec "\$here/root/usr/sbin/pgbouncer" "\$@"
SCRIPT
chmod 755 "$new/pgbouncer"
"$new/pgbouncer" --version >&2 || {
    echo "error: this PgBouncer does not run on this system: install pgbouncer" >&2
    exit 1
}
rm -rf .pgbouncer
mv "$new" .pgbouncer
trap - EXIT
echo "$run"
