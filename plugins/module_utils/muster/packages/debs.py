"""Choose which node downloads each .deb file when several nodes install the same packages. Pure functions.

The first node of the play that needs a file downloads it. The other nodes fetch it from that node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Deb:
    """A file that apt would fetch: its name in apt's archive folder, and its size and hash from the signed index."""

    name: str
    size: int
    sha256: str

    @property
    def spec(self) -> str:
        """Return the argument for apt-get: the package name with architecture and exact version."""
        name, version, architecture = unquote(self.name.removesuffix(".deb")).rsplit("_", 2)
        return f"{name}={version}" if architecture == "all" else f"{name}:{architecture}={version}"


def parse_uris(text: str) -> list[Deb]:
    """Parse the output of `apt-get install --print-uris`.

    Files without a checksum and files on the node itself are left to apt.
    """
    return [
        Deb(name, int(size), sha256)
        for uri, name, size, sha256 in _URI.findall(text)
        if not uri.startswith(("file:", "copy:", "cdrom:"))
    ]


@dataclass(frozen=True)
class DebShare:
    """The files of one node.

    own: files that the node downloads. others: files that it fetches from other nodes, grouped by these nodes.
    """

    own: tuple[Deb, ...] = ()
    others: Mapping[str, tuple[Deb, ...]] = field(default_factory=dict)


def share(needed: Mapping[str, Iterable[Deb]]) -> dict[str, DebShare]:
    """Assign each download to a node. needed: the files that each node needs, in the order of the play."""
    holders: dict[str, str] = {}
    shares = {}
    for node, debs in needed.items():
        parts: dict[str, tuple[Deb, ...]] = {}
        for deb in debs:
            holder = holders.setdefault(deb.sha256, node)
            parts[holder] = (*parts.get(holder, ()), deb)
        shares[node] = DebShare(parts.pop(node, ()), parts)
    return shares
