"""Validate the requested shared folders, first on the controller and then again on each node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KEYS = ("source", "path", "type", "options")
# hard: a program waits for an unavailable server instead of reading or writing partial files. A probe can tell a slow
# server from a fast one by the kernel's message after timeo (tenths of a second) times retrans, see nfs(5).
NFS = "hard,timeo=150,retrans=2"
DEFAULT_OPTIONS = {"nfs": NFS, "nfs4": NFS}
# Valid in fstab only: systemd units express these in other directives.
FSTAB = ("auto", "noauto", "nofail", "_netdev", "user", "users", "nouser", "owner", "defaults")
SYSTEM = (
    *(f"/{name}" for name in ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run")),
    *(f"/{name}" for name in ("sbin", "sys", "tmp", "usr", "var")),
)
WORD = re.compile(r"[^\s\x00-\x1f\x7f]+\Z")
TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,30}\Z")
MOST_PATH = 200


@dataclass(frozen=True)
class Mount:
    """source: the first field of an fstab line, such as files:/export/data. type: file system type."""

    source: str
    path: str
    type: str
    options: str


def mounts_of(entries: Iterable[Mapping[str, Any]]) -> list[Mount]:
    """Return the mounts of validated entries. Defaults are filled in for options and type."""
    found = []
    for entry in entries:
        kind = str(entry.get("type") or "nfs")
        options = str(entry.get("options") or DEFAULT_OPTIONS.get(kind, ""))
        found.append(Mount(str(entry["source"]), str(entry["path"]), kind, options))
    return found


def faults(entries: Any, scratch: str = "") -> list[tuple[str, str]]:
    """Return the errors, each with its fix."""
    if not isinstance(entries, (list, tuple)):
        return [("the value is not a list", "Write each folder as a mapping with source and path")]
    found: list[tuple[str, str]] = []
    paths: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict) or not {"source", "path"} <= entry.keys() <= {*KEYS}:
            keys = ", ".join(KEYS)
            found.append(
                (f"{entry!r:.80} is not a mapping of {keys}", "Set source and path, optionally type and options")
            )
            continue
        found += _of_entry({name: str(value) for name, value in entry.items()})
        paths.append(str(entry["path"]))
    if scratch:
        found += path_faults(scratch)
        paths.append(scratch)
    return [*found, *_together(paths)]


def _of_entry(entry: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    path = entry["path"]
    if not WORD.match(entry["source"]):
        yield f"the source {entry['source']!r:.80} is empty or has spaces", "Write \\040 for a space, as in fstab"
    yield from path_faults(path)
    if entry.get("type") and not TYPE.match(entry["type"]):
        yield f"{path} has the invalid type {entry['type']!r:.40}", "Write it as in fstab, such as nfs, nfs4 or cifs"
    options = entry.get("options", "")
    if options and not WORD.match(options):
        yield f"the mount options of {path} contain spaces", "Write them as in fstab, with commas and without spaces"
    given = options.split(",")
    if "soft" in given:
        what = f"{path} has the option soft, with which writes can fail unnoticed (nfs(5))"
        yield what, "Remove soft"
    fstab = [one for one in given if one in FSTAB or one.startswith("x-systemd.")]
    if fstab:
        what = f"the options of {path} contain {', '.join(fstab)}, which only fstab supports"
        yield what, "Remove these options; folders are mounted on first use and never delay booting"


def path_faults(path: str) -> Iterator[tuple[str, str]]:
    parts = path.split("/")[1:]
    whole = path == "/" or not {"", ".", ".."} & {*parts}
    if not WORD.match(path) or not path.startswith("/") or not whole or len(path) > MOST_PATH:
        yield (
            f"the path {path!r:.80} is not a normalized absolute path",
            "Write the absolute path without spaces, . or .., and without a trailing /",
        )
    elif path == "/" or any(path == one or path.startswith(f"{one}/") for one in SYSTEM):
        yield f"{path} is a system folder", "Choose another folder, such as /data or /srv/data"


def _together(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in dict.fromkeys(paths):
        if paths.count(path) > 1:
            yield f"{path} is listed twice", "Remove one of the two entries"
        for other in dict.fromkeys(paths):
            if other.startswith(f"{path}/"):
                yield f"{other} is inside {path}", "Choose separate paths: the order of nested mounts is not guaranteed"
