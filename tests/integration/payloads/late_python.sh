#!/bin/sh
# Python with a clock two minutes ahead for programs of Muster's probes. The system clock is unchanged.
if [ "$1 $2 $3" = "-I -S -c" ]; then
    ahead="import time; true_time = time.time; time.time = lambda: true_time() + 120"
    program=$4
    shift 4
    exec python3 -I -S -c "$ahead
$program" "$@"
fi
exec python3 "$@"
