"""Taking Muster's own things off this node, as planned."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.members.wiping import paths_above

from ..tools import files, trees
from ..tools.result import TaskRefusedError
from ..tools.run import failure, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible.module_utils.muster.members.wiping import WipePlan

SECONDS = 60
TREES_SECONDS = 300.0  # an environment with CUDA has 40,000 files


def act(plan: WipePlan, params: dict[str, Any]) -> None:
    for name in plan.units:
        # One that has just ended by itself is gone already.
        run("systemctl", "reset-failed", name, seconds=SECONDS)
    for path in plan.files:
        files.remove(path)
    if plan.files:
        _take_effect(params)
    deadline = time.monotonic() + TREES_SECONDS
    for path, names in plan.trees.items():
        if names:
            with files.folder(path, owner=0) as handle:
                for name in names:
                    _remove(handle, name, deadline)
        for name in plan.empty.get(path, ()):
            with suppress(OSError):
                Path(path, name).rmdir()
        with suppress(OSError):
            Path(path).rmdir()
    _remove_empty([*plan.files, *plan.trees])
    if plan.account:
        _must("userdel", plan.account)


def _take_effect(params: dict[str, Any]) -> None:
    if params["reexec"]:
        _must("systemctl", "daemon-reexec")
    for unit in params["restart"]:
        _must("systemctl", "try-restart", unit)


def _remove(handle: int, name: str, deadline: float) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
        trees.remove(handle, name, deadline)
    else:
        files.remove(name, within=handle)


def _remove_empty(paths: Sequence[str]) -> None:
    """Folders that were made for these, as nobody else has anything in them; those of packages stay."""
    for path in paths_above(paths):
        with suppress(OSError):
            if not files.names(path) and run("dpkg-query", "--search", path, seconds=SECONDS).code:
                Path(path).rmdir()


def _must(*argv: str) -> None:
    done = run(*argv, seconds=SECONDS)
    if done.code != 0:
        raise TaskRefusedError(failure(list(argv), done))
