"""Builds a case from the logs of a launch that Muster did not start: files or folders written by a manual torchrun or
Slurm launch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..launch.launchers import OTHERS, TORCHRUN
from .arguments import is_host
from .case import UNNAMED
from .hand_typed import rank_end, running
from .launched import Gathered, shape_of
from .log_arguments import endpoint, number
from .log_lines import LineSource
from .log_places import participants, rank_of, size_of
from .log_processes import SPOKEN, blocks_of
from .log_sources import sorted_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .evidence import CaseShape, LaunchFacts, LaunchNode, NodeEnd, RankEnd
    from .log_sources import ForeignLines, Known

MEETING = re.compile(
    r"connect to \((?P<host>[\w.:-]+), (?P<port>\d{1,5})\)|listen on .{0,100} port: (?P<listen>\d{1,5}),"
)


def case_of_logs(logs: Mapping[str, str], known: Sequence[Known]) -> CaseShape:
    """Build a case from logs. logs: the text of each log, by path."""
    lines = sorted_out(logs, known)
    size = size_of(lines)
    planned = participants(lines, known, size)
    shared = {name: value for name, value in lines.told.get("", {}).items() if name != "node_rank"}
    told = {one["node"]: {**shared, **lines.told.get(one["node"], {})} for one in planned}
    host, port = meeting(lines, list(told.values()))
    launch: LaunchFacts = {
        "launch_id": "",
        "how": "log",
        "own": True,
        "live": False,
        "backend": next((one for one in ("nccl", "gloo") if one in lines.backends), ""),
        "launcher": TORCHRUN.name if lines.launched else OTHERS,
        "world_size": max(size.world, *(rank + 1 for one in planned for rank in one["ranks"]), 1),
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
    }
    names = dict.fromkeys((*told, *(source.node for source in lines.lines if not source.kind)))
    # A line of no known node keeps a place, because most causes need one.
    nodes = [node_end(node or UNNAMED, lines.lines.get(LineSource(node), ())) for node in names]
    shape = shape_of(launch, list(rank_ends(lines, planned)), nodes, Gathered())
    last = [line for text in logs.values() if (line := text.rstrip().rpartition("\n")[2])]
    return {**shape, "told": {node: options for node, options in told.items() if options}, "last": last}


def meeting(lines: ForeignLines, told: Sequence[Mapping[str, str]]) -> tuple[str, int]:
    """Return the address and the port of the rendezvous."""
    host, port = endpoint(told)
    for line in (line for said in lines.lines.values() for line in said):
        if (host and port) or not (match := MEETING.search(line) if " to (" in line or "port: " in line else None):
            continue
        if not host and match["host"] and is_host(match["host"]):
            host, port = match["host"], number(match["port"])
        port = port or number(match["listen"] or "")
    return host, port


def rank_ends(lines: ForeignLines, planned: Sequence[LaunchNode]) -> Iterator[RankEnd]:
    for one in planned:
        anywhere = (end for end in lines.ends.get("", ()) if end.rank is not None)
        ends = {rank_of(end, one["ranks"]): end for end in (*anywhere, *lines.ends.get(one["node"], ()))}
        for rank in one["ranks"]:
            local = rank - one["ranks"][0]  # NodeReport counts from the first rank
            end = ends.get(rank)
            said = "\n".join(lines.lines.get(LineSource("", "rank", rank), ()))
            code, at = (end.code, end.at or None) if end else (None, None)
            yield rank_end(rank, one["node"], local, code, at, said)


def node_end(node: str, said: Sequence[str]) -> NodeEnd:
    """Return how the launcher of a node ended. It has failed only if it printed an exception of its own."""
    log = "\n".join(said)
    own = any(by_launcher and is_traceback for by_launcher, is_traceback, _ in blocks_of(said))
    failed = SPOKEN.search(log) is not None and (own or "ChildFailedError" in log)
    return {**running(node), "reason": "exit" if failed else "", "code": 1 if failed else None, "log": log}
