"""What of Muster's own goes off a node, and what stays: people's files, and whatever somebody else has put there."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOCAL = "/usr/local/"  # its folders are in no package, and are the system's


@dataclass(frozen=True)
class Tree:
    """A folder of Muster's. only: patterns of names in it that go; the folder goes when nothing is left in it.

    keeps: what it is that stays, where the rest is people's.
    """

    path: str
    only: tuple[str, ...] = ()
    keeps: str = "Muster did not write"


@dataclass(frozen=True)
class WipedAccount:
    """comment: by which an account is known that Muster has made."""

    name: str
    comment: str


@dataclass(frozen=True)
class WipeRequest:
    trees: tuple[Tree, ...] = ()
    account: WipedAccount | None = None


@dataclass(frozen=True)
class WipeFileState:
    """kind: file, link or another one. owner: its uid."""

    kind: str = "file"
    owner: int = 0


@dataclass(frozen=True)
class SeenTree:
    """empty: folders in which nothing is. foreign: a sentence on who else may change what the path leads to."""

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
    """files, trees: those that are there. units: states by name, of what is no unit of the system's own files."""

    files: Mapping[str, WipeFileState] = field(default_factory=dict)
    trees: Mapping[str, SeenTree] = field(default_factory=dict)
    account: WipeAccountState | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    work: tuple[str, ...] = ()


@dataclass
class WipePlan:
    """What goes: files, trees (names by folder), empty (the same, of empty folders), units and account.

    whole: folders of which nothing stays. left: what stays, a sentence each.
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
        """What goes, a line each."""
        folders = [f"folder {path}" for path, names in self.trees.items() if not names and not self.empty.get(path)]
        both = [*self.trees.items(), *self.empty.items()]
        inside = [f"{path}/{name}" for path, names in both for name in names]
        units = [f"unit {name}, which has ended" for name in self.units]
        account = [f"account {self.account}, without its home"] if self.account else []
        return [*units, *self.files, *inside, *folders, *account]

    @property
    def needed(self) -> bool:
        return bool(self.shown)


def make_plan(request: WipeRequest, seen: WipeState) -> WipePlan:
    plan = WipePlan()
    plan.problems += [f"{one}: nothing is taken off a node under somebody's work" for one in seen.work]
    _units(plan, seen)
    for path, file in seen.files.items():
        if file.kind in ("file", "link") and file.owner == 0:
            plan.files.append(path)
        else:
            plan.left.append(f"{path} is not root's, or no file, and stays")
    for tree in request.trees:
        if tree.path in seen.trees:
            _tree(plan, tree, seen.trees[tree.path])
    if request.account and seen.account:
        _account(plan, request.account, seen.account)
    return plan


def _units(plan: WipePlan, seen: WipeState) -> None:
    for name, state in seen.units.items():
        if state in ("active", "activating", "deactivating", "reloading"):
            plan.problems.append(f"the unit {name} runs: nothing is taken off a node under somebody's work")
        else:
            plan.units.append(name)


def _tree(plan: WipePlan, tree: Tree, there: SeenTree) -> None:
    if there.foreign and tree.only:
        plan.left.append(f"{tree.path} stays, because it is not safe to work in: {there.foreign}")
        return
    goes = [name for name in there.names if any(fnmatchcase(name, pattern) for pattern in tree.only)]
    empty = [name for name in there.empty if name not in goes]
    inner = [name for name in there.names if f"{tree.path}/{name}" in plan.whole]
    stays = [name for name in there.names if name not in (*goes, *empty, *inner)]
    if goes or empty or not stays:
        plan.trees[tree.path] = goes
        plan.empty[tree.path] = empty
    if not stays:
        plan.whole.add(tree.path)
    if stays:
        plan.left.append(f"{tree.path} stays, with what {tree.keeps}: {few(stays)}")


def _account(plan: WipePlan, account: WipedAccount, there: WipeAccountState) -> None:
    if there.comment != account.comment:
        plan.left.append(f"the account {account.name} was there before Muster, and stays")
        return
    if there.busy:
        busy = few(there.busy)
        plan.problems.append(f"{busy} of {account.name} runs: its account is removed once that has ended")
        return
    plan.account = account.name
    plan.left.append(f"{there.home} stays: what is in the home of {account.name} is people's")


def still_there(plan: WipePlan) -> Iterator[str]:
    """Sentences for what should be gone, and is not."""
    if plan.needed:
        yield f"{few(plan.shown)} could not be taken off. Run this again"


def paths_above(paths: Sequence[str]) -> list[str]:
    """The folders that these lie in, each with those above it, the deepest first; none of the file system's own."""
    found: set[str] = set()
    for path in paths:
        parts = path.strip("/").split("/")[:-1]
        first = 4 if path.startswith(LOCAL) else 2
        found |= {"/" + "/".join(parts[:depth]) for depth in range(first, len(parts) + 1)}
    return sorted(found, key=lambda one: (-one.count("/"), one))
