"""Which node downloads which .deb file when several are about to install the same: pure.

Each file is downloaded by the first node of the play that needs it, and fetched from there by the others.
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
    """A file that apt would fetch: its name among apt's archives, and what its signed index says is in it."""

    name: str
    size: int
    sha256: str

    @property
    def spec(self) -> str:
        """The package as apt-get takes it: of its architecture, in exactly this version."""
        name, version, architecture = unquote(self.name.removesuffix(".deb")).rsplit("_", 2)
        return f"{name}={version}" if architecture == "all" else f"{name}:{architecture}={version}"


def parse_uris(text: str) -> list[Deb]:
    """Read `apt-get install --print-uris`. What has no checksum there, or lies on the node itself, is left to apt."""
    return [
        Deb(name, int(size), sha256)
        for uri, name, size, sha256 in _URI.findall(text)
        if not uri.startswith(("file:", "copy:", "cdrom:"))
    ]


@dataclass(frozen=True)
class DebShare:
    """What one node does. own: what it downloads. others: what it fetches, by the node that downloads it."""

    own: tuple[Deb, ...] = ()
    others: Mapping[str, tuple[Deb, ...]] = field(default_factory=dict)


def share(needed: Mapping[str, Iterable[Deb]]) -> dict[str, DebShare]:
    """Part the downloads. needed: what each node needs, in the order of the play."""
    holders: dict[str, str] = {}
    shares = {}
    for node, debs in needed.items():
        parts: dict[str, tuple[Deb, ...]] = {}
        for deb in debs:
            holder = holders.setdefault(deb.sha256, node)
            parts[holder] = (*parts.get(holder, ()), deb)
        shares[node] = DebShare(parts.pop(node, ()), parts)
    return shares
