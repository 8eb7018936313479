"""Reports what pip and apt do on this node, while a task waits for them. Prints one JSON object.

look  root  reports files that pip and apt are downloading, packages that pip has installed, and the packages of the
            running installation with apt

A file in progress is read through the descriptor of the process that writes it, never by its name, because other users
can replace files in temporary folders. Only processes of system users and of temporary users of units are inspected.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from ..drift.history import FIELD, NAMED, texts
from ..tools import files, process
from ..tools.program import answer

Json = dict[str, Any]

SYSTEM = {*range(1000), *range(61184, 65520)}  # root, _apt and others, and users of units with DynamicUser
LOADERS = ("python", "pip", "http")  # names of pip's process and of apt's downloading processes
PACKAGES = (".whl", ".deb")
PIP_LOG = "/pip.log"
TAIL = 65536
MOST_OPEN = 200  # open files of a process
MOST_WORK = 20
# pip's log shows the name or the URL of a wheel, and its size.
ANNOUNCED = re.compile(r"Downloading (?:\S*/)?([^/\s]+\.whl)\S* \((\d{1,9}(?:\.\d)?) (bytes|kB|MB)\)")
UNITS = {"bytes": 1, "kB": 1000, "MB": 1000**2}
WRITES = re.compile(r"^flags:\s*[0-7]*[12]$", re.MULTILINE)  # O_WRONLY or O_RDWR
HISTORY, DPKG = "/var/log/apt/history.log", "/var/log/dpkg.log"
INSTALLS = ("Install", "Reinstall", "Upgrade", "Downgrade")


def main() -> None:
    answer({"look": look})


def look(_request: Json) -> Json:
    """Return {work: entries as in muster.road.waiting.ObservedWork}."""
    found: list[Json] = []
    for pid in process.ids():
        with suppress(OSError):  # the process has ended
            user, name = os.stat(f"/proc/{pid}").st_uid, process.read(pid, "comm").strip()
            if user in SYSTEM and name.startswith(LOADERS):
                found += downloads(pid)
            if user == 0 and name == "dpkg":
                found += apt(*("".join(texts((path,))) for path in (HISTORY, DPKG)))
            elif user == 0 and process.words(pid)[1:4] == ["-m", "pip", "install"]:
                found.append(installed(process.words(pid)[0]))
    return {"work": found[:MOST_WORK]}


def work(doing: str, name: str, done: int, whole: int) -> Json:
    return {"doing": doing, "name": name, "done": done, "whole": whole}


def downloads(pid: int) -> list[Json]:
    """Return the package files that the process is writing."""
    folder, sizes, log = f"/proc/{pid}/fd", {}, ""
    for number in os.listdir(folder)[:MOST_OPEN]:
        with suppress(OSError):  # the process has closed the file
            path = os.readlink(f"{folder}/{number}")
            if path.endswith(PACKAGES) and WRITES.search(process.read(pid, f"fdinfo/{number}")):
                sizes[os.path.basename(path)] = os.stat(f"{folder}/{number}").st_size
            elif path.endswith(PIP_LOG):
                log = files.part(f"{folder}/{number}", -TAIL, TAIL, links=True).decode("utf-8", "replace")
    totals = {unquote(name): int(float(number) * UNITS[unit]) for name, number, unit in ANNOUNCED.findall(log)}
    return [work("download", name, size, totals.get(name, 0)) for name, size in sizes.items()]


def installed(python: str) -> Json:
    """Return the number of packages in this Python's environment, without pip itself."""
    library = f"{python.removesuffix('/bin/python')}/lib"
    packages = [name for each in files.names(library) for name in files.names(f"{library}/{each}/site-packages")]
    done = sum(name.endswith(".dist-info") and not name.startswith("pip-") for name in packages)
    return work("install", "", done, 0)


def apt(history: str, dpkg: str) -> list[Json]:
    """Return the progress of the last installation in apt's history; [] if the installation has ended."""
    fields = dict(FIELD.findall(history[max(0, history.rfind("Start-Date: ")) :]))
    if "Start-Date" not in fields or "End-Date" in fields:
        return []
    begin = " ".join(fields["Start-Date"].split())
    names = {name for field in INSTALLS for name in NAMED.findall(fields.get(field, ""))}
    states: dict[str, dict[str, None]] = {"unpacked": {}, "installed": {}, "half-configured": {}}
    for line in dpkg.splitlines():
        words = line.split()
        if line >= begin and words[2:3] == ["status"] and len(words) == 6 and words[3] in states:
            states[words[3]][words[4].partition(":")[0]] = None
    unpacked, configured = (len(names & states[state].keys()) for state in ("unpacked", "installed"))
    now = next(reversed(states["half-configured"]), "")
    return [work("unpack", "", unpacked, len(names)), work("configure", now, configured, len(names))]


if __name__ == "__main__":
    main()
