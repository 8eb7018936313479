"""What a node says of itself for the one screen of the cluster. Every verb prints one JSON object.

look   user   all that whoever logs in may see; reads only
seats  root   which launches have which GPUs for themselves
"""

from __future__ import annotations

from ..status.look import look, seats
from ..tools.program import answer


def main() -> None:
    answer({"look": look, "seats": seats})


if __name__ == "__main__":
    main()
