#!/usr/bin/env bash
# Installs Debian's PostgreSQL for the tests of the search, if it is missing and can be installed. Without it they are skipped.
set -uo pipefail

command -v initdb > /dev/null && exit 0
compgen -G "/usr/lib/postgresql/*/bin/initdb" > /dev/null && exit 0
if [[ $(id -u) -eq 0 ]] && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    # The tests start a server of their own: no other one is set up.
    apt-get update -qq &&
        apt-get install -qq -y --no-install-recommends postgresql-common > /dev/null &&
        sed -i "s/^#*create_main_cluster.*/create_main_cluster = false/" /etc/postgresql-common/createcluster.conf &&
        apt-get install -qq -y --no-install-recommends postgresql > /dev/null && exit 0
fi
echo "PostgreSQL is not installed and cannot be installed here: the tests of searches on many machines are skipped" >&2
