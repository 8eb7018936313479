"""The node's half of a guarded change: a timer that undoes it, unless a fresh connection confirms it first.

The controller (plugin_utils/muster_guard.py) pipes this file into the node's own Python (3.10+, standard library
only), with a verb as argument and a JSON payload behind it on standard input. `arm` leaves a copy of it on the node,
which the timer and the boot unit run with the verb `undo` and the folder as arguments.

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
import subprocess
import sys
from typing import Any

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


def main(verb: str, payload: Json) -> Json:
    verbs = {"arm": arm, "confirm": confirm, "undo": undo, "state": state}
    os.makedirs(LOCKS, mode=0o700, exist_ok=True)
    with open(lock_of(payload["what"]), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return verbs[verb](payload)


def arm(request: Json) -> Json:
    """request: {what, id, seconds, program, files, texts, commands}; see Guard.change on the controller."""
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
    write(os.path.join(folder, "guard.py"), request["program"].encode())
    install_boot_unit(what, folder)
    content = {"id": request["id"], "files": kept, "commands": request["commands"], "failed": []}
    save_state(folder, content)
    timer = ["systemd-run", "--quiet", "--collect", f"--unit={unit_of(what)}", f"--on-active={request['seconds']}"]
    # systemd may otherwise let a timer wait a minute for company.
    timer += ["--timer-property=AccuracySec=100ms", "-p", "Type=oneshot"]
    timer += ["/usr/bin/python3", "-I", "-S", f"{folder}/guard.py", "undo", folder]
    started = subprocess.run(timer, check=False, capture_output=True, text=True)
    if started.returncode:
        forget(what, folder)
        return {"armed": False, "error": started.stderr.strip()}
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
        failed += [said for said in (run(folder, command) for command in content["commands"]) if said]
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
        with open(real, "rb") as file:
            body, about = file.read(), os.fstat(file.fileno())
    except FileNotFoundError:
        return {"path": real, "copy": None}
    copy = f"file-{number}"
    write(os.path.join(folder, copy), body)
    return {"path": real, "copy": copy, "mode": about.st_mode & 0o7777, "uid": about.st_uid, "gid": about.st_gid}


def put_back(folder: str, kept: Json) -> None:
    if kept["copy"] is None:
        if os.path.exists(kept["path"]):
            os.unlink(kept["path"])
        return
    with open(os.path.join(folder, kept["copy"]), "rb") as file:
        body = file.read()
    write(kept["path"], body, kept["mode"], (kept["uid"], kept["gid"]))


def run(folder: str, command: Json) -> str:
    """Run one command of the undo; return what went wrong. Its standard input may be one of the kept texts."""
    body = b""
    if command.get("text"):
        with open(os.path.join(folder, "text-" + command["text"]), "rb") as file:
            body = file.read()
    try:
        ended = subprocess.run(command["argv"], check=False, input=body, capture_output=True, timeout=COMMAND_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip() or "nothing"
        return f"{' '.join(command['argv'])} ended with code {ended.returncode} and said: {said}"
    return ""


def forget(what: str, folder: str) -> None:
    os.unlink(os.path.join(folder, "state.json"))
    sync(folder)
    for path in boot_unit_paths(what):
        if os.path.lexists(path):
            os.unlink(path)
    shutil.rmtree(folder)
    # The timer only: its service may be the very process that runs this. One that has elapsed is no error.
    subprocess.run(["systemctl", "--quiet", "stop", unit_of(what) + ".timer"], check=False, stderr=subprocess.DEVNULL)


def install_boot_unit(what: str, folder: str) -> None:
    """Files are enough: the units of the next boot are read at the next boot."""
    unit, wanted = boot_unit_paths(what)
    write(unit, BOOT_UNIT.format(what=what, folder=folder).encode(), 0o644)
    os.makedirs(os.path.dirname(wanted), exist_ok=True)
    if not os.path.lexists(wanted):
        os.symlink(unit, wanted)
    sync(os.path.dirname(wanted))


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
        with open(os.path.join(folder, "state.json"), "rb") as file:
            content: Json = json.load(file)
    except FileNotFoundError:
        return None
    return content


def save_state(folder: str, content: Json) -> None:
    write(os.path.join(folder, "state.json"), json.dumps(content).encode())


def write(path: str, body: bytes, mode: int = 0o600, owner: tuple[int, int] = (0, 0)) -> None:
    """Replace a file in one step, so that it holds the old or the new whatever happens, a power cut included."""
    new = f"{path}.muster-new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(body)
        os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(os.path.dirname(path))


def sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


if __name__ == "__main__":
    if sys.argv[1] == "undo-at-boot":
        main("undo", {"what": os.path.basename(sys.argv[2]), "boot": True})
    elif len(sys.argv) == 3:
        sys.exit(1 if main("undo", {"what": os.path.basename(sys.argv[2])})["failed"] else 0)
    else:
        json.dump(main(sys.argv[1], json.loads(sys.stdin.buffer.read())), sys.stdout)
        sys.stdout.write("\n")
