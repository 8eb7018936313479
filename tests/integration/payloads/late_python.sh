#!/bin/sh
# Python two minutes ahead: a program that Muster's probes pipe into it sees another time than there is. No clock is touched.
if [ "$1 $2 $3" = "-I -S -c" ]; then
    ahead="import time; true_time = time.time; time.time = lambda: true_time() + 120"
    program=$4
    shift 4
    exec python3 -I -S -c "$ahead
$program" "$@"
fi
exec python3 "$@"
