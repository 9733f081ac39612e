#!/usr/bin/env bash
# Installs Debian's Chromium for the tests of the page, where there is none and it can be had. Without it they are skipped.
set -uo pipefail

for name in chromium chromium-browser google-chrome; do
    command -v "$name" > /dev/null && exit 0
done
if [[ $(id -u) -eq 0 ]] && command -v apt-get > /dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium > /dev/null && exit 0
fi
echo "no Chromium here, and none to be had: the tests of the page in a browser will be skipped" >&2
