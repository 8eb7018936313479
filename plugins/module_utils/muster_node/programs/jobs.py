"""Reports the launches on a node and their files. Every verb prints one JSON object.

This code is separate from the program launch, because that program is sent with every look and should stay small.

    identity  user   reports the login user
    jobs      root   lists the launches of this node; without root, no details of other users' launches
    plan      root   returns the stored plan of a launch, with which any controller can attach to the launch or stop it
    follow    root   returns new log output; does not renew the lease
    fetchable root   lists files that a launch left in its working directory
    fetched   root   returns the contents of such files
"""

from __future__ import annotations

from ..launch import state
from ..launch.fetching import fetchable, fetched
from ..launch.jobs import follow, jobs, plan
from ..launch.own import identity
from ..tools.program import answer


def main() -> None:
    verbs = {
        "identity": identity,
        "jobs": jobs,
        "plan": plan,
        "follow": follow,
        "fetchable": fetchable,
        "fetched": fetched,
    }
    answer({verb: state.in_its_manager(work) for verb, work in verbs.items()})


if __name__ == "__main__":
    main()
