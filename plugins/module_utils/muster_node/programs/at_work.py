"""Reports running work on this node, so that a change does not interrupt the work. Every verb prints one JSON object.

look  root  reports launches, processes on GPUs, processes of the PyTorch environment and, before a reboot, all
            processes of users
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..tools import files, process
from ..tools.as_user import SilentError, as_user
from ..tools.program import answer

SECONDS = 20.0  # a process can make readers of its command line block forever
OF_US = ("envs", "named")  # the default environments, and named environments
MOST = 100  # listed processes
FIRST, NOBODY = 1000, 65534  # range of user ids that adduser and useradd assign
# Processes of a login, and shells that wait for input.
OF_A_LOGIN = (
    *("sshd", "sshd-session", "sftp-server", "systemd", "(sd-pam)", "dbus-daemon", "dbus-broker", "dbus-broker-lau"),
    *("ssh-agent", "gpg-agent", "sh", "bash", "dash", "zsh", "fish", "tmux: server", "tmux: client", "screen", "sudo"),
)


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Report running work. request: {root: folder of the environments, restart: whether the node will be rebooted}. The
    result's `why` is the error if processes could not be listed."""
    root, restart = str(request["root"]), bool(request.get("restart"))
    seen: dict[str, Any] = {"processes": [], "why": "", "uptime": files.text("/proc/uptime") or ""}
    try:
        seen["processes"] = as_user(None, lambda: processes(root, restart=restart), seconds=SECONDS)
    except SilentError as silent:
        seen["why"] = f"the processes could not be listed: {silent.strerror}"
    return {**seen, "link": link(root), "environments": environments(root)}


def link(root: str) -> str:
    try:
        return str(Path(root, "current").readlink())
    except OSError:
        return ""


def environments(root: str) -> list[str]:
    try:
        with os.scandir(f"{root}/envs") as entries:
            found = [(-entry.stat().st_mtime, entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [name for _, name in sorted(found)][:MOST]


def processes(root: str, *, restart: bool) -> list[dict[str, Any]]:
    """Return the processes, sorted so that a truncated list still contains all launches."""
    places = {f"{root}/current/", *(f"{place}/{of}/" for place in (root, os.path.realpath(root)) for of in OF_US)}
    found = []
    for pid in process.ids():
        launch = process.launch_at(pid)
        devices = sorted(path for path in process.opened(pid) if path.startswith("/dev/nvidia"))
        runs_from = any(place in text for text in said(pid) for place in places)
        people = restart and is_at_work(pid)
        if launch or devices or runs_from or people:
            of = {"launch": launch.id if launch else "", "own": bool(launch and launch.uid is not None)}
            command = " ".join(process.words(pid))[: process.MOST_COMMAND]
            found.append(
                {
                    **process.known(pid),
                    **of,
                    "devices": devices,
                    "runs_from": runs_from,
                    "people": people,
                    "command": command,
                }
            )
    return sorted(found, key=lambda one: not one["launch"])[:MOST]


def said(pid: int) -> tuple[str, str]:
    return process.read(pid, "cmdline"), process.read(pid, "maps")


def is_at_work(pid: int) -> bool:
    """Return whether the process belongs to a user and is not only part of a login session."""
    uid = process.user_id(pid)
    if uid is None or not FIRST <= uid < NOBODY:
        return False
    return process.known(pid)["name"].lower() not in OF_A_LOGIN


def main() -> None:
    answer({"look": look})


if __name__ == "__main__":
    main()
