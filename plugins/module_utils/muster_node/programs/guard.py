"""The node's half of a guarded change: a timer that undoes it, unless a fresh connection confirms it first.

Run by Program (plugin_utils), with a verb as argument and a JSON payload on standard input. `arm` leaves a copy of it
on the node, which the timer and the boot unit run with the verb `undo` and the folder as arguments.

    arm      keep the files as they are, and start the timer
    confirm  the change stays: stop the timer and forget the kept files
    undo     put back what was before
    state    whether a change waits for its confirmation, and what an undo could not do

What is kept lies in /var/lib/muster/guard/WHAT, for root alone. It holds a change as armed for as long as state.json
is in it: confirm and undo both end with that file's removal, under one lock, so that exactly one of them wins.
A timer does not outlive a reboot, so a boot unit puts the files back before the network is up.
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
# Puts back what a change left unconfirmed when the machine went down. Written and removed by Muster.
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
        # From the timer or the boot unit: undo or undo-at-boot, and the folder.
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
    """request: {what, id, seconds, files, texts, commands}; see Guard.change on the controller."""
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
    # systemd may otherwise let a timer wait a minute for company.
    timer += ["--timer-property=AccuracySec=100ms", "-p", "Type=oneshot"]
    timer += ["/usr/bin/python3", "-I", "-S", f"{folder}/guard.py", "undo", folder]
    started = run(*timer, seconds=COMMAND_TIMEOUT)
    if started.why:
        forget(what, folder)
        return {"armed": False, "error": started.said or started.why}
    return {"armed": True}


def confirm(request: Json) -> Json:
    """request: {what, id}. Says whether the change of that id stays. It says the same when asked again."""
    what, folder = request["what"], folder_of(request["what"])
    content = read_state(folder)
    if content is not None and content["id"] == request["id"]:
        with open(lock_of(what), "w") as last:
            last.write(request["id"])
        forget(what, folder)
    with open(lock_of(what)) as last:
        return {"confirmed": last.read() == request["id"]}


def undo(request: Json) -> Json:
    """request: {what, boot}. At boot the files are all that is left of the change."""
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
        # It stays armed for the next boot or the next run, and says why.
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
    """Copy one file into the folder; what was not there is remembered as absent."""
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
    """Run one command of the undo; return what went wrong. Its standard input may be one of the kept texts."""
    body = files.read(os.path.join(folder, "text-" + command["text"])) if command.get("text") else b""
    return failure(command["argv"], run(*command["argv"], stdin=body, seconds=COMMAND_TIMEOUT))


def forget(what: str, folder: str) -> None:
    files.remove(os.path.join(folder, "state.json"))
    for path in boot_unit_paths(what):
        files.remove(path)
    shutil.rmtree(folder)
    # The timer only: its service may be the very process that runs this. One that has elapsed is no error.
    run("systemctl", "--quiet", "stop", unit_of(what) + ".timer", seconds=COMMAND_TIMEOUT)


def install_boot_unit(what: str, folder: str) -> None:
    """Files are enough: the units of the next boot are read at the next boot."""
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
    """The lock; what it holds is the id of the change that was confirmed last."""
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
