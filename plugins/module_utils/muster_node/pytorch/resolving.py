"""Resolve a request with pip for the first time, as a temporary unprivileged user, or as the user who owns the
environment.

Resolving can run code from source builds and from packages that another package requires by URL. Therefore root never
resolves. Root validates and copies the resulting files one by one.
"""

from __future__ import annotations

import contextlib
import email
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.pytorch import wheels
from ansible.module_utils.muster.pytorch.lock import Wheel

from ..tools import files
from ..tools.run import CLEAN, CommandResult, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CACHES = Path("/var/cache")
SECONDS = 6 * 3600  # several gigabytes over a slow connection
MOST_WHEELS = 500
MOST_BYTES = 16_000_000_000  # of all wheels; CUDA wheels have 3 to 4 GB
MOST_METADATA = 4_000_000
CHUNK = 1 << 20
# Exceptions of zipfile for a corrupt archive, and ValueError for invalid names.
UNREADABLE = (StopIteration, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)
# Files with pip's settings and passwords in root's home.
SETTINGS = (".netrc", ".pip/pip.conf", ".config/pip/pip.conf")
# DynamicUser also removes set-user-ID and all writable folders except its own, and deletes that folder at the end.
PROPERTIES = (
    *("DynamicUser=yes", "CacheDirectoryMode=0700", "PrivateDevices=yes", "ProtectKernelTunables=yes", "UMask=0022"),
    *("TasksMax=4096", f"RuntimeMaxSec={SECONDS}"),
)
# Passed by standard input, to keep settings off the command line: {files: {name: text}, environment}.
BEGIN = """
import json, os, sys
given, home = json.load(sys.stdin), os.environ["CACHE_DIRECTORY"]
for name, text in {**given["files"], "tmp/.muster": ""}.items():
    os.makedirs(os.path.dirname(os.path.join(home, name)), exist_ok=True)
    with open(os.path.join(home, name), "w") as file:
        file.write(text)
environment = {**given["environment"], "HOME": home, "TMPDIR": os.path.join(home, "tmp")}
environment["PIP_LOG"] = os.path.join(home, "pip.log")
os.chdir(home)
os.execve(sys.argv[1], sys.argv[1:], environment)
"""


class Resolver:
    """Runs pip as a temporary user; without root, as this user. python: the node's Python. root: the folder with the
    environments, which one run at a time locks."""

    def __init__(self, python: str, root: Path) -> None:
        self.python = python
        self.unit = f"muster-wheels-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
        self.as_root = os.geteuid() == 0
        self.folder = CACHES / "private" / self.unit if self.as_root else root / "wheels/.new-cache"

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """Remove leftovers of a killed run before the work, and all files after the work."""
        self._clear()
        try:
            yield
        finally:
            self._clear()

    def _clear(self) -> None:
        if self.as_root:
            run("systemctl", "stop", f"{self.unit}.service", seconds=60)
            (CACHES / self.unit).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def pip(self, argv: Sequence[str], environment: Mapping[str, str], settings: Mapping[str, str]) -> CommandResult:
        """Run pip in a transient unit, in the unit's own folder. Without root, run pip in a folder of this user."""
        given = json.dumps({"files": dict(settings), "environment": dict(environment)})
        command = [self.python, "-I", "-S", "-c", BEGIN, *argv]
        if not self.as_root:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            return run(*command, stdin=given, seconds=SECONDS, env={**CLEAN, "CACHE_DIRECTORY": str(self.folder)})
        properties = [f"--property={each}" for each in (*PROPERTIES, f"CacheDirectory={self.unit}")]
        begin = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", f"--unit={self.unit}", *properties]
        return run(*begin, *command, stdin=given, seconds=SECONDS + 60)


def own_settings() -> dict[str, str]:
    """Return root's own pip settings by file name, relative to root's home folder."""
    found = {name: files.text(f"{Path.home()}/{name}", links=True) for name in SETTINGS}
    return {name: text for name, text in found.items() if text is not None}


def take_over(source: str, target: Path) -> list[Wheel]:
    """Copy only the wheels from a folder that another user has written. Raises WheelError, files.UnsafePathError."""
    names = files.names(source, most=MOST_WHEELS)
    left = MOST_BYTES
    taken = []
    with files.folder(source) as folder:
        for name in names:
            wheels.named(name)
            sha256, size = _copy(name, folder, target / name, left)
            left -= size
            taken.append(wheel_of(target / name, sha256))
    return taken


def _copy(name: str, folder: int, target: Path, most: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with files.opened(name, within=folder) as handle, files.replacing(str(target), mode=0o644) as copy:
        while chunk := os.read(handle, CHUNK):
            size += len(chunk)
            if size > most:
                raise wheels.WheelError(f"{name} exceeds the size limit for all wheels")
            digest.update(chunk)
            copy.write(chunk)
    return digest.hexdigest(), size


def wheel_of(path: Path, sha256: str) -> Wheel:
    """Return the metadata of a wheel. Raises WheelError."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = (name for name in archive.namelist() if name.count("/") == 1)
            with archive.open(next(name for name in names if name.endswith(".dist-info/METADATA"))) as file:
                head = email.message_from_bytes(file.read(MOST_METADATA))
    except UNREADABLE as problem:
        raise wheels.WheelError(f"{path.name} is not a readable wheel ({problem})") from None
    name, version = str(head["Name"]), str(head["Version"])
    wheels.judge(path.name, name, version, map(str, head.get_all("Requires-Dist", [])))
    return Wheel(name, version, sha256, path.name)
