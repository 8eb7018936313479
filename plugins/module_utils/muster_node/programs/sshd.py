"""Changes sshd's settings: the part on one node (plugins/action/ssh_mesh_sshd.py).

Run by NodeProgram (plugin_utils), with a verb as argument and a JSON payload on standard input.
    look   return the current settings file
    apply  write the file, validate all settings with sshd, and reload sshd; restore the previous file if the
           settings are invalid
"""

from __future__ import annotations

from typing import Any

from ..tools import files
from ..tools.program import answer
from ..tools.run import run

Json = dict[str, Any]

SSHD = "/usr/sbin/sshd"
UNIT = "ssh.service"
TIMEOUT = 30


def main() -> None:
    answer({"look": look, "apply": apply})


def look(request: Json) -> Json:
    return {"before": read(request["path"])}


def apply(request: Json) -> Json:
    path = request["path"]
    before = read(path)
    write(path, request["settings"]) if request["settings"] else files.remove(path)
    judged = run(SSHD, "-t", seconds=TIMEOUT)
    if judged.why:
        if before is None:
            files.remove(path)
        else:
            write(path, before)
        return {"failed": f"sshd rejects the settings: {judged.said or judged.why}"}
    # With socket activation sshd may not be running; it reads the file at its next start.
    if not run("systemctl", "--quiet", "is-active", UNIT, seconds=TIMEOUT).why:
        reloaded = run("systemctl", "reload", UNIT, seconds=TIMEOUT)
        if reloaded.why:
            return {"failed": f"sshd could not be reloaded: {reloaded.said or reloaded.why}"}
    return {"failed": ""}


def read(path: str) -> str | None:
    try:
        return files.read(path, links=True).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    files.replace(path, text.encode("utf-8", "surrogateescape"), mode=0o644)


if __name__ == "__main__":
    main()
