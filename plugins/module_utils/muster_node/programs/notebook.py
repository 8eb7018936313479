"""Starts, inspects and stops a user's notebook on a node. Every verb prints one JSON object. Root acts as the named
user.

look    user   reports whether the notebook is running, and its socket
start   user   starts the notebook, and waits until it responds
stop    user   stops the notebook
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..tools.program import answer
from ..workbench import notebook


def act(verb: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run a verb. request: {user: empty for the login user, users_root: parent folder of launch users' folders,
    at_boot: only for start}."""
    try:
        owner = notebook.owner_of(request["user"])
    except notebook.NoNotebookError as problem:
        return {"error": str(problem)}
    return notebook.as_owner(owner, verb, request)


def main() -> None:
    answer({verb: partial(act, verb) for verb in ("look", "start", "stop")})


if __name__ == "__main__":
    main()
