"""Cache what an environment's Python reported, until the environment's files change. Find environments to
remove.

Reading the file lists of all distributions takes ten times as long as asking the kernel for the inode, size and change
time of each file. Programs cannot set change times. The cache key also includes the boot id, the interpreter, the user,
and the inspection program.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.pytorch.environments import existing, is_name

from ..tools import files
from ..tools.pack import pack
from ..units import torch_facts
from .root import NEW_LINK, LookedAs, PytorchRoot, refuse_foreign
from .wheelhouse import tidy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

FOLDER = "/var/lib/muster/looks"
BOOT = "/proc/sys/kernel/random/boot_id"
MOST = 1_000_000  # bytes
STORE = "store"  # of received conda archives
OURS = {"envs", "wheels", "current", NEW_LINK, STORE}


class RememberingRoot(PytorchRoot):
    """PytorchRoot with a cache. writes: whether results are cached. proves: inspect even after a cache hit, and store a
    mismatch in `wrong`."""

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
            self.wrong = f"the cached inspection result of {environment} is wrong, although the files are unchanged"
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
    """Return metadata that changes whenever the file changes. For a folder, return only owner and mode, because
    bytecode can be written to it at any time."""
    try:
        return of(os.lstat(path), folder=path.is_dir())
    except OSError as problem:
        return (problem.errno or 0,)


def of(seen: os.stat_result, *, folder: bool) -> tuple[int, ...]:
    own = (seen.st_mode, seen.st_uid, seen.st_gid)
    return own if folder else (*own, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def tree(folder: str) -> Iterator[str]:
    """Yield every file and folder below a folder, except bytecode, which Python regenerates."""
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
    """Environments that are no longer requested. folder: cluster_environments_root, or the folder of a user; "" for
    none. declared: environments to keep, unless they are at other paths."""

    def __init__(self, folder: str, declared: Mapping[str, Mapping[str, Any]], look_as: LookedAs) -> None:
        self.folder = Path(folder) if folder else None
        self.look_as = look_as
        self.used: list[str] = []
        self.names: list[str] = []
        for root in self._others([name for name, entry in declared.items() if not existing(entry)]):
            (self.used if root.in_use() else self.names).append(root.root.name)

    @property
    def reasons(self) -> list[str]:
        return [f"environment {name} is no longer requested" for name in self.names]

    @property
    def notes(self) -> list[str]:
        return [f"a process uses the environment {name}, which is no longer requested" for name in self.used]

    def _others(self, asked: Collection[str]) -> list[PytorchRoot]:
        """Return the roots that Muster built, without folders of other origin."""
        if self.folder is None or not self.folder.is_dir():
            return []
        found = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.is_symlink())
        roots = [self._root(name) for name in found if is_name(name) and name not in asked]
        return [root for root in roots if root.names() or self._is_begun(root)]

    def _is_begun(self, root: PytorchRoot) -> bool:
        """Return whether a failed build left an empty root."""
        there = {path.name for path in root.root.iterdir()}
        return "envs" in there and there <= OURS and not any(root.envs.iterdir())

    def _root(self, name: str) -> PytorchRoot:
        return PytorchRoot(f"{self.folder}/{name}", self.look_as)

    def remove(self) -> None:
        for name in self.names:
            root = self._root(name)
            refuse_foreign(str(root.envs), "cluster_environments_root")
            # The link first, so that no new process starts in the environment.
            for link in (root.link, root.root / NEW_LINK):
                if link.is_symlink():
                    link.unlink()
            for one in root.names():
                root.remove(one)
            tidy(root.root / "wheels")
            shutil.rmtree(root.root / STORE, ignore_errors=True)
            # The common folder is removed with the last environment.
            for place in (root.envs, root.root, root.root.parent):
                with contextlib.suppress(OSError):  # contains other files
                    place.rmdir()
