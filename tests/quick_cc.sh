#!/bin/sh
# Compile as cc does, but with -O1 where rrnn asks for -O3: that takes a third of the time (tests/quick_c.py).
for word; do
    shift
    [ "$word" = -O3 ] && word=-O1
    set -- "$@" "$word"
done
exec cc "$@"
