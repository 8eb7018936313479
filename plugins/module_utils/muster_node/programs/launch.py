"""Prepares, starts, runs, inspects and stops a launch on one node.

The supervisor on the controller runs this program through NodeProgram, with a verb as argument and a JSON payload on
standard input. Every verb prints one JSON object.

    identity  user   reports the login user
    fit       root   reports, between two attempts, whether the node is ready for the next attempt; writes nothing
    prepare   root   returns the data for the preflight checks; writes nothing
    start     root   creates the run directory, the state directory and the unit, which reserves the slots
    reserve   root   makes the unit reserve or release its slots; returns the holders of the slots
    run       user   main process of the unit: checks the lease, runs torchrun, watches its ranks
    look      user   renews the lease; returns the state of unit and ranks, and new log output
    logs      user   returns new log output after the launch has ended
    snapshot  root   reports the current state of the ranks, and listeners on the launch's ports
    freeze    root   pauses the ranks
    stop      root   stops the unit, checks for leftover processes, and returns the last report

In a user launch (`own` in each request) all verbs run as the launch's user, without root.
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
