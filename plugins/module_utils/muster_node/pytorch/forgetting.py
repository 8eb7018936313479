"""Environments with a name that nobody asks for any longer: which ones are there, and how one goes."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ansible.module_utils.muster.pytorch.environments import is_name

from .root import NEW_LINK, LookedAs, PytorchRoot, refuse_foreign
from .wheelhouse import tidy

if TYPE_CHECKING:
    from collections.abc import Collection


STORE = "store"  # of what comes of conda packages
OURS = {"envs", "wheels", "current", NEW_LINK, STORE}


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
