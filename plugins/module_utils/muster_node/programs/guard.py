"""The node's part of a guarded change: a timer reverts the change, unless a new connection confirms the change first.

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input. `arm` leaves a copy of
the program on the node, which the timer and the boot unit run with the verb `undo` and the folder as arguments.
    arm      save the files, and start the timer
    confirm  keep the change: stop the timer and delete the saved files
    undo     restore the previous state
    state    return whether a change is unconfirmed, and the errors from reverting it

Saved files are in /var/lib/muster/guard/WHAT, accessible only to root. A change is armed while state.json exists:
confirm and undo both remove this file under one lock, so that exactly one of the two takes effect. A timer does not
survive a reboot, so a boot unit restores the files before the network is up.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.program import answer, own_text
from ..tools.run import failure, run

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

ROOT = "/var/lib/muster/guard"
LOCKS = "/run/muster-guard"
UNITS = "/etc/systemd/system"
COMMAND_TIMEOUT = 30
BOOT_UNIT = """\
# Reverts a change that was unconfirmed when the machine went down. Written and removed by Muster.
[Unit]
Description=Undo an unconfirmed change (muster, {what})
DefaultDependencies=no
RequiresMountsFor={folder}
After=local-fs.target
Before=network-pre.target ufw.service nftables.service ssh.service ssh.socket sysinit.target
ConditionPathExists={folder}/state.json

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I -S {folder}/guard.py undo-at-boot {folder}
"""


def main() -> None:
    if len(sys.argv) == 3:
        # Arguments of the timer and the boot unit: undo or undo-at-boot, and the folder.
        done = locked(undo, {"what": os.path.basename(sys.argv[2]), "boot": sys.argv[1] == "undo-at-boot"})
        sys.exit(1 if done["failed"] and sys.argv[1] == "undo" else 0)
    verbs = {"arm": arm, "confirm": confirm, "undo": undo, "state": state}
    answer({name: partial(locked, verb) for name, verb in verbs.items()})


def locked(verb: Callable[[Json], Json], payload: Json) -> Json:
    os.makedirs(LOCKS, mode=0o700, exist_ok=True)
    with open(lock_of(payload["what"]), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return verb(payload)


def arm(request: Json) -> Json:
    """Save the files and start the timer. request: {what, id, seconds, files, texts, commands}; see Guard.change on the
    controller."""
    what, folder = request["what"], folder_of(request["what"])
    if read_state(folder) is not None:
        return {"armed": False}
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(ROOT, exist_ok=True)
    os.chmod(ROOT, 0o700)
    os.mkdir(folder, 0o700)
    kept = [keep(folder, number, path) for number, path in enumerate(request["files"])]
    for name, text in request["texts"].items():
        write(os.path.join(folder, "text-" + name), text.encode())
    write(os.path.join(folder, "guard.py"), own_text().encode())
    install_boot_unit(what, folder)
    content = {"id": request["id"], "files": kept, "commands": request["commands"], "failed": []}
    save_state(folder, content)
    timer = ["systemd-run", "--quiet", "--collect", f"--unit={unit_of(what)}", f"--on-active={request['seconds']}"]
    # Otherwise systemd may delay a timer by up to a minute.
    timer += ["--timer-property=AccuracySec=100ms", "-p", "Type=oneshot"]
    timer += ["/usr/bin/python3", "-I", "-S", f"{folder}/guard.py", "undo", folder]
    started = run(*timer, seconds=COMMAND_TIMEOUT)
    if started.why:
        forget(what, folder)
        return {"armed": False, "error": started.said or started.why}
    return {"armed": True}


def confirm(request: Json) -> Json:
    """Confirm the change and return whether the change is kept. A repeated request gives the same result. request:
    {what, id}."""
    what, folder = request["what"], folder_of(request["what"])
    content = read_state(folder)
    if content is not None and content["id"] == request["id"]:
        with open(lock_of(what), "w") as last:
            last.write(request["id"])
        forget(what, folder)
    with open(lock_of(what)) as last:
        return {"confirmed": last.read() == request["id"]}


def undo(request: Json) -> Json:
    """Revert the change. request: {what, boot}. At boot, only the changed files need to be reverted."""
    what, folder = request["what"], folder_of(request["what"])
    content = read_state(folder)
    if content is None:
        return {"undone": False, "failed": []}
    failed = []
    for kept in content["files"]:
        try:
            put_back(folder, kept)
        except OSError as exc:
            failed.append(str(exc))
    if not request.get("boot"):
        failed += [said for said in (carry_out(folder, command) for command in content["commands"]) if said]
    if failed:
        # The change stays armed for the next boot or run, with the errors.
        save_state(folder, {**content, "failed": failed})
    else:
        forget(what, folder)
    return {"undone": True, "failed": failed}


def state(request: Json) -> Json:
    content = read_state(folder_of(request["what"]))
    return {
        "armed": content is not None,
        "id": content and content["id"],
        "failed": content["failed"] if content else [],
    }


def keep(folder: str, number: int, path: str) -> Json:
    """Save a copy of one file in the folder. If the file is missing, record that it is absent."""
    real = os.path.realpath(path)
    try:
        about, body = os.stat(real), files.read(real)
    except FileNotFoundError:
        return {"path": real, "copy": None}
    copy = f"file-{number}"
    write(os.path.join(folder, copy), body)
    return {"path": real, "copy": copy, "mode": about.st_mode & 0o7777, "uid": about.st_uid, "gid": about.st_gid}


def put_back(folder: str, kept: Json) -> None:
    if kept["copy"] is None:
        files.remove(kept["path"])
        return
    body = files.read(os.path.join(folder, kept["copy"]))
    files.replace(kept["path"], body, mode=kept["mode"], owner=(kept["uid"], kept["gid"]))


def carry_out(folder: str, command: Json) -> str:
    """Run one undo command, optionally with a saved text as standard input. Return the error."""
    body = files.read(os.path.join(folder, "text-" + command["text"])) if command.get("text") else b""
    return failure(command["argv"], run(*command["argv"], stdin=body, seconds=COMMAND_TIMEOUT))


def forget(what: str, folder: str) -> None:
    files.remove(os.path.join(folder, "state.json"))
    for path in boot_unit_paths(what):
        files.remove(path)
    shutil.rmtree(folder)
    # Stop only the timer, because its service may be this process. An elapsed timer is no error.
    run("systemctl", "--quiet", "stop", unit_of(what) + ".timer", seconds=COMMAND_TIMEOUT)


def install_boot_unit(what: str, folder: str) -> None:
    """Write the files of the boot unit. systemd needs no reload, because it reads the unit at the next boot."""
    unit, wanted = boot_unit_paths(what)
    write(unit, BOOT_UNIT.format(what=what, folder=folder).encode(), 0o644)
    os.makedirs(os.path.dirname(wanted), exist_ok=True)
    files.link(wanted, unit)


def boot_unit_paths(what: str) -> tuple[str, str]:
    name = unit_of(what) + "-at-boot.service"
    return os.path.join(UNITS, name), os.path.join(UNITS, "sysinit.target.wants", name)


def unit_of(what: str) -> str:
    return f"muster-{what}-undo"


def folder_of(what: str) -> str:
    return os.path.join(ROOT, what)


def lock_of(what: str) -> str:
    """Return the path of the lock file, which contains the id of the last confirmed change."""
    return os.path.join(LOCKS, what + ".lock")


def read_state(folder: str) -> Json | None:
    try:
        content: Json = json.loads(files.read(os.path.join(folder, "state.json")))
    except FileNotFoundError:
        return None
    return content


def save_state(folder: str, content: Json) -> None:
    write(os.path.join(folder, "state.json"), json.dumps(content).encode())


def write(path: str, body: bytes, mode: int = 0o600) -> None:
    files.replace(path, body, mode=mode, owner=(0, 0))


if __name__ == "__main__":
    main()
