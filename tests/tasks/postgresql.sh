#!/usr/bin/env bash
# Installs Debian's PostgreSQL for the tests of the search, if it is missing and can be installed. Without it they are skipped.
set -uo pipefail

compgen -G "/usr/lib/postgresql/*/bin/initdb" > /dev/null && exit 0
command -v initdb > /dev/null && exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    mkdir -p /etc/postgresql-common
    # The tests start a server of their own.
    [[ -e /etc/postgresql-common/createcluster.conf ]] || echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf
    apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql > /dev/null && exit 0
fi
echo "PostgreSQL is not installed and cannot be installed here: the tests of a search in a database server are skipped" >&2
