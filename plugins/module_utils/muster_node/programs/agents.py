"""The launchers and ranks that run on a node, whoever has begun them. Every verb prints one JSON object.

identity  user   says who looks
agents    root   what runs here, and how its ranks are; a user without root sees their own
"""

from __future__ import annotations

from ..diagnosis.agents import agents
from ..launch import state
from ..launch.facts import identity
from ..tools.program import answer


def main() -> None:
    verbs = {"identity": identity, "agents": agents}
    answer({verb: state.in_its_manager(work) for verb, work in verbs.items()})


if __name__ == "__main__":
    main()
