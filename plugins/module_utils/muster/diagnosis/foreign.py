"""Builds a case from the logs of a launch that Muster did not start: files or folders written by a manual torchrun or
Slurm launch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..launch.launchers import OTHERS, TORCHRUN
from .arguments import is_host
from .log_arguments import endpoint, number
from .log_places import participants, rank_of, size_of
from .log_processes import SPOKEN, blocks_of
from .log_sources import sorted_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .evidence import CaseShape, LaunchNode, NodeEnd, RankEnd
    from .log_sources import ForeignLines, Known

MEETING = re.compile(r"connect to \((?P<host>[\w.:-]+), (?P<port>\d{1,5})\)|listen on .* port: (?P<listen>\d{1,5}),")


def case_of_logs(logs: Mapping[str, str], known: Sequence[Known]) -> CaseShape:
    """Build a case from logs. logs: the text of each log, by path."""
    lines = sorted_out(logs, known)
    size = size_of(lines)
    planned = participants(lines, known, size)
    shared = {name: value for name, value in lines.told.get("", {}).items() if name != "node_rank"}
    told = {one["node"]: {**shared, **lines.told.get(one["node"], {})} for one in planned}
    host, port = meeting(lines, list(told.values()))
    return {
        "schema": 1,
        "launch": {
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
        },
        "ranks": list(rank_ends(lines, planned)),
        "nodes": [
            node_end(node, lines.by_node.get(node, ()))
            for node in dict.fromkeys((*(one["node"] for one in planned), *sorted(lines.by_node)))
        ],
        "start": {},
        "end": {},
        "snapshots": {},
        "agents": {},
        "findings": [],
        "ran": {},
        "not_looked": {},
        "key": "",
        "told": {node: options for node, options in told.items() if options},
    }


def meeting(lines: ForeignLines, told: Sequence[Mapping[str, str]]) -> tuple[str, int]:
    """Return the address and the port of the rendezvous."""
    host, port = endpoint(told)
    for line in lines.all_lines:
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
            said = [*lines.by_local.get((one["node"], local), ()), *lines.by_rank.get(rank, ())]
            yield {
                "rank": rank,
                "node": one["node"],
                "local_rank": local,
                "code": end.code if end else None,
                "gone_at": end.at or None if end else None,
                "stderr": "\n".join(said),
                "error": "",
            }


def node_end(node: str, said: Sequence[str]) -> NodeEnd:
    """Return how the launcher of a node ended. It has failed only if it printed an exception of its own."""
    log = "\n".join(said)
    own = any(by_launcher and is_traceback for by_launcher, is_traceback, _ in blocks_of(said))
    failed = SPOKEN.search(log) is not None and (own or "ChildFailedError" in log)
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
