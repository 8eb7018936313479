#!/bin/sh
# Stub of ssh to a node of a launch and of the program on the node. Every verb is answered immediately, except look: it
# waits for the file end-of-launch in $MUSTER_STANDIN, and is counted in the file looks there.
for command; do :; done
cat >/dev/null
unit='{"LoadState": "loaded", "ActiveState": "active", "Result": "success"}'
log='"logs": {"agent": {"begin": 0, "gap": 0, "offset": 6, "text": "agent\n", "more": false}}'
rest="\"ranks\": [], \"errors\": {}, \"notes\": [], $log, \"clock\": 5.0, \"disk\": {\"path\": \"/\", \"free\": 9, \"total\": 9}"
case "${command##* }" in
    identity) printf '%s\n' '{"uid": 1000, "gid": 1000}' ;;
    start) printf '%s\n' '{"started": true, "error": "", "time": 5.0, "reserved": null}' ;;
    look)
        echo >>"$MUSTER_STANDIN/looks"
        [ -e "$MUSTER_STANDIN/end-of-launch" ] || sleep "$MUSTER_STANDIN_WAIT"
        result=null
        [ -e "$MUSTER_STANDIN/end-of-launch" ] && result='{"reason": "exit", "code": 0, "ended_at": 5.0}'
        printf '%s\n' "{\"unit\": $unit, \"result\": $result, $rest}"
        ;;
    stop)
        ended='"error": "", "leftovers": [], "clean": true, "result": {"reason": "exit", "code": 0, "ended_at": 5.0}'
        printf '%s\n' "{\"unit\": $unit, \"unit_before\": $unit, $ended, $rest}"
        ;;
    *) printf '%s\n' '{}' ;;
esac
