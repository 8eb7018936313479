"""Reports what pip and apt do on this node, while a task waits for them. Prints one JSON object.

look  root  reports files that pip and apt are downloading, packages that pip has installed, and the packages of the
            running installation with apt

A file in progress is read through the descriptor of the process that writes it, never by its name, because other users
can replace files in pip's temporary folders. Only processes of root, apt and temporary users of units are inspected.
"""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from ..drift.history import FIELD, NAMED, texts
from ..tools import files, process
from ..tools.program import answer

Json = dict[str, Any]

DYNAMIC = range(61184, 65520)  # users that systemd assigns to units with DynamicUser
LOADERS = ("python", "pip", "http")  # names of pip's process and of apt's downloading processes
PACKAGES = (".whl", ".deb")
PIP_LOG = "/pip.log"
TAIL = 65536
MOST_OPEN = 200  # open files of a process
MOST_FILES = 20
# pip's log shows the name or the URL of a wheel, and its size.
ANNOUNCED = re.compile(r"Downloading (?:\S*/)?([^/\s]+\.whl)\S* \(([\d.]{1,12}) (bytes|kB|MB)\)")
UNITS = {"bytes": 1, "kB": 1000, "MB": 1000**2}
HISTORY, DPKG = "/var/log/apt/history.log", "/var/log/dpkg.log"
INSTALLS = ("Install", "Reinstall", "Upgrade", "Downgrade")


def main() -> None:
    answer({"look": look})


def look(_request: Json) -> Json:
    trusted = {0}
    with suppress(KeyError):
        trusted.add(pwd.getpwnam("_apt").pw_uid)
    found: Json = {"downloads": [], "apt": None, "installed": None}
    for pid in process.ids():
        try:
            user = os.stat(f"/proc/{pid}").st_uid
            if user not in trusted and user not in DYNAMIC:
                continue
            name = process.read(pid, "comm").strip()
            if name.startswith(LOADERS):
                found["downloads"] += downloads(pid)
            if user == 0 and name.startswith("python") and process.words(pid)[1:4] == ["-m", "pip", "install"]:
                found["installed"] = installed(process.words(pid)[0])
            elif user == 0 and name == "dpkg" and found["apt"] is None:
                found["apt"] = apt("".join(texts((HISTORY,))), "".join(texts((DPKG,))))
        except OSError:
            continue  # the process has ended
    return {**found, "downloads": found["downloads"][:MOST_FILES]}


def downloads(pid: int) -> list[Json]:
    """Return {name, size, total} of each package file that the process is writing."""
    folder, sizes, log = f"/proc/{pid}/fd", {}, ""
    for number in os.listdir(folder)[:MOST_OPEN]:
        with suppress(OSError):  # the process has closed the file
            path = os.readlink(f"{folder}/{number}")
            if path.endswith(PACKAGES) and writes(pid, number):
                sizes[os.path.basename(path)] = os.stat(f"{folder}/{number}").st_size
            elif path.endswith(PIP_LOG):
                log = files.part(f"{folder}/{number}", -TAIL, TAIL, links=True).decode("utf-8", "replace")
    totals = announced(log)
    return [{"name": name, "size": size, "total": totals.get(name, 0)} for name, size in sizes.items()]


def writes(pid: int, number: str) -> bool:
    """Return whether the process opened this file for writing."""
    flags = re.search(r"^flags:\s*([0-7]+)$", process.read(pid, f"fdinfo/{number}"), re.MULTILINE)
    return flags is not None and bool(int(flags[1], 8) & (os.O_WRONLY | os.O_RDWR))


def announced(log: str) -> dict[str, int]:
    """Return the sizes of the files in pip's log."""
    found = {}
    for name, number, unit in ANNOUNCED.findall(log):
        with suppress(ValueError):
            found[unquote(name)] = int(float(number) * UNITS[unit])
    return found


def installed(python: str) -> int:
    """Return the number of packages in this Python's environment, without pip itself."""
    library = os.path.join(os.path.dirname(os.path.dirname(python)), "lib")
    found = 0
    for name in files.names(library):
        with suppress(OSError):
            packages = files.names(f"{library}/{name}/site-packages")
            found += sum(each.endswith(".dist-info") and not each.startswith("pip-") for each in packages)
    return found


def apt(history: str, dpkg: str) -> Json | None:
    """Return the progress of the last installation in apt's history; None if the installation has ended."""
    fields = dict(FIELD.findall(history[max(0, history.rfind("Start-Date: ")) :]))
    if "Start-Date" not in fields or "End-Date" in fields:
        return None
    begin = " ".join(fields["Start-Date"].split())
    names = {name for field in INSTALLS for name in NAMED.findall(fields.get(field, ""))}
    states: dict[str, set[str]] = {"unpacked": set(), "installed": set(), "half-configured": set()}
    now = ""
    for line in dpkg.splitlines():
        words = line.split()
        if line >= begin and words[2:3] == ["status"] and len(words) == 6 and words[3] in states:
            name = words[4].partition(":")[0]
            states[words[3]].add(name)
            now = name if words[3] == "half-configured" else now
    done = {state: len(names & found) for state, found in states.items()}
    return {"packages": len(names), "unpacked": done["unpacked"], "configured": done["installed"], "now": now}


if __name__ == "__main__":
    main()
