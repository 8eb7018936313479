"""What a node has of launches, for whoever asks for them and for what they left. Every verb prints one JSON object.

It is no part of the program that launch, because that one is sent with every look.

    identity  user   says who looks
    jobs      root   the launches of this node; a user without root sees their own, and that there are others
    plan      root   what this node keeps of one launch, so that any controller can attach to it or end it
    follow    root   what was logged since the last time; renews no lease
    fetchable root   names and sizes of what a launch left in its working directory
    fetched   root   bytes of it
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
