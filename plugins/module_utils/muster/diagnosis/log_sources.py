"""Sorts the lines of logs that Muster did not write by the rank, process or node that wrote them.

The source of a line is known from its prefixes (log_lines), torchrun's folders (attempt_0/3/stderr.log), a rank or a
node name in the file name, and process ids (log_processes). The source of other lines is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from .arguments import is_host
from .log_arguments import arguments_in
from .log_lines import KeptLines, LineSource, unwrapped
from .log_processes import SPOKEN, process_ends, rank_of_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .log_processes import ProcessEnd

OF_FOLDER = re.compile(r"attempt_\d+/(?P<local>\d{1,4})/(?:stderr|stdout)\.log")
OF_FILE = re.compile(
    r"(?:^|/)(?![^/]*(?:node|machine|local)_?rank)[^/]*rank[_.-]?(?P<rank>\d{1,6})(?!\d)[^/]*$", re.IGNORECASE
)
MOST_SOURCES = 8192


class Known(NamedTuple):
    """A node of the inventory. names: the host names of the node."""

    node: str
    address: str
    names: tuple[str, ...] = ()


@dataclass
class ForeignLines:
    """Log lines by source. A rank has no node there, but in `places`; a launcher whose node is unknown has the node "".
    ends: how processes ended, by node. told: launch arguments by node, with "" for all nodes. launched: whether a
    launcher printed anything. backends: named in the logs."""

    lines: dict[LineSource, list[str]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    ends: dict[str, list[ProcessEnd]] = field(default_factory=dict)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    launched: bool = False
    backends: set[str] = field(default_factory=set)

    @property
    def ranks(self) -> set[int]:
        return {source.number for source in self.lines if source.kind == "rank"}

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that the logs name, in the order of their appearance."""
        named = (*(source.node for source in self.lines), *self.ends, *self.told)
        return [node for node in dict.fromkeys(named) if node]

    def add(self, source: LineSource, lines: Iterable[str]) -> None:
        self.lines.setdefault(source, []).extend(lines)


def of_node_rank(number: int) -> str:
    """Return a name for a node of which only the node rank is known."""
    return f"node rank {number}"


def by_name(known: Iterable[Known]) -> dict[str, str]:
    """Return the nodes by name, address and host name, in lower case."""
    found: dict[str, str] = {}
    for one in known:
        for name in (one.node, one.address, *one.names):
            if name:
                found.setdefault(name.lower(), one.node)
                if not name.replace(".", "").isdigit():
                    found.setdefault(name.lower().partition(".")[0], one.node)
    return found


def node_named(names: Mapping[str, str], host: str) -> str:
    """Return the inventory node that a host name belongs to; "" if no node matches."""
    lowered = host.lower()
    return names.get(lowered) or names.get(lowered.partition(".")[0]) or ""


def node_of_path(path: str, names: Mapping[str, str]) -> str:
    """Return the node with the longest name in the last part of the path that names a node: node1.log does not belong
    to node10."""
    for part in reversed(path.lower().split("/")):
        found = [one for one in names if one in part and re.search(rf"(?<![a-z0-9]){re.escape(one)}(?![a-z0-9])", part)]
        if found:
            return names[max(found, key=len)]
    return ""


def nodes_of_paths(paths: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the node of each log by its path. Without an inventory, files whose names differ only in a number, such as
    worker-0.log and worker-1.log, are logs of different nodes."""
    if names:
        return {path: node_of_path(path, names) for path in paths}
    stems = {path: path.rpartition("/")[2].partition(".")[0] for path in paths}
    forms = Counter(re.sub(r"\d+", "#", stem) for stem in set(stems.values()) if not stem.startswith("slurm"))
    return {path: stem if forms[re.sub(r"\d+", "#", stem)] > 1 else "" for path, stem in stems.items()}


def sorted_out(logs: Mapping[str, str], known: Iterable[Known]) -> ForeignLines:
    names = by_name(known)
    kept: dict[LineSource, KeptLines] = {}
    devices: dict[tuple[str, int], int] = {}
    numbers: dict[LineSource, int] = {}  # ranks of files whose names have only a local rank
    found = ForeignLines()
    nodes = nodes_of_paths(logs, names)
    for path, text in logs.items():
        fixed = source_of_path(path, nodes[path])
        for line, prefix in unwrapped(text, names):
            source = source_of(prefix, nodes[path], names) if prefix else LineSource(nodes[path])
            if "device" in prefix and source.kind == "pid":
                devices[source.node, source.number] = int(prefix["device"])
            if fixed.kind:
                if source.kind == "rank":
                    numbers.setdefault(fixed, source.number)
                source = fixed
            if source not in kept:
                if len(kept) > MOST_SOURCES:
                    source = LineSource(source.node)
                kept.setdefault(source, KeptLines())
            kept[source].add(line)
        found.backends |= {one for one in ("nccl", "gloo") if one in text or one.upper() in text}
    for source, rank in numbers.items():
        kept.setdefault(LineSource(source.node, "rank", rank), kept.pop(source, KeptLines()))
    assign(found, {source: one.lines for source, one in kept.items()}, devices, names)
    return found


def source_of_path(path: str, node: str) -> LineSource:
    folder, file = OF_FOLDER.search(path), OF_FILE.search(path)
    if folder:
        return LineSource(node, "local", int(folder["local"]))
    return LineSource(node, "rank", int(file["rank"])) if file else LineSource(node)


def source_of(prefix: Mapping[str, str], node: str, names: Mapping[str, str]) -> LineSource:
    host = prefix.get("host", "")
    where = node_named(names, host) or node
    if not where and "node_rank" in prefix:
        where = of_node_rank(int(prefix["node_rank"]))
    where = where or (host if is_host(host) else "")
    kind = next((one for one in ("rank", "local", "task", "pid") if one in prefix), "")
    return LineSource(where, kind, int(prefix[kind]) if kind else 0)


def assign(
    found: ForeignLines,
    kept: Mapping[LineSource, list[str]],
    devices: Mapping[tuple[str, int], int],
    names: Mapping[str, str],
) -> None:
    """Add the lines of each source to the rank, the process or the node that wrote them."""
    parsed = {source: arguments_in(lines) for source, lines in kept.items()}
    found.launched = any(
        launched or (source.kind in ("", "task", "pid") and SPOKEN.search("\n".join(kept[source])) is not None)
        for source, (_, launched) in parsed.items()
    )
    for (node, kind, number), lines in kept.items():
        for end in process_ends("\n".join(lines)) if kind in ("", "task", "pid") else ():
            here = node or (of_node_rank(number) if kind == "task" else end.host)
            found.ends.setdefault(node_named(names, end.host) or here, []).append(end)
    used = Counter((node, device) for (node, _), device in devices.items())
    for source, lines in kept.items():
        node, kind, number = source
        if kind == "task":  # of a rank, or of the launcher of a node
            node, kind = (node or of_node_rank(number), "") if found.launched else (node, "rank")
        elif kind == "pid":
            device = devices.get((node, number))
            by_device = None if device is None or used[node, device] > 1 else device
            kind, number = process_of(number, lines, found.ends.get(node, ()), by_device)
        for name, value in parsed[source][0].items():
            if kind in ("", "pid") or name == "world_size":
                found.told.setdefault(node, {}).setdefault(name, value)
        if kind == "rank":
            if node:
                found.places.setdefault(number, node)
            node = ""
        found.add(LineSource(node, kind, number if kind else 0), lines)


def process_of(pid: int, lines: Sequence[str], ends: Sequence[ProcessEnd], device: int | None) -> tuple[str, int]:
    """Return the kind and the number of a process: its rank by torchrun's summary or by NCCL, its local rank by
    torchrun or by its device, or else its process id."""
    end = next((one for one in ends if one.pid == pid), None)
    rank = rank_of_process(lines) if end is None or end.rank is None else end.rank
    if rank is not None:
        return "rank", rank
    if end is not None:
        return "local", end.local
    return ("pid", pid) if device is None else ("device", device)
