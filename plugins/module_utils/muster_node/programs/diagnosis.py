"""What runs on a node that a diagnosis asks about, whoever has started it.

agents   root   says which launchers of PyTorch's ranks run, with their ranks; anybody else sees their own
"""

from __future__ import annotations

from ..diagnosis.agents import agents
from ..tools.program import answer


def main() -> None:
    answer({"agents": agents})


if __name__ == "__main__":
    main()
