"""Somebody's notebook on a node. Every verb prints one JSON object; root does all of it as the account that is named.

look    user   whether it runs, and where it listens
start   user   starts it, and waits until it answers
stop    user   ends it
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..tools.program import answer
from ..workbench import notebook


def act(verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """user: empty for who logs in. users_root: where launch users have their folders. at_boot: for start alone."""
    try:
        owner = notebook.owner_of(request["user"])
    except notebook.NoNotebookError as problem:
        return {"error": str(problem)}
    return notebook.as_owner(owner, verb, request)


def main() -> None:
    answer({verb: partial(act, verb) for verb in ("look", "start", "stop")})


if __name__ == "__main__":
    main()
