"""Collect evidence of changes (times and users) from a node's logs and files. Texts are only truncated, not changed.

dpkg and apt log local times. They are converted to seconds here, because only the node knows its time zone.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.run import run
from .environment import UnreadableEnvironmentError, by_environment, changed_last

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

DPKG = ("/var/log/dpkg.log.1", "/var/log/dpkg.log")
APT = ("/var/log/apt/history.log.1.gz", "/var/log/apt/history.log")
TAIL = 1_000_000  # bytes of each log
MOST_LINES = 400  # of each log, the newest
MOST_TEXT = 600  # characters of a line
MOST_ASKED = 200  # paths, units
SECONDS = 10.0  # for the journal
ACTIONS = ("install", "upgrade", "remove", "purge")
APT_ACTIONS = ("Install", "Reinstall", "Upgrade", "Downgrade", "Remove", "Purge")
# The package name in "chrony:amd64 (4.3-2, 4.3-3), …".
NAMED = re.compile(r"(?:^|, )([a-z0-9][a-z0-9+.-]*)(?::\w+)? \(")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d:\d\d)")
FIELD = re.compile(r"^([A-Z][A-Za-z-]+): (.*)$", re.MULTILINE)
# Paths of sudo and sudo-rs on Debian and Ubuntu, without links.
SUDO = ("/usr/bin/sudo", "/usr/bin/sudo.ws", "/usr/bin/sudo-rs", "/usr/lib/cargo/bin/sudo")
# Fields that an account cannot set, and the pattern of the message. sudo commands of Ansible are numerous and do not
# show what the modules did.
JOURNALS = {
    "sudo": ([f"_EXE={path}" for path in SUDO], r"COMMAND=(?!.*BECOME-SUCCESS-)"),
    "muster": (["SYSLOG_IDENTIFIER=muster", "_UID=0"], r"\S+ (?:takes|frees) the claim"),
}
UNIT_TIMES = ("InactiveEnterTimestampMonotonic", "ActiveEnterTimestampMonotonic")


def history(request: Json) -> Json:
    """Return the evidence since a time. request: {since (wall-clock seconds), packages, paths, units, parts,
    environment, named}."""
    since = float(request["since"])
    unseen: dict[str, str] = {}
    found: Json = {"clock": time.time(), "unseen": unseen, "parts": {}}
    found["dpkg"] = list(dpkg(texts(DPKG), since, set(request["packages"])))[-MOST_LINES:]
    found["apt"] = list(apt("\n\n".join(texts(APT)), since, set(request["packages"])))[-MOST_LINES:]
    found["files"] = {path: file_facts(path) for path in request["paths"][:MOST_ASKED]}
    found["units"] = unit_times(request["units"][:MOST_ASKED])
    for name, (fields, pattern) in JOURNALS.items():
        found[name], why = journal(fields, pattern, since)
        if why:
            unseen[name] = why
    for begin, link, wanted in by_environment(request, request["parts"]):
        try:
            changed = changed_last(link, wanted)
        except UnreadableEnvironmentError as why_not:
            unseen["parts"] = str(why_not)
        else:
            found["parts"].update({f"{begin}{name}": one for name, one in changed.items()})
    return found


def texts(paths: tuple[str, ...]) -> list[str]:
    """Return the last part of each log, oldest log first."""
    found = []
    for path in paths:
        with suppress(OSError, EOFError, zlib.error):
            if path.endswith(".gz"):
                packed = files.read(path, most=TAIL)
                with gzip.open(io.BytesIO(packed)) as stream:
                    content = stream.read(8 * TAIL)[-TAIL:]
            else:
                content = files.part(path, -TAIL, TAIL)
            found.append(content.decode("utf-8", "replace"))
    return found


def seconds(stamp: re.Match[str] | None) -> float:
    """Convert a local time to seconds since the epoch; 0 if the time is invalid."""
    if stamp is None:
        return 0.0
    try:
        return time.mktime(time.strptime(f"{stamp[1]} {stamp[2]}", "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return 0.0


def dpkg(logs: list[str], since: float, packages: set[str]) -> Iterator[Json]:
    """Yield {at, action, package, before, after} for each action of dpkg on these packages or on kernels."""
    for line in "\n".join(logs).splitlines():
        words = line.split()
        if len(words) != 6 or words[2] not in ACTIONS:
            continue
        name = words[3].partition(":")[0]
        at = seconds(STAMP.match(line))
        if at >= since and asked_for(name, packages):
            yield {"at": at, "action": words[2], "package": name, "before": words[4][:100], "after": words[5][:100]}


def asked_for(name: str, packages: set[str]) -> bool:
    return name in packages or name.startswith("linux-image-")


def apt(log: str, since: float, packages: set[str]) -> Iterator[Json]:
    """Yield {begin, end, command, by, packages} for each run of apt. by: the user. packages: the changed packages,
    limited to requested packages and kernels."""
    for stanza in re.split(r"\n\s*\n", log):
        fields = dict(FIELD.findall(stanza))
        begin = seconds(STAMP.match(fields.get("Start-Date", "")))
        end = seconds(STAMP.match(fields.get("End-Date", ""))) or begin
        if begin and end >= since:
            done = {name for field in APT_ACTIONS for name in NAMED.findall(fields.get(field, ""))}
            yield {
                "begin": begin,
                "end": end,
                "command": fields.get("Commandline", "")[:MOST_TEXT],
                "by": fields.get("Requested-By", "")[:100],
                "packages": sorted(name for name in done if asked_for(name, packages)),
            }


def journal(fields: list[str], pattern: str, since: float) -> tuple[list[Json], str]:
    """Return the journal entries of one source as [{at, text}], oldest first, and the error if there are none.

    sudo sends its messages with the uid of its caller, and they begin with that account. The kernel adds the uid to a
    message, journald adds _EXE later: a program can send a message and then start sudo. So an account counts only for
    messages about itself.
    """
    asked = run(
        "journalctl",
        *fields,
        f"--since=@{int(since)}",
        "--output=json",
        "--output-fields=MESSAGE,_UID,_SOURCE_REALTIME_TIMESTAMP",
        f"--grep={pattern}",
        f"--lines={MOST_LINES}",
        "--no-pager",
        seconds=SECONDS,
    )
    if asked.code is None or (asked.code and asked.aside.strip()):
        return [], asked.why
    found = []
    for line in asked.text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            said = str(entry["MESSAGE"])
            sender = int(entry["_UID"])
            if re.search(pattern, said) and (sender == 0 or said.split(maxsplit=1)[0] == files.user_name(sender)):
                # The time of the message if recorded: a busy machine's journal stores it seconds later.
                at = int(entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry["__REALTIME_TIMESTAMP"]) / 1e6
                found.append({"at": at, "text": " ".join(said.split())[:MOST_TEXT]})
    # With a pattern, journalctl prints the newest first.
    return sorted(found, key=lambda line: float(line["at"])), ""


def file_facts(path: str) -> Json:
    """Return {path, at, owner, mode} of a file. For a missing file, return {path, gone: true, at: last change of its
    folder}."""
    real = os.path.expanduser(path)
    try:
        seen = os.lstat(real)
    except OSError:
        folder = os.path.dirname(real)
        while folder not in ("", "/") and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        with suppress(OSError):
            return {"gone": True, "at": os.lstat(folder).st_ctime, "path": real}
        return {}
    return {
        "path": real,
        "at": seen.st_ctime,
        "owner": files.user_name(seen.st_uid),
        "mode": f"{seen.st_mode & 0o7777:04o}",
    }


def unit_times(units: list[str]) -> dict[str, float]:
    """Return the time at which each unit was last started or stopped."""
    names = [name for name in units if re.fullmatch(r"[\w@.:-]+", name) and not name.startswith("-")]
    if not names:
        return {}
    shown = run("systemctl", "show", "--property=Id", *(f"--property={one}" for one in UNIT_TIMES), "--", *names)
    gap = time.time() - time.monotonic()
    found: dict[str, float] = {}
    for name, block in zip(names, shown.text.split("\n\n"), strict=False):
        times = [int(word) for word in re.findall(r"Monotonic=(\d+)", block)]
        if any(times):
            found[name] = gap + max(times) / 1e6
    return found
