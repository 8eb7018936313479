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
    from collections.abc import Iterable, Iterator, Mapping

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
    """Log lines by source. by_node: output of launchers by node, with "" for an unknown source. by_pid: lines of
    processes that are no launcher, by node and process id. places: the nodes where the ranks ran. ends: how processes
    ended, by node. told: launch arguments by node, with "" for all nodes. backends: named in the logs."""

    by_rank: dict[int, list[str]] = field(default_factory=dict)
    by_local: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    by_pid: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    by_node: dict[str, list[str]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    ends: dict[str, list[ProcessEnd]] = field(default_factory=dict)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    launched: bool = False
    backends: set[str] = field(default_factory=set)

    @property
    def all_lines(self) -> Iterator[str]:
        for parts in (self.by_rank, self.by_local, self.by_pid, self.by_node):
            for lines in parts.values():
                yield from lines

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that the logs name, in the order of their appearance."""
        named = (*self.by_node, *(node for node, _ in (*self.by_local, *self.by_pid)), *self.ends, *self.told)
        return [node for node in dict.fromkeys(named) if node]


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
    """Return the node with the longest name among the words of the path: node1.log does not belong to node10."""
    words = {
        word
        for part in path.lower().split("/")
        for word in (part, *re.split(r"[^\w.-]+|_|\.(?:log|out|err|txt)\b.*$", part))
    }
    found = sorted((name for name in names if name in words), key=len)
    return names[found[-1]] if found else ""


def nodes_of_paths(paths: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the node of each log by its path. Without an inventory, files whose names differ only in a number, such as
    worker-0.log and worker-1.log, are logs of different nodes."""
    found = {path: node_of_path(path, names) for path in paths}
    if names:
        return found
    stems = {path: path.rpartition("/")[2].partition(".")[0] for path in paths}
    alike: dict[str, set[str]] = {}
    for stem in stems.values():
        alike.setdefault(re.sub(r"\d+", "#", stem), set()).add(stem)
    of_nodes = {stem for form, them in alike.items() if len(them) > 1 and not form.startswith("slurm") for stem in them}
    return {path: stem if stem in of_nodes and is_host(stem) else "" for path, stem in stems.items()}


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
    sources = {source: real_source(source, tasks_are_ranks=not found.launched) for source in kept}
    for source, lines in kept.items():
        node, kind, _ = sources[source]
        if kind in ("", "pid"):
            for one in process_ends("\n".join(lines)):
                found.ends.setdefault(node_named(names, one.host) or node or one.host, []).append(one)
    several = shared_devices(devices)
    for source, lines in kept.items():
        node, kind, number = sources[source]
        if kind == "pid":
            end = next((one for one in found.ends.get(node, ()) if one.pid == number), None)
            rank = rank_of_process(lines) if end is None or end.rank is None else end.rank
            if rank is not None:
                kind, number = "rank", rank
            elif end is not None or ((node, number) in devices and node not in several):
                kind, number = "local", devices[node, number] if end is None else end.local
        if kind == "rank" and node:
            found.places.setdefault(number, node)
        where = found.places.get(number, "") if kind == "rank" else node
        told = {name: value for name, value in parsed[source][0].items() if kind in ("", "pid") or name == "world_size"}
        for name, value in told.items():
            found.told.setdefault(where, {}).setdefault(name, value)
        match kind:
            case "rank":
                found.by_rank.setdefault(number, []).extend(lines)
            case "local":
                found.by_local.setdefault((node, number), []).extend(lines)
            case "pid":
                found.by_pid.setdefault((node, number), []).extend(lines)
            case _:
                found.by_node.setdefault(node, []).extend(lines)


def real_source(source: LineSource, *, tasks_are_ranks: bool) -> LineSource:
    """Return the rank or the node that a task number of srun or mpirun stands for."""
    if source.kind != "task":
        return source
    if tasks_are_ranks:
        return source._replace(kind="rank")
    return LineSource(source.node or of_node_rank(source.number))


def shared_devices(devices: Mapping[tuple[str, int], int]) -> set[str]:
    """Return the nodes on which several processes use the same device number, which is then no local rank."""
    used = Counter((node, device) for (node, _), device in devices.items())
    return {node for (node, _), processes in used.items() if processes > 1}
