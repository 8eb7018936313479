"""Plan the removal of Muster from a node. Files of users and of other software are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Parent folders that Muster may have created: folders with its name, and folders of settings.
OURS = re.compile(r"/etc/|.*/muster(/|$)")


@dataclass(frozen=True)
class Tree:
    """A folder that Muster created. only: patterns of the names to remove in the folder. empty: patterns of the
    folders in it to remove if they are empty. The folder is then removed too if it is empty.

    keeps: who wrote the other files in the folder, which are kept.
    """

    path: str
    only: tuple[str, ...] = ()
    keeps: str = "Muster did not write"
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class WipedAccount:
    """An account that may be removed. comment: the comment that identifies an account that Muster created."""

    name: str
    comment: str


@dataclass(frozen=True)
class WipeRequest:
    trees: tuple[Tree, ...] = ()
    account: WipedAccount | None = None


@dataclass(frozen=True)
class WipeFileState:
    """A file to remove. kind: file, link or other. owner: UID of the owner."""

    kind: str = "file"
    owner: int = 0


@dataclass(frozen=True)
class SeenTree:
    """empty: empty folders. foreign: a sentence about other users who can change what the path leads to."""

    names: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    foreign: str = ""


@dataclass(frozen=True)
class WipeAccountState:
    comment: str = ""
    home: str = ""
    busy: tuple[str, ...] = ()


@dataclass(frozen=True)
class WipeState:
    """files, trees: those that exist on the node. units: states by name, without units from the system's packages."""

    files: Mapping[str, WipeFileState] = field(default_factory=dict)
    trees: Mapping[str, SeenTree] = field(default_factory=dict)
    account: WipeAccountState | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    work: tuple[str, ...] = ()


@dataclass
class WipePlan:
    """What will be removed: files, trees (names by folder), empty (names of empty folders by folder), units and
    account.

    whole: folders that are removed completely. left: what is kept, one sentence for each item.
    """

    files: list[str] = field(default_factory=list)
    trees: dict[str, list[str]] = field(default_factory=dict)
    empty: dict[str, list[str]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    units: list[str] = field(default_factory=list)
    account: str = ""
    left: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[str]:
        """Return one line for each item that will be removed."""
        folders = [f"folder {path}" for path, names in self.trees.items() if not names and not self.empty.get(path)]
        both = [*self.trees.items(), *self.empty.items()]
        inside = [f"{path}/{name}" for path, names in both for name in names]
        units = [f"unit {name} (not running)" for name in self.units]
        account = [f"account {self.account} (its home is kept)"] if self.account else []
        return [*units, *self.files, *inside, *folders, *account]

    @property
    def needed(self) -> bool:
        return bool(self.shown)


def make_plan(request: WipeRequest, seen: WipeState) -> WipePlan:
    plan = WipePlan()
    plan.problems += [f"{one}: the node is in use, so nothing is removed" for one in seen.work]
    _units(plan, seen)
    for path, file in seen.files.items():
        if file.kind in ("file", "link") and file.owner == 0:
            plan.files.append(path)
        else:
            plan.left.append(f"{path} is kept, because it is not a file owned by root")
    for tree in request.trees:
        if tree.path in seen.trees:
            _tree(plan, tree, seen.trees[tree.path])
    if request.account and seen.account:
        _account(plan, request.account, seen.account)
    return plan


def _units(plan: WipePlan, seen: WipeState) -> None:
    for name, state in seen.units.items():
        if state in ("active", "activating", "deactivating", "reloading"):
            plan.problems.append(f"unit {name} is running: the node is in use, so nothing is removed")
        else:
            plan.units.append(name)


def _tree(plan: WipePlan, tree: Tree, there: SeenTree) -> None:
    if there.foreign and tree.only:
        plan.left.append(f"{tree.path} is kept, because removing files in it is unsafe: {there.foreign}")
        return
    goes = _matching(there.names, tree.only)
    empty = [name for name in _matching(there.empty, tree.empty) if name not in goes]
    inner = [name for name in there.names if f"{tree.path}/{name}" in (*plan.whole, *plan.files)]
    stays = [name for name in there.names if name not in (*goes, *empty, *inner)]
    if goes or empty or not stays:
        plan.trees[tree.path] = goes
        plan.empty[tree.path] = empty
    if not stays:
        plan.whole.add(tree.path)
    if stays:
        plan.left.append(f"{tree.path} is kept, because it contains files that {tree.keeps}: {few(stays)}")


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _account(plan: WipePlan, account: WipedAccount, there: WipeAccountState) -> None:
    if there.comment != account.comment:
        plan.left.append(f"account {account.name} is kept, because Muster did not create it")
        return
    if there.busy:
        busy = few(there.busy)
        plan.problems.append(f"{account.name} runs {busy}: the account can be removed after these processes have ended")
        return
    plan.account = account.name
    plan.left.append(f"{there.home} is kept, because the home of {account.name} might contain user data")


def still_there(plan: WipePlan) -> Iterator[str]:
    """Yield a sentence about each item that still exists after the removal."""
    if plan.needed:
        yield f"{few(plan.shown)} could not be removed. Run the command again"


def paths_above(paths: Sequence[str]) -> list[str]:
    """Return the parent folders of these paths that Muster may have created, deepest first."""
    above = {path[:end] for path in paths for end, letter in enumerate(path) if letter == "/"}
    return sorted(filter(OURS.match, above), key=lambda one: (-one.count("/"), one))
