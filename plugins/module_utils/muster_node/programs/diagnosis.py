"""What runs on a node that a diagnosis asks about, whoever has started it. Every verb prints one JSON object.

identity  user   says who looks
agents    root   says which launchers of PyTorch's ranks run, with their ranks; anybody else sees their own
"""

from __future__ import annotations

from ..diagnosis.agents import agents
from ..launch import state
from ..launch.own import identity
from ..tools.program import answer


def main() -> None:
    verbs = {"identity": identity, "agents": agents}
    answer({verb: state.in_its_manager(work) for verb, work in verbs.items()})


if __name__ == "__main__":
    main()
