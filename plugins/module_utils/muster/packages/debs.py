"""Which node downloads which .deb file when several are about to install the same: pure.

Each deb is downloaded by the node that claims it first, and fetched from there by the others. A claim is made over all
debs of a node at once, so that nodes wait for earlier ones alone, and never for each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Deb:
    """A file that apt would fetch: its name among apt's archives, and what its signed index says is in it."""

    name: str
    size: int
    sha256: str


def parse_uris(text: str) -> list[Deb]:
    """Read `apt-get install --print-uris`. What has no checksum there, or lies on the node itself, is left to apt."""
    return [
        Deb(name, int(size), sha256)
        for uri, name, size, sha256 in _URI.findall(text)
        if not uri.startswith(("file:", "copy:", "cdrom:"))
    ]


@dataclass(frozen=True)
class Share:
    """What one node does. own: what it downloads. others: what it waits for, by the node that downloads it."""

    own: tuple[Deb, ...]
    others: Mapping[str, tuple[Deb, ...]]


def share(node: str, needed: Iterable[Deb], claims: dict[str, str]) -> Share:
    """Claim what nobody has claimed. claims: the node of each checksum, and is added to."""
    own: list[Deb] = []
    others: dict[str, list[Deb]] = {}
    for deb in needed:
        holder = claims.setdefault(deb.sha256, node)
        if holder == node:
            own.append(deb)
        else:
            others.setdefault(holder, []).append(deb)
    return Share(tuple(own), {holder: tuple(debs) for holder, debs in others.items()})
