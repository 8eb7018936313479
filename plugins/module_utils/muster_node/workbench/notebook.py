"""A user's notebook: a unit in the user's own systemd manager. The role workbench installs the unit for all users.

All operations run as the user. Root first switches to that account.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.as_user import SilentError, as_user
from ..tools.run import run

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

UNIT = "muster-notebook.service"
START_SECONDS = 60.0  # JupyterLab takes three on a quiet machine
STOP_SECONDS = 40.0
CALL_SECONDS = 5.0
MOST_WRITTEN = 4096  # bytes
MOST_HEAD = 4096
RUNS = ("active", "activating")
UNIT_FILE = f"/etc/systemd/user/{UNIT}"


class NoNotebookError(Exception):
    """Raised if an operation fails. The message is the reason, without a full stop."""


def as_owner(owner: pwd.struct_passwd, verb: str, request: Json) -> Json:
    """Run an operation as the user; return {"error": ...} if the operation fails."""
    work: dict[str, Callable[[pwd.struct_passwd, Json], Json]] = {"look": look, "start": start, "stop": stop}

    def done() -> Json:
        try:
            return work[verb](owner, request)
        except NoNotebookError as problem:
            return {"error": str(problem)}
        except OSError as problem:
            return {"error": f"{problem.filename}: {problem.strerror}"}

    try:
        said: Json = as_user(owner, done, seconds=START_SECONDS + STOP_SECONDS, writes=MOST_WRITTEN)
    except SilentError as problem:
        return {"error": str(problem.strerror)}
    return said


def owner_of(name: str) -> pwd.struct_passwd:
    """Return the requested account; the login account if the name is empty."""
    own = pwd.getpwuid(os.geteuid())
    if name in ("", own.pw_name):
        found = own
    else:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise NoNotebookError(f"account {name} does not exist") from None
    if found.pw_uid == 0:
        raise NoNotebookError("root cannot have a notebook: set a user with -e notebook_user=NAME")
    if os.geteuid() not in (0, found.pw_uid):
        raise NoNotebookError(f"{own.pw_name} is not allowed to start a notebook of {name}")
    return found


def folder(owner: pwd.struct_passwd, request: Json) -> str:
    return f"{request['users_root']}/{owner.pw_name}/notebook"


def runtime(owner: pwd.struct_passwd) -> str:
    return f"/run/user/{owner.pw_uid}"


def look(owner: pwd.struct_passwd, request: Json) -> Json:
    place = folder(owner, request)
    token, listens = f"{place}/token", f"{runtime(owner)}/muster-notebook/socket"
    runs = state(owner) in RUNS
    return {
        "user": owner.pw_name,
        "there": Path(UNIT_FILE).exists(),
        "launch_user": Path(place).parent.is_dir(),
        "running": runs,
        "answers": runs and answer(listens, files.text(token) or "") == 200,
        "at_boot": Path(place, "at_boot").exists(),
        "socket": listens,
        "token_file": token,
    }


def start(owner: pwd.struct_passwd, request: Json) -> Json:
    before = look(owner, request)
    if not before["there"]:
        raise NoNotebookError("JupyterLab is not installed on this node")
    if not before["launch_user"]:
        raise NoNotebookError(f"{owner.pw_name} is not in launch_users, which is required for notebooks")
    if not Path(runtime(owner)).is_dir():
        unit = f"user@{owner.pw_uid}.service"
        raise NoNotebookError(f"{unit} of {owner.pw_name} is not running: the role launch_users starts it")
    place = folder(owner, request)
    with suppress(FileExistsError):
        files.make_folder(place, mode=0o700)
    if not before["running"]:
        files.replace(before["token_file"], secrets.token_hex(24).encode(), mode=0o600)
    mark(f"{place}/at_boot", there=request["at_boot"])
    mark(f"{runtime(owner)}/muster-notebook.wanted", there=True)
    if not before["running"]:
        systemctl(owner, "daemon-reload")
        systemctl(owner, "reset-failed", UNIT, may_fail=True)
        systemctl(owner, "start", UNIT)
    wait(owner, before)
    return look(owner, request)


def stop(owner: pwd.struct_passwd, request: Json) -> Json:
    before = look(owner, request)
    place = folder(owner, request)
    if before["running"]:
        systemctl(owner, "stop", UNIT)
    for path in (f"{place}/at_boot", f"{place}/token", f"{runtime(owner)}/muster-notebook.wanted"):
        files.remove(path)
    with suppress(OSError):
        Path(place).rmdir()  # it contains files of the user
    after = look(owner, request)
    if after["running"]:
        raise NoNotebookError(f"the notebook of {owner.pw_name} is still running")
    return after


def mark(path: str, *, there: bool) -> None:
    if not there:
        files.remove(path)
    elif not Path(path).exists():
        files.replace(path, b"", mode=0o600)


def state(owner: pwd.struct_passwd) -> str:
    asked = run(*command("is-active", UNIT), env=environment(owner))
    return asked.text.strip()


def command(*words: str) -> tuple[str, ...]:
    return ("systemctl", "--user", *words)


def environment(owner: pwd.struct_passwd) -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "XDG_RUNTIME_DIR": runtime(owner)}


def systemctl(owner: pwd.struct_passwd, *words: str, may_fail: bool = False) -> None:
    done = run(*command(*words), env=environment(owner), seconds=STOP_SECONDS)
    if done.code != 0 and not may_fail:
        raise NoNotebookError(f"{' '.join(command(*words))} failed: {done.said or done.why}")


def wait(owner: pwd.struct_passwd, seen: Json) -> None:
    """Wait until the notebook responds to requests with the token, and check that it rejects requests without the
    token."""
    token = files.read(seen["token_file"], most=100).decode()
    deadline = time.monotonic() + START_SECONDS
    while (code := answer(seen["socket"], token)) != 200:
        if state(owner) not in RUNS or time.monotonic() > deadline:
            raise NoNotebookError(f"the notebook of {owner.pw_name} does not respond ({code or 'nothing listens'})")
        time.sleep(0.2)
    if answer(seen["socket"], "") != 403:
        raise NoNotebookError("the notebook accepts requests without its token")


def answer(path: str, token: str) -> int:
    """Send a request to the server on this socket. Return the HTTP status; 0 without a response."""
    head = f"Authorization: token {token}\r\n" if token else ""
    with suppress(OSError, ValueError, IndexError), socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(CALL_SECONDS)
        talk.connect(path)
        talk.sendall(f"GET /api/status HTTP/1.0\r\nHost: localhost\r\n{head}\r\n".encode())
        return int(talk.recv(MOST_HEAD).split()[1])
    return 0
