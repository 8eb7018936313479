"""Commands by which a site's own rules ask something of this node, for the diagnosis of a launch.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input.

    commands  run them side by side, each once, and say how each ended

They run as whoever logs in, where that is root as the user of the launches, and can gain no rights: not by sudo, and
not by any other program that would have them. None runs in a shell, and each is ended when its time is over.
"""

from __future__ import annotations

import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..tools.program import answer
from ..tools.run import run

Json = dict[str, Any]

MOST_COMMANDS = 32
AT_ONCE = 8
MOST = 16_000  # bytes that are read of each stream
SHOWN = 4_000  # characters of them that are handed on
# Of util-linux, which every node has: whatever it becomes has no more rights than it had before.
WITHOUT_RIGHTS = ("setpriv", "--no-new-privs", "--")


def main() -> None:
    answer({"commands": commands})


def commands(request: Json) -> Json:
    """request: {user, commands: {id: {argv, seconds}}}. Return {answers: {id: {code, output, why}}}; code: None where
    it did not run, or not in time."""
    asked = dict(list(request["commands"].items())[:MOST_COMMANDS])
    try:
        user = unprivileged(request["user"])
    except PermissionError as refused:
        return {"answers": {name: {"code": None, "output": "", "why": str(refused)} for name in asked}}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = {name: threads.submit(ended, one["argv"], one["seconds"], user) for name, one in asked.items()}
        return {"answers": {name: one.result() for name, one in found.items()}}


def unprivileged(name: str) -> pwd.struct_passwd | None:
    """As whom they run; None for whoever runs this. Raises PermissionError."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise PermissionError(f"there is no user {name} on it, and root runs no command of a site") from None
    if user.pw_uid == 0:
        raise PermissionError(f"{name} is root, who runs no command of a site")
    return user


def ended(argv: list[str], seconds: float, user: pwd.struct_passwd | None) -> Json:
    said = run(*WITHOUT_RIGHTS, *argv, seconds=seconds, user=user, most=MOST)
    if said.code is None:
        why = said.why.replace(WITHOUT_RIGHTS[0], argv[0], 1) if said.late else said.why
        return {"code": None, "output": "", "why": why}
    if said.code in (126, 127):
        return {"code": said.code, "output": "", "why": f"{argv[0]} cannot be run: {said.said[:200]}"}
    return {"code": said.code, "output": f"{said.text}\n{said.aside}"[:SHOWN], "why": ""}


if __name__ == "__main__":
    main()
