"""A case out of a launch that Muster has not begun, and that runs now: from the launchers that were found on nodes.

What somebody typed may differ from node to node: a head node, numbers and ports are what most of them were told, and
the differences stay in `agents`, where causes look for them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..launch.launchers import TORCHRUN
from .arguments import arguments
from .launched import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..launch.plan import NodeSpec
    from .evidence import Agent, CaseShape, LaunchNode, NodeEnd, RankEnd
    from .launched import Gathered

MUSTERS = "muster-launch-"  # the beginning of the units of its launches
PORT = 29500  # torchrun's own
LATEST = 60.0  # seconds between the start of the first launcher and that of the last one of the same launch


class Typed(NamedTuple):
    """One node's launcher, with what it was told."""

    node: str
    agent: Agent
    told: dict[str, str]

    @property
    def head(self) -> tuple[str, int]:
        """Address and port of the head node; as far as it was told."""
        address, _, port = self.told.get("rdzv_endpoint", "").rpartition(":")
        address = self.told.get("master_addr") or address
        return address.strip("[]"), number(self.told.get("master_port") or port) or PORT

    @property
    def place(self) -> int:
        known = number(self.told.get("node_rank", ""))
        first = min((shot["rank"] for shot in self.agent["ranks"]), default=0)
        return first if known is None else known

    @property
    def nproc(self) -> int:
        return number(self.told.get("nproc_per_node", "")) or len(self.agent["ranks"]) or 1


def musters(agents: Mapping[str, Sequence[Agent]]) -> list[str]:
    """The ids of Muster's own launches among them."""
    units = (agent["unit"] for all_of in agents.values() for agent in all_of)
    found = (unit.removeprefix(MUSTERS).removesuffix(".service") for unit in units if unit.startswith(MUSTERS))
    return list(dict.fromkeys(found))


def one_launch(agents: Mapping[str, Sequence[Agent]]) -> list[Typed]:
    """Of those that others have begun, the launchers of the launch that has most of them, by node rank."""
    typed = [
        Typed(node, agent, arguments(agent["argv"]))
        for node, all_of in agents.items()
        for agent in all_of
        if not agent["unit"].startswith(MUSTERS)
    ]
    users = Counter(one.agent["user"] for one in typed)
    if not users:
        return []
    user = users.most_common(1)[0][0]
    theirs = sorted((one for one in typed if one.agent["user"] == user), key=lambda one: -one.agent["started"])
    # The newest of each node, of those that began together: an older one is another launch.
    newest = {one.node: one for one in reversed(theirs) if one.agent["started"] > theirs[0].agent["started"] - LATEST}
    return sorted(newest.values(), key=lambda one: one.place)


def case_shape(typed: Sequence[Typed], nodes: Mapping[str, NodeSpec], gathered: Gathered) -> CaseShape:
    address, port = most(one.head for one in typed)
    planned = [planned_as(one, nodes[one.node]) for one in typed]
    expected = [number(one.told.get("nnodes", "").rpartition(":")[2]) or len(typed) for one in typed]
    return {
        "schema": SCHEMA,
        "launch": {
            "launch_id": "",
            "how": "foreign",
            "own": False,
            "live": True,
            "backend": "",
            "launcher": TORCHRUN.name,
            "world_size": max(expected) * typed[0].nproc,
            "master_addr": address or planned[0]["address"],
            "master_port": port,
            "timeout": 0.0,
            "nodes": planned,
            "ending": "",
            "ending_text": "it runs, and was not begun by Muster",
            "ending_node": "",
            "began": min(one.agent["started"] for one in typed),
            "stop_began": 0.0,
        },
        "ranks": [one for each in planned for one in silent_ranks(each)],
        "nodes": [running(one.node) for one in typed],
        "start": gathered.start,
        "end": gathered.end,
        "snapshots": gathered.snapshots,
        "agents": {one.node: [one.agent] for one in typed},
        "findings": gathered.findings,
        "ran": gathered.ran,
        "not_looked": gathered.not_looked,
        "key": gathered.key,
    }


def planned_as(one: Typed, spec: NodeSpec) -> LaunchNode:
    known = sorted(shot["rank"] for shot in one.agent["ranks"])
    return {
        "node": one.node,
        "address": spec.address,
        "interface": spec.interface,
        "node_rank": one.place,
        "ranks": known or list(range(one.place * one.nproc, (one.place + 1) * one.nproc)),
    }


def silent_ranks(planned: LaunchNode) -> Iterable[RankEnd]:
    for local, rank in enumerate(planned["ranks"]):
        yield {
            "rank": rank,
            "node": planned["node"],
            "local_rank": local,
            "code": None,
            "gone_at": None,
            "stderr": "",
            "error": "",
        }


def running(node: str) -> NodeEnd:
    return {
        "node": node,
        "reached": True,
        "lost": False,
        "lost_why": "",
        "last_answer": 0.0,
        "reason": "",
        "code": None,
        "error": "",
        "result": "",
        "ended_at": 0.0,
        "log": "",
    }


def most(heads: Iterable[tuple[str, int]]) -> tuple[str, int]:
    return Counter(heads).most_common(1)[0][0]


def number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 7 else None  # no port or count is longer
