"""Copy a data folder to all nodes: the request, the files that each node needs, and the parts of a transfer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..verdict.words import few, gigabytes, plural
from .request import path_faults

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

ON_NODE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):(/.*)", re.DOTALL)
# One part is what an interrupted run repeats, and the extra space needed: a part first goes into an unnamed file.
PART_BYTES, PART_FILES = 1_000_000_000, 5_000
LOOK_BYTES = 50_000_000_000  # that a node reads for one request
MOST_SHOWN = 5
MOST_NAMED = 20
MOST_TEXT = 500


@dataclass(frozen=True)
class CopyRequest:
    """node: the node that has the source; "" if the source is on the controller."""

    node: str
    source: str
    target: str

    def gives_only(self, name: str) -> bool:
        """Return whether the node has the source at the target path, so that it only sends and nothing is written
        there.
        """
        return name == self.node and self.source == self.target


def asked(source: str, target: str, nodes: Collection[str]) -> tuple[CopyRequest, list[str]]:
    """Return the request, and the errors in it."""
    problems = []
    on_node = ON_NODE.fullmatch(source)
    node, path = on_node.groups() if on_node else ("", source)
    path = path.rstrip("/") or path[:1]
    if not source:
        problems.append("Set the source: -e data_copy_src=/data/cifar10, or -e data_copy_src=NODE:/data/cifar10.")
    if node and node not in nodes:
        problems.append(f"data_copy_src: {node} is not a node of the inventory. Nodes: {few(sorted(nodes))}.")
    target = target.rstrip("/") or target
    if not target:
        problems.append("Set the destination: -e data_copy_dest=/data/cifar10.")
    problems += [f"data_copy_dest: {what}. {fix}." for what, fix in path_faults(target) if target]
    if node:
        problems += [f"data_copy_src: {what}. {fix}." for what, fix in path_faults(path)]
    return CopyRequest(node, path, target), problems


@dataclass
class Lack:
    """The missing or changed files of a node, as positions in the file list.

    links: the same for links. left: whether an interrupted run left files behind.
    """

    missing: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    links: set[int] = field(default_factory=set)
    blocked: list[str] = field(default_factory=list)
    left: bool = False
    room: int = 0
    inodes: int | None = None

    @property
    def files(self) -> set[int]:
        return self.missing | self.changed

    @property
    def anything(self) -> bool:
        return bool(self.files or self.links or self.left)

    def add(self, data: Mapping[str, Any], begin: int, count: int, links: int) -> bool:
        """Add the answer of a node about a section of the list. Return whether the answer is valid."""
        missing, changed = (_places(data, name, count) for name in ("missing", "changed"))
        wrong = _places(data, "links", links)
        blocked, room, inodes = data.get("blocked"), data.get("room"), data.get("inodes")
        if missing is None or changed is None or wrong is None:
            return False
        if not isinstance(blocked, list) or not isinstance(room, int) or not isinstance(inodes, (int, type(None))):
            return False
        self.missing |= {begin + one for one in missing}
        self.changed |= {begin + one for one in changed}
        self.links |= wrong
        self.blocked += [text for one in blocked[:MOST_NAMED] if (text := str(one)[:MOST_TEXT]) not in self.blocked]
        self.room, self.inodes, self.left = room, inodes, data.get("left") is True
        return True


def _places(data: Mapping[str, Any], name: str, most: int) -> set[int] | None:
    found = data.get(name)
    usable = isinstance(found, list) and all(type(one) is int and 0 <= one < most for one in found)
    return set(found) if usable and found is not None else None


def parts(sizes: Sequence[int], wanted: Iterable[int], most: int | None = None) -> Iterator[list[int]]:
    """Split the wanted positions of a list into parts of at most this many bytes. A larger file is a separate part."""
    most = most or PART_BYTES
    part: list[int] = []
    size = 0
    for place in wanted:
        if part and (size + sizes[place] > most or len(part) >= PART_FILES):
            yield part
            part, size = [], 0
        part.append(place)
        size += sizes[place]
    if part:
        yield part


def against(target: str, lack: Lack, sizes: Sequence[int], union: Iterable[int]) -> list[str]:
    """Return sentences about what prevents copying to this node. union: the files that at least one node needs."""
    found = [*lack.blocked]
    comes = sum(sizes[place] for place in lack.files)
    largest = max(
        (sum(sizes[place] for place in part if place in lack.files) for part in parts(sizes, union)), default=0
    )
    if comes + largest > lack.room:
        needed = gigabytes(comes + largest)
        found.append(
            f"{target} has too little free space: {gigabytes(comes)} will be copied, which requires {needed}, but only "
            f"{gigabytes(lack.room)} are free; free some space, or choose another folder"
        )
    if lack.inodes is not None and len(lack.files) * 2 > lack.inodes:
        found.append(
            f"{target} has {lack.inodes} free inodes, but copying {plural(len(lack.files), 'file')} requires"
            f" {len(lack.files) * 2}"
        )
    return found


def lacks_text(lack: Lack, sizes: Sequence[int], paths: Sequence[str]) -> str:
    """Describe which files a node needs. The text has no full stop at the end."""
    said = []
    for what, places in (("missing", lack.missing), ("changed", lack.changed)):
        if places:
            named = [paths[place] for place in sorted(places)[:MOST_SHOWN]]
            more = f" and {len(places) - MOST_SHOWN} more" if len(places) > MOST_SHOWN else ""
            said.append(f"{plural(len(places), 'file')} {what} ({', '.join(named)}{more})")
    if lack.links:
        said.append(f"{plural(len(lack.links), 'link')} missing or changed")
    if lack.left:
        said.append("leftovers of an interrupted run")
    size = gigabytes(sum(sizes[place] for place in lack.files))
    return f"{', '.join(said)}: {size} to copy" if said else "complete"


def wrong_lines(
    name: str, target: str, lack: Lack, paths: Sequence[str], links: Sequence[str], more: Mapping[str, Any]
) -> list[str]:
    """List the path of each file on a node that differs from the source."""
    listed = [
        *(f"{target}/{paths[place]} was changed" for place in sorted(lack.changed)),
        *(f"{target}/{paths[place]} is missing" for place in sorted(lack.missing)),
        *(f"{target}/{links[place]} is missing or links to another target" for place in sorted(lack.links)),
    ]
    names, count = more.get("names", []), more.get("more", 0)
    besides = [f"{target}/{str(one)[:MOST_TEXT]} is additional (kept)" for one in names[:MOST_NAMED]]
    lines = [*listed[:MOST_NAMED], *besides]
    left = max(0, len(listed) - MOST_NAMED) + (count if isinstance(count, int) else 0)
    return [f"{name}: {line}" for line in (*lines, *([f"and {left} more"] if left else []))]


def rate(size: float, seconds: float) -> str:
    return f"{size / 1e6 / max(seconds, 0.001):.1f} MB/s"
