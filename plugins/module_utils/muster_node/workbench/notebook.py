"""Somebody's own notebook: a unit of their own user manager, which the role workbench has put there for everybody.

All of it is done as its owner: root becomes that account first.
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
    """Why it is not so, as a sentence without its full stop."""


def as_owner(owner: pwd.struct_passwd, verb: str, request: Json) -> Json:
    """Do it as that account; {"error": ...} where it did not work."""
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
    """The account that is meant: the one that logs in, where none is named."""
    own = pwd.getpwuid(os.geteuid())
    if name in ("", own.pw_name):
        found = own
    else:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise NoNotebookError(f"there is no account {name}") from None
    if found.pw_uid == 0:
        raise NoNotebookError("a notebook belongs to a person, and not to root: name one with -e notebook_user=NAME")
    if os.geteuid() not in (0, found.pw_uid):
        raise NoNotebookError(f"{own.pw_name} may not start a notebook of {name}")
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
        raise NoNotebookError("JupyterLab is not on this node")
    if not before["launch_user"]:
        raise NoNotebookError(f"{owner.pw_name} is not in launch_users, and only they have notebooks")
    if not Path(runtime(owner)).is_dir():
        unit = f"user@{owner.pw_uid}.service"
        raise NoNotebookError(f"{unit}, the systemd of {owner.pw_name}, does not run: launch_users starts it")
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
        Path(place).rmdir()  # what else is in it is its owner's
    after = look(owner, request)
    if after["running"]:
        raise NoNotebookError(f"the notebook of {owner.pw_name} still runs")
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
        raise NoNotebookError(f"{' '.join(command(*words))} did not work: {done.said or done.why}")


def wait(owner: pwd.struct_passwd, seen: Json) -> None:
    """Until it answers: nobody without the token, and whoever has it."""
    token = files.read(seen["token_file"], most=100).decode()
    deadline = time.monotonic() + START_SECONDS
    while (code := answer(seen["socket"], token)) != 200:
        if state(owner) not in RUNS or time.monotonic() > deadline:
            raise NoNotebookError(f"the notebook of {owner.pw_name} does not answer ({code or 'nobody listens'})")
        time.sleep(0.2)
    if answer(seen["socket"], "") != 403:
        raise NoNotebookError("it answers without its token, too")


def answer(path: str, token: str) -> int:
    """The code of a status from the server behind this socket; 0 where nobody answers."""
    head = f"Authorization: token {token}\r\n" if token else ""
    with suppress(OSError, ValueError, IndexError), socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(CALL_SECONDS)
        talk.connect(path)
        talk.sendall(f"GET /api/status HTTP/1.0\r\nHost: localhost\r\n{head}\r\n".encode())
        return int(talk.recv(MOST_HEAD).split()[1])
    return 0
