"""Manages the node's copy of its quarantine. Every verb prints one JSON object.

look    user   returns the copy
keep    root   writes the copy
forget  root   removes the copy
"""

from __future__ import annotations

from ..members import quarantine
from ..tools.program import answer


def main() -> None:
    answer({"look": quarantine.look, "keep": quarantine.keep, "forget": quarantine.forget})


if __name__ == "__main__":
    main()
