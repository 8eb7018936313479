"""Wheels: validate files by name and metadata, and choose the node that downloads wheels for several nodes.

Pure functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .request import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# PEP 427: name, version, optional build, and three tags.
_FILE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]{0,127})-([A-Za-z0-9][A-Za-z0-9._+!]{0,127})(-\d\w*)?(-[\w.]+){3}\.whl", re.ASCII
)
_DIRECT = re.compile(r"\s*[A-Za-z0-9._-]+\s*(\[[^\]]*\])?\s*@")
_EXTRA = re.compile(r";.*\bextra\b")
# How many peers are asked for the wheels of the lock.
MOST_PEERS = 3


class WheelError(ValueError):
    """A file is not a wheel, or must not be installed. The message begins with the file name and gives the reason."""


def named(file: str) -> tuple[str, str]:
    """Return the package name (normalized as in pip) and the version in the file name of a wheel."""
    found = _FILE.fullmatch(file)
    if found is None or len(file) > 255:
        raise WheelError(f"{file[:100]!r} is not the file name of a wheel")
    return canonical_name(found[1]), found[2]


def judge(file: str, name: str, version: str, requires: Iterable[str]) -> None:
    """Check the METADATA of a wheel: name, version, and each Requires-Dist.

    A wheel is rejected if its name differs from its file name, or if it requires something by URL. pip would download
    and build such a URL even with --only-binary.
    """
    if (canonical_name(name), _plain(version)) != (named(file)[0], _plain(named(file)[1])):
        raise WheelError(f"the metadata of {file} has name {name[:100]!r} and version {version[:100]!r}")
    for needed in requires:
        if _DIRECT.match(needed) and not _EXTRA.search(needed):
            raise WheelError(f"{file} requires {needed[:200]!r}; packages are installed only from an index or a folder")


def _plain(version: str) -> str:
    return re.sub(r"[-_.+]+", ".", version).lower()


@dataclass(frozen=True)
class WheelNeed:
    """The wheels that a node needs.

    build: whether the node needs wheels. key: equal for nodes that need the same wheels. here: whether the node has the
    wheels in the lock. section: its section of the lock, in the format of WheelSection.as_dict; None if there is none.
    """

    build: bool
    key: str
    here: bool
    section: Mapping[str, Any] | None = None


def downloader(key: str, needs: Mapping[str, WheelNeed]) -> str:
    """Return the node that downloads the wheels with this key: the first node in the play that has the wheels, or else
    the first that needs them.
    """
    same = [name for name, need in needs.items() if need.build and need.key == key]
    return min(same, key=lambda name: not needs[name].here, default="")


def holders(own: str, key: str, needs: Mapping[str, WheelNeed], nodes: Sequence[str]) -> list[str]:
    """Return the nodes that have the wheels in the lock, followed by nodes that may have them, in inventory order."""
    sure = [name for name, need in needs.items() if need.here and need.key == key]
    return [name for name in dict.fromkeys([*sure, *nodes]) if name != own][:MOST_PEERS]
