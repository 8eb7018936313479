"""Wheels: which files are accepted, by name and metadata, and which node downloads what several nodes need. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .request import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# PEP 427: name, version, perhaps a build, and three tags.
_FILE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]{0,127})-([A-Za-z0-9][A-Za-z0-9._+!]{0,127})(-\d\w*)?(-[\w.]+){3}\.whl", re.ASCII
)
_DIRECT = re.compile(r"\s*[A-Za-z0-9._-]+\s*(\[[^\]]*\])?\s*@")
_EXTRA = re.compile(r";.*\bextra\b")
# Other nodes that are asked whether they have kept the wheels of the lock.
MOST_PEERS = 3


class WheelError(ValueError):
    """A file is no wheel, or not one to install; the text says why, and begins with its name."""


def named(file: str) -> tuple[str, str]:
    """Return the name, as pip compares names, and the version that a wheel's file name gives."""
    found = _FILE.fullmatch(file)
    if found is None or len(file) > 255:
        raise WheelError(f"{file[:100]!r} is not a wheel's name")
    return canonical_name(found[1]), found[2]


def judge(file: str, name: str, version: str, requires: Iterable[str]) -> None:
    """Judge what a wheel's METADATA says: its name, its version, and each Requires-Dist.

    Refused is one that is called otherwise than its file, and one that requires something by its address: pip would
    fetch and build whatever lies there, however it is told to take wheels alone.
    """
    if (canonical_name(name), _plain(version)) != (named(file)[0], _plain(named(file)[1])):
        raise WheelError(f"{file} says that it is {name[:100]!r} {version[:100]!r}")
    for needed in requires:
        if _DIRECT.match(needed) and not _EXTRA.search(needed):
            raise WheelError(f"{file} requires {needed[:200]!r}, and only what an index or a folder has is installed")


def _plain(version: str) -> str:
    return re.sub(r"[-_.+]+", ".", version).lower()


@dataclass(frozen=True)
class WheelNeed:
    """What a look found that a node needs.

    build: whether it needs wheels. key: the same on nodes that need the same ones. here: whether it has those of the
    lock. section: what the lock has for it, as Section.as_dict gives it; None for nothing.
    """

    build: bool
    key: str
    here: bool
    section: Mapping[str, Any] | None = None


def downloader(key: str, needs: Mapping[str, WheelNeed]) -> str:
    """The node that downloads what this key stands for: the first of the play that needs it, or that has it already."""
    same = [name for name, need in needs.items() if need.build and need.key == key]
    return min(same, key=lambda name: not needs[name].here, default="")


def holders(own: str, key: str, needs: Mapping[str, WheelNeed], nodes: Sequence[str]) -> list[str]:
    """Nodes that have the wheels of the lock, or may have kept them: the first ones of the inventory (nodes)."""
    sure = [name for name, need in needs.items() if need.here and need.key == key]
    return [name for name in dict.fromkeys([*sure, *nodes]) if name != own][:MOST_PEERS]
