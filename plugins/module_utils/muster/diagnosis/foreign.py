"""Builds a case from the logs of a launch that Muster did not start: files or folders written by a manual torchrun or
Slurm launch.

The source of a line is recognized by torch's hook (`[rank3]: `), torchrun's --tee (`[default3]:`), `srun -l` (`3: `),
pdsh and similar tools (`node2: `), torchrun's folders (attempt_0/3/stderr.log), a node name in the file name, or
torchrun's summary of hosts, ranks and exit codes. The source of other lines is unknown.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from .arguments import arguments, is_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .evidence import CaseShape, LaunchNode, NodeEnd, RankEnd

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
OF_RANK = re.compile(r"^\[rank(?P<rank>\d{1,6})\]:")
OF_LOCAL = re.compile(r"^\[(?:default|trainer|worker)_?(?P<local>\d{1,4})\]: ?")
OF_TASK = re.compile(r"^ {0,6}(?P<task>\d{1,6}): ")
OF_HOST = re.compile(r"^\[?(?P<host>[A-Za-z0-9][\w.-]{0,252})\]?(?:: | \| )")
OF_FOLDER = re.compile(r"attempt_\d+/(?P<local>\d{1,4})/(?:stderr|stdout)\.log$")
SUMMARY = re.compile(
    r"time\s*: (?P<time>[\d_:-]{19})\s+host\s*: (?P<host>\S+)\s+rank\s*: (?P<rank>\d{1,6})"
    r" \(local_rank: (?P<local>\d{1,4})\)\s+exitcode\s*: (?P<code>-?\d{1,4}) "
)
LAUNCHER = re.compile(r"(?:^|[\s/])(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\s+(?P<rest>.+)$")
EXPORT = re.compile(r"^\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>[^\s$`()]+)\s*$")
VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)\}?")
BATCH_NODES = re.compile(r"^#SBATCH\s+(?:--nodes[= ]|-N ?)(?P<count>\d{1,4})", re.MULTILINE)
CONFIGURED = re.compile(
    r"^.*?\b(?P<name>max_nodes|nproc_per_node|rdzv_endpoint|rdzv_backend|run_id)\s+: (?P<value>\S+)$"
)
OF_CONFIGURED = {"max_nodes": "nnodes", "run_id": "rdzv_id"}
WORLD = re.compile(r"world_size[=:] ?(?P<size>\d{1,6})\b|MEMBER: \d+/(?P<members>\d{1,6})")
MEETING = re.compile(r"connect to \(?(?P<host>[\w.:-]+?)(?:, |:)(?P<port>\d{1,5})\)?")
FAILED = re.compile(r"ChildFailedError|Traceback \(most recent call last\):|Rendezvous\w+Error")
UNNAMED = "a node not named in the log"
MOST_RANKS = 4096
LONGEST = 32_000  # last characters of the lines of one rank or launcher


class Known(NamedTuple):
    """A node of the inventory. names: the host names of the node."""

    node: str
    address: str
    names: tuple[str, ...] = ()


@dataclass
class ForeignLines:
    """Log lines by source. by_node: output of launchers by node, with "" for an unknown source. places: the nodes where
    the ranks ran."""

    by_rank: dict[int, list[str]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    by_local: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    by_node: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[int, tuple[str, int, int, float]] = field(default_factory=dict)  # host, local rank, code, time

    def add(self, node: str, text: str, *, tasks_are_ranks: bool) -> None:
        for line in text.splitlines():
            task = OF_TASK.match(line)
            said = line[task.end() :] if task else line
            where = node or (of_node_rank(int(task["task"])) if task and not tasks_are_ranks else "")
            rank, local = OF_RANK.match(said), OF_LOCAL.match(said)
            if rank:
                self.by_rank.setdefault(int(rank["rank"]), []).append(said)
                if node:
                    self.places[int(rank["rank"])] = node
            elif local:
                self.by_local.setdefault((where, int(local["local"])), []).append(said[local.end() :])
            elif task and tasks_are_ranks:
                self.by_rank.setdefault(int(task["task"]), []).append(said)
            else:
                self.by_node.setdefault(where, []).append(said)


def of_node_rank(number: int) -> str:
    """Return a name for a node of which only the node rank is known."""
    return f"node rank {number}"


def case_of_logs(logs: Mapping[str, str], known: Sequence[Known]) -> CaseShape:
    """Build a case from logs. logs: the text of each log, by path."""
    texts = {path: ANSI.sub("", text) for path, text in logs.items()}
    told = arguments_in(texts.values())
    names = by_name(known)
    lines = sorted_out(texts, names, tasks_are_ranks=not told)
    per_node = number(told.get("nproc_per_node", "")) or most_local(lines)
    world = world_size(texts.values(), told, per_node, lines)
    planned = participants(lines, names, known, per_node, world, told)
    host, port = meeting(texts.values(), told)
    return {
        "schema": 1,
        "launch": {
            "launch_id": "",
            "how": "log",
            "own": True,
            "live": False,
            "backend": next(
                (one for one in ("nccl", "gloo") if any(one in text.lower() for text in texts.values())), ""
            ),
            "launcher": "torchrun",
            "world_size": world,
            "master_addr": host,
            "master_port": port,
            "timeout": 0.0,
            "nodes": planned,
            "ending": "FAILED",
            "ending_text": "",
            "ending_node": "",
            "starting": False,
            "began": 0.0,
            "stop_began": 0.0,
        },
        "ranks": list(rank_ends(lines, planned)),
        "nodes": [node_end(node, said) for node, said in sorted(of_launchers(lines, planned).items())],
        "start": {},
        "end": {},
        "snapshots": {},
        "agents": {},
        "findings": [],
        "ran": {},
        "not_looked": {},
        "key": "",
    }


# ---------------------------------------------------------------- sources of lines


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
    """Return the inventory node that a host name belongs to; the host name itself if no node matches."""
    lowered = host.lower()
    return names.get(lowered) or names.get(lowered.partition(".")[0]) or host


def node_of_path(path: str, names: Mapping[str, str]) -> str:
    """Return the node with the longest name among the words of the path: node1.log does not belong to node10."""
    words = {
        word
        for part in path.lower().split("/")
        for word in (part, *re.split(r"[^\w.-]+|_|\.(?:log|out|err|txt)$", part))
    }
    found = sorted((name for name in names if name in words), key=len)
    return names[found[-1]] if found else ""


def sorted_out(texts: Mapping[str, str], names: Mapping[str, str], *, tasks_are_ranks: bool) -> ForeignLines:
    lines = ForeignLines()
    for path, text in texts.items():
        node, folder = node_of_path(path, names), OF_FOLDER.search(path)
        if folder:
            lines.by_local.setdefault((node, int(folder["local"])), []).extend(text.splitlines())
            continue
        for host, part in by_host(text, names):
            lines.add(host or node, part, tasks_are_ranks=tasks_are_ranks)
        for match in SUMMARY.finditer(without_prefixes(text)):
            at = seconds(match["time"])
            host = match["host"] if is_host(match["host"]) else ""
            lines.ends[int(match["rank"])] = (host, int(match["local"]), int(match["code"]), at)
    return lines


def by_host(text: str, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Group the lines of a log by the inventory nodes that are named at the beginning of the lines."""
    parts: dict[str, list[str]] = {}
    for line in text.splitlines():
        host = OF_HOST.match(line)
        node = names.get(host["host"].lower(), "") if host and not host["host"].isdigit() else ""
        parts.setdefault(node, []).append(line[host.end() :] if host and node else line)
    return ((node, "\n".join(lines)) for node, lines in parts.items())


def without_prefixes(text: str) -> str:
    return "\n".join(OF_LOCAL.sub("", OF_TASK.sub("", line)) for line in text.splitlines())


def seconds(text: str) -> float:
    """Parse an exit time printed by torchrun. Its time zone is unknown, but only exits of the same launch are compared
    with each other."""
    try:
        return datetime.strptime(text, "%Y-%m-%d_%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return 0.0


# ---------------------------------------------------------------- arguments of the launch


def arguments_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the launch arguments found in torchrun commands, in batch scripts and in the settings that torchrun
    logged."""
    found: dict[str, str] = {}
    for text in texts:
        joined = re.sub(r"\\\n\s*", " ", text)
        variables = {match["name"]: match["value"] for line in joined.splitlines() if (match := EXPORT.match(line))}
        for line in joined.splitlines():
            command, configured = LAUNCHER.search(line), CONFIGURED.match(line)
            if command:
                options = arguments(words_of(command["rest"], variables))
                found.update({name: value for name, value in options.items() if value and "$" not in value})
            elif configured:
                found.setdefault(OF_CONFIGURED.get(configured["name"], configured["name"]), configured["value"])
        nodes = BATCH_NODES.search(text)
        if nodes:
            found.setdefault("nnodes", nodes["count"])
    return found


def words_of(command: str, variables: Mapping[str, str]) -> list[str]:
    filled = VARIABLE.sub(lambda match: variables.get(match["name"], match[0]), command)
    try:
        return shlex.split(filled)
    except ValueError:  # an unclosed quotation mark in a truncated log
        return filled.split()


def number(text: str) -> int:
    last = text.rpartition(":")[2]  # --nnodes=1:3
    return int(last) if last.isdigit() and len(last) < 6 else 0


def most_local(lines: ForeignLines) -> int:
    return max((local + 1 for _, local in lines.by_local), default=0)


def world_size(texts: Iterable[str], told: Mapping[str, str], per_node: int, lines: ForeignLines) -> int:
    said = [int(match["size"] or match["members"]) for text in texts for match in WORLD.finditer(text)]
    seen = max((rank + 1 for rank in (*lines.by_rank, *lines.ends)), default=0)
    seen = max(seen, len({node for node, _ in lines.by_local}) * per_node)
    return min(MOST_RANKS, max(number(told.get("nnodes", "")) * per_node, *said[:1], seen, 1))


def meeting(texts: Iterable[str], told: Mapping[str, str]) -> tuple[str, int]:
    """Return the address and the port of the rendezvous."""
    host, _, port = told.get("rdzv_endpoint", "").partition(":")
    if not is_host(host):
        host, port = told.get("master_addr", ""), told.get("master_port", "")
    if not is_host(host):
        match = next((found for text in texts if (found := MEETING.search(text))), None)
        host, port = (match["host"], match["port"]) if match else ("", port)
    return host if is_host(host) else "", number(port)


# ---------------------------------------------------------------- nodes of ranks


def participants(
    lines: ForeignLines,
    names: Mapping[str, str],
    known: Sequence[Known],
    per_node: int,
    world: int,
    told: Mapping[str, str],
) -> list[LaunchNode]:
    """Return the nodes by the names in the logs, or by node rank if the logs contain no name.

    A rank is assigned to a node by its lines or by torchrun's summary. The number of ranks per node is used only if a
    log contains it.
    """
    addresses = {one.node: one.address for one in known}
    seen = {**lines.places, **{rank: node_named(names, one[0]) for rank, one in lines.ends.items() if one[0]}}
    spoken = dict.fromkeys((*lines.by_node, *(node for node, _ in lines.by_local)))
    unplaced = [one.node for one in known if one.node in spoken and one.node not in seen.values()]
    count = max(number(told.get("nnodes", "")), -(-world // per_node) if per_node else 0)
    ranks: dict[str, list[int]] = {}
    for node_rank in range(min(count, MOST_RANKS)):
        there = range(node_rank * per_node, min(world, (node_rank + 1) * per_node))
        node = next((seen[rank] for rank in there if rank in seen), "")
        ranks[node or (unplaced.pop(0) if unplaced else of_node_rank(node_rank))] = []
    by_rank = list(ranks)
    for rank in range(world):
        usual = by_rank[rank // per_node] if per_node and rank // per_node < len(by_rank) else UNNAMED
        ranks.setdefault(seen.get(rank, usual), []).append(rank)
    ranks.update({node: [] for node in unplaced})
    return [
        {"node": node, "address": addresses.get(node, ""), "interface": "", "node_rank": number, "ranks": there}
        for number, (node, there) in enumerate(ranks.items())
    ]


def rank_ends(lines: ForeignLines, planned: Sequence[LaunchNode]) -> Iterator[RankEnd]:
    for one in planned:
        for rank in one["ranks"]:
            local = rank - one["ranks"][0]
            _, _, code, at = lines.ends.get(rank, ("", 0, None, 0.0))
            called = (one["node"], of_node_rank(one["node_rank"]), *([""] if len(planned) == 1 else []))
            said = [line for name in dict.fromkeys(called) for line in lines.by_local.get((name, local), ())]
            said += lines.by_rank.get(rank, ())
            yield {
                "rank": rank,
                "node": one["node"],
                "local_rank": local,
                "code": code,
                "gone_at": at or None,
                "stderr": "\n".join(said)[-LONGEST:],
                "error": "",
            }


def of_launchers(lines: ForeignLines, planned: Sequence[LaunchNode]) -> dict[str, str]:
    """Return the launcher output by node. If there is only one node, lines without a source belong to it."""
    called = {of_node_rank(one["node_rank"]): one["node"] for one in planned}
    if len(planned) == 1:
        called[""] = planned[0]["node"]
    found: dict[str, list[str]] = {one["node"]: [] for one in planned}
    for node, said in lines.by_node.items():
        found.setdefault(called.get(node, node), []).extend(said)
    return {node: "\n".join(said)[-LONGEST:] for node, said in found.items()}


def node_end(node: str, log: str) -> NodeEnd:
    failed = FAILED.search(log) is not None
    return {
        "node": node,
        "reached": True,
        "lost": False,
        "lost_why": "",
        "last_answer": 0.0,
        "reason": "exit" if failed else "",
        "code": 1 if failed else None,
        "error": "",
        "result": "",
        "ended_at": 0.0,
        "log": log,
    }
