"""What a launch does on one node: prepare, start, run, look, stop.

The supervisor on the controller runs it by Program (plugin_utils), with a verb as argument and a JSON payload on
standard input. Every verb prints one JSON object.

    identity  user   says who looks
    fit       root   says, between two attempts, whether the node can take part in the next; writes nothing
    prepare   root   reads what a start depends on; writes nothing
    start     root   makes the run directory, the state directory and the unit, which takes its seats
    reserve   root   has the unit take its seats or let them go; returns who has them
    run       user   the unit's main process: keeps the lease, runs torchrun, watches its ranks
    look      user   renews the lease; returns the unit, the ranks and what was logged since the last look
    logs      user   returns what was logged since the last look, after the end
    snapshot  root   says how the ranks are at this moment, and who listens on the launch's ports
    freeze    root   stops the ranks where they are
    stop      root   ends the unit, looks that nothing of it is left, and gives the last report

In somebody's own launch (`own` in each request) all of it is that user's, and root does nothing.
"""

from __future__ import annotations

import sys

from ..diagnosis.asked import sampling, snapshot_of, start, stop
from ..launch import state
from ..launch.facts import prepare
from ..launch.fit import fit
from ..launch.looking import logs, look
from ..launch.own import identity
from ..launch.running import run
from ..launch.seats import reserve
from ..launch.stopping import freeze
from ..tools.program import answer


def main() -> None:
    if sys.argv[1] == "run":
        run(sys.argv[2], sampling)
        return
    verbs = {
        "identity": identity,
        "fit": fit,
        "prepare": prepare,
        "start": start,
        "reserve": reserve,
        "look": look,
        "logs": logs,
        "snapshot": snapshot_of,
        "freeze": freeze,
        "stop": stop,
    }
    answer({verb: state.in_its_manager(work) for verb, work in verbs.items()})


if __name__ == "__main__":
    main()
