# Sourced: gets Debian packages into a folder, without installing anything and without root.

# unpack_packages FOLDER PACKAGE...: downloads these and unpacks them into FOLDER, with nothing that they depend on. One
# whose name ends in `?` may be missing. The packages' signatures are checked as usual.
unpack_packages() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "error: no apt-get: only Debian's packages can be got here" >&2
        return 1
    fi
    _state=$(mktemp -d "$1/.apt.XXXXXX")
    _state=$(cd "$_state" && pwd)
    mkdir -p "$_state/lists/partial" "$_state/archives/partial" "$_state/got"
    # A state of its own: a user that is not root may not write the system's. In one chain, because a caller that asks
    # whether it went well turns `set -e` off in here.
    apt_in "$_state" update && (
        cd "$_state/got" && shift || exit 1
        for _package; do
            case $_package in
            *\?) apt_in "$_state" download "${_package%?}" 2>/dev/null || true ;;
            *) apt_in "$_state" download "$_package" || exit 1 ;;
            esac
        done
    ) && for _package in "$_state"/got/*.deb; do dpkg-deb -x "$_package" "$1" || return 1; done &&
        rm -rf "$_state"
}

# unpack_program FOLDER PROGRAM VERSION_OPTION PACKAGE...: puts these packages into FOLDER, whole or not at all, with a script
# beside them that runs PROGRAM, a path within them, with the libraries that they brought. Tries it with VERSION_OPTION.
unpack_program() (
    folder=$1 program=$2 option=$3 name=${2##*/}
    shift 3
    echo "Getting $name into $folder/" >&2
    new=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM
    # Another user may have to run it.
    chmod 755 "$new"
    mkdir -p "$new/root/usr/lib"
    unpack_packages "$new/root" "$@" || {
        echo "error: no $name: install $name" >&2
        exit 1
    }
    libraries=$(find "$new/root/usr/lib" -name '*.so.*' -exec dirname {} + | sort -u | head -n 1)
    cat >"$new/$name" <<SCRIPT
#!/bin/sh
here=\$(dirname "\$0")
${libraries:+export LD_LIBRARY_PATH=\"\$here${libraries#"$new"}\"}
exec "\$here/root/$program" "\$@"
SCRIPT
    chmod 755 "$new/$name"
    "$new/$name" "$option" >&2 || {
        echo "error: this $name does not run on this system: install $name" >&2
        exit 1
    }
    rm -rf "$folder"
    mv "$new" "$folder"
)

apt_in() {
    _apt=$1
    shift
    apt-get -qq -o Dir::State="$_apt" -o Dir::State::Lists="$_apt/lists" -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Cache="$_apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" >&2
}
