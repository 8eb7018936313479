"""Runs the commands of a site's own diagnosis rules on this node.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input.
    commands  run all commands once in parallel, and return the results

Commands run as the login user, or as the launch user if the login user is root. They cannot gain privileges by sudo or
any other setuid program. Commands run without a shell and with a time limit.
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
MOST = 16_000  # bytes read from each stream
SHOWN = 4_000  # characters that are returned
# setpriv is part of util-linux, present on every node. The command cannot gain privileges.
WITHOUT_RIGHTS = ("setpriv", "--no-new-privs", "--")


def main() -> None:
    answer({"commands": commands})


def commands(request: Json) -> Json:
    """Run the commands. request: {user, commands: {id: {argv, seconds}}}. Return {answers: {id: {code, output, why}}};
    code is None if the command did not run or timed out."""
    asked = dict(list(request["commands"].items())[:MOST_COMMANDS])
    try:
        user = unprivileged(request["user"])
    except PermissionError as refused:
        return {"answers": {name: {"code": None, "output": "", "why": str(refused)} for name in asked}}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = {name: threads.submit(ended, one["argv"], one["seconds"], user) for name, one in asked.items()}
        return {"answers": {name: one.result() for name, one in found.items()}}


def unprivileged(name: str) -> pwd.struct_passwd | None:
    """Return the user to run as, or None for the current user. Raises PermissionError."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise PermissionError(f"the user {name} does not exist, and site commands must not run as root") from None
    if user.pw_uid == 0:
        raise PermissionError(f"{name} is root, but site commands must not run as root")
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
