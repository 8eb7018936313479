"""Who is at work on this node, for a change that nobody's work shall be ended by. Every verb prints one JSON object.

look  root  says which launches, processes on GPUs and processes of the PyTorch environment there are
"""

from __future__ import annotations

from ..tools.program import answer
from ..upgrade.at_work import look


def main() -> None:
    answer({"look": look})


if __name__ == "__main__":
    main()
