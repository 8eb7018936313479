"""Find existing conda, mamba and pixi environments in their usual locations.

No program of an environment is run. Home directories are read as their owner, other folders as nobody.
"""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tools import files
from ..tools.as_user import SilentError, as_user
from ..tools.environment_marks import marks
from ..tools.torch_version import said_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Json = dict[str, Any]

INSTALLED = re.compile(r"(ana|mini)conda\d*|miniforge\d*|mambaforge\d*|micromamba|mamba|conda")
PLACES = ("/", "/opt", "/usr/local", "/srv")
IN_A_HOME = ("", "/opt", "/.local", "/.local/share", "/.conda", "/.pixi")
BELOW = ("envs", ".pixi/envs")  # environments of an installation, and of a pixi project
LISTED = ".conda/environments.txt"  # environments that conda and mamba have created anywhere
MOST = 60  # environments of one account
MOST_NAMES = 2000  # in a folder
MOST_LISTED = 20_000  # bytes
MOST_PATH = 300


def look(user: str, prefixes: list[str]) -> Json:
    """Return {found, why}. found: [{path, marks, python, torch, usable}]. prefixes: paths from the inventory. usable:
    whether the training user (or nobody, if the training user does not exist) can run the environment's Python."""
    found: dict[str, Json] = {}
    why = ""
    for entry, work in _whom(user, prefixes):
        try:
            found.update(as_user(entry, work))
        except SilentError as silent:
            why = f"environments could not be searched: {silent.strerror}"
    paths = sorted(found)
    try:
        usable = as_user(_account(user) or _account("nobody"), lambda: [*map(_starts, paths)])
    except SilentError:
        usable = [False for _ in paths]
    return {"found": [{**found[path], "usable": may} for path, may in zip(paths, usable, strict=True)], "why": why}


def _whom(user: str, prefixes: list[str]) -> Iterator[tuple[pwd.struct_passwd | None, Callable[[], dict[str, Json]]]]:
    """Yield (account, search) for nobody, the training user, the login user and root. Each search runs as its
    account."""
    yield _account("nobody"), lambda: _all(_in_places())
    # A path in the inventory may be readable for the training user only.
    yield _account(user) or _account("nobody"), lambda: _all(prefixes)
    entries = {entry.pw_uid: entry for name in (os.environ.get("SUDO_USER", ""), user) if (entry := _account(name))}
    with suppress(KeyError):
        entries.setdefault(os.geteuid(), pwd.getpwuid(os.geteuid()))
    # Without root, only the process's own home can be read.
    for uid, entry in entries.items():
        if os.geteuid() in (0, uid):
            yield entry, partial(_in_the_home_of, entry.pw_dir)


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _starts(path: str) -> bool:
    return os.access(f"{path}/bin/python", os.X_OK)


def _in_the_home_of(home: str) -> dict[str, Json]:
    return _all(_in_home(home))


def _all(paths: Iterable[str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for path in paths:
        if len(found) < MOST and path not in found and len(path) <= MOST_PATH and path.isprintable():
            there = marks(path)
            if there:
                found[path] = {"path": path, "marks": there, **_inside(path)}
    return found


def _inside(path: str) -> Json:
    names = [name for name in _names(f"{path}/lib") if re.fullmatch(r"python3\.\d+", name)]
    said = said_in(Path(path, "lib", names[0], "site-packages")) if names else None
    return {
        "python": names[0].removeprefix("python") if names else "",
        "torch": str((said or {}).get("__version__", ""))[:40],
    }


def _in_places() -> Iterator[str]:
    for place in PLACES:
        for name in _names(place):
            # The top folder contains the system's own folders.
            if place != "/" or INSTALLED.fullmatch(name):
                yield from _of(f"{place.rstrip('/')}/{name}")


def _in_home(home: str) -> Iterator[str]:
    for place in IN_A_HOME:
        folder = f"{home}{place}"
        yield from _below(folder)
        for name in _names(folder):
            if INSTALLED.fullmatch(name):
                yield from _of(f"{folder}/{name}")
            elif not place:
                yield from _below(f"{folder}/{name}")
    for line in (files.text(f"{home}/{LISTED}", most=MOST_LISTED) or "").splitlines():
        if line.startswith("/"):
            yield line.rstrip("/")


def _of(folder: str) -> Iterator[str]:
    yield folder
    yield from _below(folder)


def _below(folder: str) -> Iterator[str]:
    for below in BELOW:
        yield from (f"{folder}/{below}/{name}" for name in _names(f"{folder}/{below}"))


def _names(folder: str) -> list[str]:
    with suppress(OSError):
        return files.names(folder, links=True, most=MOST_NAMES)
    return []
