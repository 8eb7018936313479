"""What a node keeps about its place in the cluster. Every verb prints one JSON object.

look    user   the copy of its quarantine
keep    root   writes the copy
forget  root   removes it
"""

from __future__ import annotations

from ..members import quarantine
from ..tools.program import answer


def main() -> None:
    answer({"look": quarantine.look, "keep": quarantine.keep, "forget": quarantine.forget})


if __name__ == "__main__":
    main()
