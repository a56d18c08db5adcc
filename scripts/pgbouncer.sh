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
echo "Getting PgBouncer into .pgbouncer/" >&2
new=$(mktemp -d ./.pgbouncer.XXXXXX)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$new"
mkdir "$new/root"
# Its libraries, where the system lacks them; the rest every Debian has.
unpack_packages "$new/root" pgbouncer libc-ares2? libevent-2.1-7? libevent-2.1-7t64? || {
    echo "error: no PgBouncer: install pgbouncer" >&2
    exit 1
}
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
