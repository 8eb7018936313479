"""Log in from this node to other cluster nodes as this user, with existing keys and known host keys.

The role ssh_mesh creates both kinds of keys. A site's own setup also works, for example home folders on a file server.
"""

from __future__ import annotations

import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..tools.run import PATH, run

if TYPE_CHECKING:
    from ..tools.run import CommandResult

Json = dict[str, Any]

# By default sshd allows 10 unauthenticated connections (MaxStartups), and all of them come from this node.
AT_ONCE = 6
REACH_SECONDS = 20.0
MOST_SAID = 2000  # characters
MOST_REPLY = 64_000  # bytes
OPTIONS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=8", "ClearAllForwardings=yes"),
    *("ServerAliveInterval=3", "ServerAliveCountMax=3"),
)
ALONE = ("ControlMaster=no", "ControlPath=none")


def environment() -> dict[str, str]:
    """Return the environment variables that ssh needs to find this user's files."""
    user = pwd.getpwuid(os.getuid())
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}


def log_in(
    address: str,
    command: str,
    stdin: bytes = b"",
    *,
    options: tuple[str, ...] = ALONE,
    seconds: float = REACH_SECONDS,
    most: int = MOST_REPLY,
) -> CommandResult:
    """Run a shell command on another node as this user. options: ssh options in addition to OPTIONS."""
    words = [f"-o{option}" for option in (*OPTIONS, *options)]
    user = pwd.getpwuid(os.getuid()).pw_name
    return run(
        "ssh",
        "-T",
        *words,
        "-l",
        user,
        "--",
        address,
        command,
        stdin=stdin,
        seconds=seconds,
        env=environment(),
        most=most,
    )


def reach(request: Json) -> Json:
    """Try to log in to each node; return {tried: {node: {code, said}}}. request: {nodes: {name: address}}."""
    nodes: dict[str, str] = request["nodes"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda address: log_in(address, "true"), nodes.values())
        return {"tried": {name: outcome(answer) for name, answer in zip(nodes, answers, strict=True)}}


def outcome(answer: CommandResult) -> Json:
    said = answer.aside if answer.code == 0 else f"{answer.aside}\n{answer.text}".strip() or answer.why
    return {"code": 255 if answer.code is None else answer.code, "said": " ".join(said.split())[:MOST_SAID]}
