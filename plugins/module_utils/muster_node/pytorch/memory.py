"""What an environment's own Python said of it, remembered for as long as no file of it is another one.

Reading what every distribution lists takes ten times as long as asking the kernel for every file's inode, size and
time of change, which nobody can set. With them count the boot, the interpreter, who looks, and the program that looked.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..programs import torch_facts
from ..tools import files
from ..tools.pack import pack
from .root import LookedAs, PytorchRoot

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "/var/lib/muster/looks"
BOOT = "/proc/sys/kernel/random/boot_id"
MOST = 1_000_000  # bytes


class RememberingRoot(PytorchRoot):
    """writes: whether it may remember what it sees. proves: whether to look anyhow; wrong then says what was not so."""

    def __init__(self, root: str, look_as: LookedAs, *, writes: bool, proves: bool, folder: str = FOLDER) -> None:
        super().__init__(root, look_as)
        self.writes = writes
        self.proves = proves
        self.file = Path(folder) / f"{hashlib.sha256(root.encode()).hexdigest()[:16]}.json"
        self.wrong = ""

    def look(self, environment: Path, depth: str) -> dict[str, Any]:
        if depth != "files":
            return super().look(environment, depth)
        before = self.fingerprint(environment)
        known = self._known()
        remembered = known["answer"] if known.get("fingerprint") == before else None
        if remembered is not None and not self.proves:
            return dict(remembered)
        answer = super().look(environment, depth)
        if remembered is not None and remembered != answer:
            self.wrong = f"what was remembered of {environment} is not so, though no file of it has changed"
        if self.writes and "packages" in answer and self.fingerprint(environment) == before:
            text = json.dumps({"fingerprint": before, "answer": answer})
            files.replace(str(self.file), text.encode(), mode=0o600, parents=True)
        return answer

    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(files.read(str(self.file), most=MOST, owner=os.geteuid()))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and isinstance(found.get("answer"), dict) else {}

    def fingerprint(self, environment: Path) -> str:
        entry = self.look_as.entry
        who = [entry.pw_uid, os.getgrouplist(entry.pw_name, entry.pw_gid)] if entry else [os.geteuid()]
        python = (environment / "bin/python").resolve()
        places = (python, *python.parents, environment, *environment.parents)
        stamps = [(str(path), stamp(path)) for path in places]
        told = hashlib.sha256(repr((files.text(BOOT), who, pack(torch_facts.__name__), stamps)).encode())
        for line in sorted(tree(str(environment))):
            told.update(line.encode("utf-8", "surrogateescape"))
        return told.hexdigest()


def stamp(path: Path) -> tuple[int, ...]:
    """What of a file changes with it; of a folder whose it is, because byte code is written in there at any time."""
    try:
        return of(os.lstat(path), folder=path.is_dir())
    except OSError as problem:
        return (problem.errno or 0,)


def of(seen: os.stat_result, *, folder: bool) -> tuple[int, ...]:
    own = (seen.st_mode, seen.st_uid, seen.st_gid)
    return own if folder else (*own, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def tree(folder: str) -> Iterator[str]:
    """Every file and folder below, but byte code: Python makes that anew at will."""
    left = [folder]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                below = entry.is_dir(follow_symlinks=False)
                if below and entry.name != "__pycache__":
                    left.append(entry.path)
                if not below and entry.name.endswith(".pyc"):
                    continue
                yield f"{entry.path} {of(entry.stat(follow_symlinks=False), folder=below)}\n"
