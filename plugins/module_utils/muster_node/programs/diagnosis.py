"""Reports processes of all users on a node for a diagnosis. Every verb prints one JSON object.

identity  user   reports the login user
agents    root   reports running launchers of PyTorch ranks, with their ranks; without root only those of the user
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
