"""Find Muster's files, units and account on this node, and remove them according to a plan."""

from __future__ import annotations

import os
import pwd
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.muster.members.wiping import SeenTree, WipeAccountState, WipeFileState, WipeState, paths_above
from ansible.module_utils.muster.upgrade.seen import read as read_work

from ..programs import at_work
from ..tools import files, process, trees
from ..tools.result import RefusedError
from ..tools.run import failure, run
from ..tools.trust import foreign_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible.module_utils.muster.members.wiping import WipedAccount, WipePlan, WipeRequest

SECONDS = 60
MOST_BUSY = 3
TREES_SECONDS = 300.0  # an environment with CUDA has 40,000 files


def observe(params: dict[str, Any], request: WipeRequest) -> WipeState:
    """Find what Muster has installed on this node. params: options of library/wipe_node.py."""
    return WipeState(
        files=dict(_files(params["files"])),
        trees=dict(_trees([tree.path for tree in request.trees])),
        account=_account(request.account) if request.account else None,
        units=dict(_units(params["units"])),
        work=_work(params["idle"]) if params["idle"] else (),
    )


def _files(patterns: Sequence[str]) -> Iterator[tuple[str, WipeFileState]]:
    for pattern in patterns:
        found = [str(path) for path in sorted(Path("/").glob(pattern.lstrip("/")))] if "*" in pattern else [pattern]
        for path in found:
            with suppress(FileNotFoundError, NotADirectoryError):
                seen = os.lstat(path)
                kind = "link" if stat.S_ISLNK(seen.st_mode) else "file" if stat.S_ISREG(seen.st_mode) else "other"
                yield path, WipeFileState(kind, seen.st_uid)


def _trees(paths: Sequence[str]) -> Iterator[tuple[str, SeenTree]]:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                names = files.names(path)
                with files.folder(path) as handle:
                    empty = [name for name in names if _is_empty(handle, name)]
                yield path, SeenTree(tuple(names), tuple(empty), foreign_writer(path) or "")


def _is_empty(handle: int, name: str) -> bool:
    try:
        return not files.names(name, within=handle, most=1)
    except OSError:
        return False


def _account(account: WipedAccount) -> WipeAccountState | None:
    try:
        entry = pwd.getpwnam(account.name)
    except KeyError:
        return None
    running = [pid for pid in process.ids() if process.user_id(pid) == entry.pw_uid]
    busy = [process.shown(pid) for pid in running[:MOST_BUSY]]
    return WipeAccountState(entry.pw_gecos.partition(",")[0], entry.pw_dir, tuple(busy))


def _units(patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not patterns:
        return
    listed = run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", *patterns, seconds=SECONDS)
    for line in listed.text.splitlines():
        name, _loaded, active, *_ = [*line.split(), "", "", ""]
        yield name, active


def _work(root: str) -> tuple[str, ...]:
    seen = read_work(at_work.look({"root": root}))
    return (seen.silent,) if seen.silent else seen.busy


def act(plan: WipePlan, params: dict[str, Any]) -> None:
    for name in plan.units:
        # A unit that has just ended has already been unloaded.
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
        with suppress(FileNotFoundError):  # the module of a run that was killed may still be at work
            files.remove(name, within=handle)


def _remove_empty(paths: Sequence[str]) -> None:
    """Remove the empty parent folders of these paths, except folders that belong to packages."""
    for path in paths_above(paths):
        with suppress(OSError):
            if not files.names(path) and run("dpkg-query", "--search", path, seconds=SECONDS).code:
                Path(path).rmdir()


def _must(*argv: str) -> None:
    done = run(*argv, seconds=SECONDS)
    if done.code != 0:
        raise RefusedError(failure(list(argv), done))
