"""What a node has of launches, for whoever asks for them and for what they left. Every verb prints one JSON object.

It is no part of the program that launch, because that one is sent with every look.

    identity  user   says who looks
    jobs      root   the launches of this node; a user without root sees their own, and that there are others
    plan      root   what this node keeps of one launch, so that any controller can attach to it or end it
    fetchable root   names and sizes of what a launch left in its working directory
    fetched   root   bytes of it
"""

from __future__ import annotations

from ..launch.facts import identity
from ..launch.fetching import fetchable, fetched
from ..launch.jobs import jobs, plan
from ..tools.program import answer


def main() -> None:
    answer({"identity": identity, "jobs": jobs, "plan": plan, "fetchable": fetchable, "fetched": fetched})


if __name__ == "__main__":
    main()
