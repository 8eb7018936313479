"""The evidence of one launch, with functions that look up what the causes need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from ..launch import launchers
from ..launch.failure import NodeReport, first_failure
from ..launch.unit import UnitEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..launch.failure import Failure
    from ..verdict.finding import FindingShape
    from .evidence import CaseShape, Flight, LaunchFacts, LaunchNode, NodeEnd, NodeRecord, RankEnd, RankShot, Text

FOUND = ("fail", "warn")
UNNAMED = "a node not named in the log"
# Lines of the head node, whose store waits for the others, and of the nodes that connect to the head node.
WAITS = re.compile(r"waiting for clients|clients joined")
CALLS = re.compile(r"client socket has (?:timed out|failed)|connection to the C10d store has failed|host not found: ")
Found = TypeVar("Found")


def once(of: Callable[[LaunchCase], Found]) -> Callable[[LaunchCase], Found]:
    """Cache the result of a function for each case. Without the cache, the function would run again for every rank,
    which would take minutes with hundreds of ranks."""

    @wraps(of)
    def known(case: LaunchCase) -> Found:
        if of not in case.worked_out:
            case.worked_out[of] = of(case)
        found: Found = case.worked_out[of]
        return found

    return known


@dataclass(frozen=True)
class LaunchCase:
    """A launch to diagnose. seen: the evidence. texts: known error lines defined by the site, in addition to the
    built-in ones."""

    seen: CaseShape
    texts: tuple[Text, ...] = ()

    @cached_property
    def worked_out(self) -> dict[Any, Any]:
        """Results cached by `once`, by function."""
        return {}

    @property
    def launch(self) -> LaunchFacts:
        return self.seen["launch"]

    @cached_property
    def nodes(self) -> list[str]:
        """Return the participating nodes. A node that a log does not name is left out, unless it is the only one."""
        names = [one["node"] for one in self.launch["nodes"]]
        return [one for one in names if one != UNNAMED] or names

    @cached_property
    def head(self) -> str:
        """Return the head node; "" if a log does not show which node it is."""
        if not self.is_only_a_log:
            return self.nodes[0] if self.nodes else ""
        waits = [name for name in self.nodes if WAITS.search(self.output_of(name))]
        known = self.node_at(self.launch["master_addr"]) or next(iter(waits), "")
        first = self.launch["nodes"][0]["node"] if self.launch["nodes"] else ""
        return known or ("" if first == UNNAMED or CALLS.search(self.output_of(first)) else first)

    def output_of(self, node: str) -> str:
        end = self.node_ends.get(node)
        ranks = (one["stderr"] for one in self.seen["ranks"] if one["node"] == node)
        return "\n".join([end["log"] if end else "", *ranks])

    @cached_property
    def planned(self) -> dict[str, LaunchNode]:
        return {one["node"]: one for one in self.launch["nodes"]}

    @cached_property
    def node_ends(self) -> dict[str, NodeEnd]:
        return {one["node"]: one for one in self.seen["nodes"]}

    @cached_property
    def rank_ends(self) -> dict[int, RankEnd]:
        return {one["rank"]: one for one in self.seen["ranks"]}

    @cached_property
    def shots(self) -> dict[int, tuple[str, RankShot]]:
        """Return (node, snapshot) by rank. The snapshots were taken before the launch was stopped."""
        found = {shot["rank"]: (name, shot) for name, one in self.seen["snapshots"].items() for shot in one["ranks"]}
        agents = ((name, agent) for name, all_of in self.seen["agents"].items() for agent in all_of)
        return {**{shot["rank"]: (name, shot) for name, agent in agents for shot in agent["ranks"]}, **found}

    @cached_property
    def flights(self) -> dict[int, Flight]:
        """Return the contents of torch's flight recorders by rank, including ranks that had ended."""
        looks = [*self.seen["end"].values(), *self.seen["snapshots"].values()]
        # Evidence of earlier releases has no `left`.
        left = {one["rank"]: one["flight"] for look in looks for one in look.get("left", [])}
        return {**left, **{rank: shot["flight"] for rank, (_, shot) in self.shots.items() if shot["flight"]}}

    def node_of(self, rank: int) -> str:
        return next((one["node"] for one in self.launch["nodes"] if rank in one["ranks"]), "")

    def ranks_of(self, node: str) -> list[int]:
        return self.planned[node]["ranks"] if node in self.planned else []

    def node_at(self, address: str) -> str:
        """Return the participating node that has this address or name; "" if no node has it."""
        for one in self.launch["nodes"]:
            known = {one["address"], one["node"]}
            record = self.record(one["node"])
            if record:
                known |= {record["hostname"], *(each for i in record["interfaces"].values() for each in i["addresses"])}
            if address in known:
                return one["node"]
        return ""

    @property
    def is_only_a_log(self) -> bool:
        """Return whether the evidence consists only of logs, because no node was checked."""
        looked = (self.seen[part] for part in ("start", "end", "snapshots", "agents", "ran"))
        return self.launch["how"] == "log" and not any(looked)

    def is_in_the_inventory(self, node: str) -> bool:
        """Return whether a node is in the inventory. A log can name any host, but only the addresses of inventory nodes
        are known."""
        known = self.planned.get(node)
        return known is not None and (self.launch["how"] != "log" or bool(known["address"]))

    @property
    def has_inventory(self) -> bool:
        """Return whether the launch has nodes that Ansible can reach; a log alone has none."""
        return self.launch["how"] != "log" or any(one["address"] for one in self.launch["nodes"])

    # ------------------------------------------------------------ records

    def record(self, node: str) -> NodeRecord | None:
        """Return the newest record of a node."""
        return self.seen["end"].get(node) or self.seen["start"].get(node)

    def both(self, node: str) -> tuple[NodeRecord, NodeRecord] | None:
        start, end = self.seen["start"].get(node), self.seen["end"].get(node)
        return (start, end) if start and end else None

    def grown(self, node: str, count: Callable[[NodeRecord], int | None]) -> int | None:
        """Return how much a counter increased during the launch; None if the counter is not in both records or the node
        was rebooted in between."""
        pair = self.both(node)
        if pair is None or pair[0]["boot_id"] != pair[1]["boot_id"]:
            return None
        before, after = count(pair[0]), count(pair[1])
        return None if before is None or after is None else after - before

    def why_not(self, node: str, what: str) -> str:
        """Return why the node's record at the end of the launch does not contain a part."""
        record = self.seen["end"].get(node)
        if record is not None:
            return record["unseen"].get(what, f"{what} was not checked on {node}")
        return self.seen["not_looked"].get(node, f"{node} was not checked after the failure")

    # ------------------------------------------------------------ results of probes

    def findings(self, check: str, node: str = "", peer: str = "") -> Iterator[FindingShape]:
        """Yield the failed checks of a node or, if two nodes are given, of the link between the nodes in either
        direction."""
        for found in self.seen["findings"]:
            ends = {found["node"], found.get("peer", "")}
            if found["id"] == check and found["status"] in FOUND and {node, peer} - {""} <= ends:
                yield found

    def looked_for(self, check: str, node: str) -> bool:
        return any(check == one or check.startswith(f"{one}.") for one in self.seen["ran"].get(node, ()))

    # ------------------------------------------------------------ the end of the launch

    @cached_property
    def reports(self) -> list[NodeReport]:
        """Convert the ends of all nodes to the reports that launch/failure.py reads."""
        found = []
        launcher = launchers.spoken(self.launch["launcher"])
        for name in self.nodes:
            end = self.node_ends.get(name)
            if end is None:
                continue
            ranks = [one for one in self.seen["ranks"] if one["node"] == name]
            report = NodeReport(
                name,
                reached=end["reached"],
                lost=end["lost"],
                lost_why=end["lost_why"],
                last_answer=end["last_answer"],
                unit=UnitEnd(end["result"], status=max(0, -(end["code"] or 0))),
                first_rank=min(self.ranks_of(name), default=0),
                agent_log=end["log"],
                launcher=launcher,
                errors={str(one["local_rank"]): {"message": one["error"]} for one in ranks if one["error"]},
                codes={one["local_rank"]: one["code"] for one in ranks if one["code"] is not None},
                stderr={str(one["local_rank"]): one["stderr"] for one in ranks if one["stderr"]},
            )
            if end["reason"]:
                report.ended = {"reason": end["reason"], "ended_at": end["ended_at"], "error": end["error"]}
                if end["code"] is not None:
                    report.ended["code"] = end["code"]
            report.ranks = [
                {"rank": one["rank"], "local_rank": one["local_rank"], "pid": 0, "gone_at": one["gone_at"]}
                for one in ranks
            ]
            found.append(report)
        return found

    @cached_property
    def failures(self) -> tuple[Failure | None, list[Failure]]:
        """Return (first, others): the first failure that is not a consequence of another one, and the other failures by
        time. Failures are found in exits and in last output."""
        return first_failure(self.reports, self.launch["stop_began"] or float("inf"))

    @property
    def all_failures(self) -> list[Failure]:
        first, others = self.failures
        return [first, *others] if first else []
