"""What an environment's own Python reported, remembered while none of its files changes; and environments to forget.

Reading what every distribution lists takes ten times as long as asking the kernel for every file's inode, size and
time of change, which nobody can set. With them count the boot, the interpreter, who looks, and the program that looked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch.environments import is_name

from ..programs import torch_facts
from ..tools import files
from ..tools.pack import pack
from .root import NEW_LINK, LookedAs, PytorchRoot, refuse_foreign
from .wheelhouse import tidy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

FOLDER = "/var/lib/muster/looks"
BOOT = "/proc/sys/kernel/random/boot_id"
MOST = 1_000_000  # bytes
STORE = "store"  # of what comes of conda packages
OURS = {"envs", "wheels", "current", NEW_LINK, STORE}


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


class Forgotten:
    """folder: as cluster_environments_root has it; "" for none. asked: the names that stay."""

    def __init__(self, folder: str, asked: Collection[str], look_as: LookedAs) -> None:
        self.folder = Path(folder) if folder else None
        self.look_as = look_as
        self.used: list[str] = []
        self.names: list[str] = []
        for root in self._others(asked):
            (self.used if root.in_use() else self.names).append(root.root.name)

    def _others(self, asked: Collection[str]) -> list[PytorchRoot]:
        """What a build has made, and nothing that somebody else has put there."""
        if self.folder is None or not self.folder.is_dir():
            return []
        found = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink())
        roots = [self._root(name) for name in found if is_name(name) and name not in asked]
        return [root for root in roots if root.names() or self._is_begun(root)]

    def _is_begun(self, root: PytorchRoot) -> bool:
        """Whether a build that failed has left it, and nothing is in it."""
        there = {path.name for path in root.root.iterdir()}
        return "envs" in there and there <= OURS and not any(root.envs.iterdir())

    def _root(self, name: str) -> PytorchRoot:
        return PytorchRoot(f"{self.folder}/{name}", self.look_as)

    def remove(self) -> None:
        for name in self.names:
            root = self._root(name)
            refuse_foreign(str(root.envs), "cluster_environments_root")
            # First what everybody names it by, so that nobody begins in it.
            for link in (root.link, root.root / NEW_LINK):
                if link.is_symlink():
                    link.unlink()
            for one in root.names():
                root.remove(one)
            tidy(root.root / "wheels")
            shutil.rmtree(root.root / STORE, ignore_errors=True)
            # The last one takes the folder of all of them with it.
            for place in (root.envs, root.root, root.root.parent):
                with contextlib.suppress(OSError):  # something else lies in it
                    place.rmdir()
