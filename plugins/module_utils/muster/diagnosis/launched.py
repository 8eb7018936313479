"""Builds the case of a launch that Muster supervised, from its record and the evidence of its nodes.

Times in reports are on the controller's monotonic clock, times in a case are on its wall clock; `epoch` is the
difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..launch import launchers
from ..launch.agent_log import exit_codes
from ..launch.endings import Ending
from ..launch.failure import NodeReport, first_failure
from ..launch.outcome import LaunchRecord
from ..launch.tracebacks import recorded_traceback
from ..launch.watch import Decision

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..launch.planned import LaunchPlan, PlannedNode
    from ..verdict.finding import FindingShape
    from .evidence import Agent, CaseShape, LaunchFacts, LaunchNode, NodeEnd, NodeRecord, RankEnd, Snapshot

SCHEMA = 1
MOST_TEXT = 4_000_000  # characters of all last output together
LONGEST_TEXT = 32_000  # of one rank or launcher
SHORTEST_TEXT = 2_000
MOST_INVOLVED = 16  # nodes checked after the failure: each probes every other


@dataclass
class Gathered:
    """Records of nodes, and results of checks after the failure. CaseShape describes the fields. key: the key of the
    digests."""

    start: dict[str, NodeRecord] = field(default_factory=dict)
    end: dict[str, NodeRecord] = field(default_factory=dict)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    agents: dict[str, list[Agent]] = field(default_factory=dict)
    findings: list[FindingShape] = field(default_factory=list)
    ran: dict[str, list[str]] = field(default_factory=dict)
    not_looked: dict[str, str] = field(default_factory=dict)
    boots: dict[str, str] = field(default_factory=dict)
    paths: dict[str, dict[str, str]] = field(default_factory=dict)
    key: str = ""


def case_shape(record: LaunchRecord, gathered: Gathered, epoch: float, timeout: float, *, live: bool) -> CaseShape:
    """Build the case of a launch. timeout: of the rendezvous, in seconds. live: whether the launch was still running
    when the evidence was gathered."""
    world = max(1, record.plan.world_size)
    longest = max(SHORTEST_TEXT, min(LONGEST_TEXT, MOST_TEXT // (world + len(record.reports))))
    ranks = [one for report in record.reports for one in ranks_of(record.plan, report, epoch, longest)]
    nodes = [node_end(report, epoch, longest) for report in record.reports]
    return shape_of(facts(record, epoch, timeout, live=live), ranks, nodes, gathered)


def shape_of(launch: LaunchFacts, ranks: list[RankEnd], nodes: list[NodeEnd], gathered: Gathered) -> CaseShape:
    return {
        "schema": SCHEMA,
        "launch": launch,
        "ranks": ranks,
        "nodes": nodes,
        "start": gathered.start,
        "end": gathered.end,
        "snapshots": gathered.snapshots,
        "agents": gathered.agents,
        "findings": gathered.findings,
        "ran": gathered.ran,
        "not_looked": gathered.not_looked,
        "boots": gathered.boots,
        "paths": gathered.paths,
        "key": gathered.key,
    }


def facts(record: LaunchRecord, epoch: float, timeout: float, *, live: bool) -> LaunchFacts:
    plan, decision = record.plan, record.decision
    return {
        "launch_id": plan.launch_id,
        "how": "muster",
        "own": plan.is_own,
        "live": live,
        "backend": plan.backend,
        "launcher": plan.launcher,
        "world_size": plan.world_size,
        "master_addr": plan.master_addr,
        "master_port": plan.master_port,
        "timeout": timeout,
        "nodes": [planned(entry) for entry in plan.nodes],
        "ending": decision.ending.name if decision else "",
        "ending_text": decision.text if decision else "",
        "ending_node": decision.node if decision else "",
        "starting": decision is not None and decision.starting,
        "began": wall(record.began, epoch),
        "stop_began": wall(record.stop_began, epoch),
    }


def planned(entry: PlannedNode) -> LaunchNode:
    return {
        "node": entry.node,
        "address": entry.address,
        "interface": entry.interface or "",
        "node_rank": entry.node_rank,
        "ranks": list(entry.ranks),
    }


def wall(at: float, epoch: float) -> float:
    return epoch + at if at else 0.0


def ranks_of(plan: LaunchPlan, report: NodeReport, epoch: float, longest: int) -> Iterator[RankEnd]:
    codes = {**exit_codes(report.agent_log), **report.codes}
    gone = {rank["local_rank"]: rank.get("gone_at") for rank in report.ranks}
    entry = next(one for one in plan.nodes if one.node == report.node)
    for local, rank in enumerate(entry.ranks):
        at = gone.get(local)
        yield {
            "rank": rank,
            "node": report.node,
            "local_rank": local,
            "code": codes.get(local),
            "gone_at": epoch + report.controller_time(at) if at else None,
            "stderr": report.said_by(local)[-longest:],
            "error": recorded_traceback(report.errors.get(str(local)))[-longest:],
        }


def node_end(report: NodeReport, epoch: float, longest: int) -> NodeEnd:
    ended = report.ended or {}
    at = ended.get("ended_at")
    code = ended.get("code")
    killed = None if report.unit.signal is None else -report.unit.signal  # a killed process cannot write its exit code
    return {
        "node": report.node,
        "reached": report.reached,
        "lost": report.lost,
        "lost_why": report.lost_why,
        "last_answer": wall(report.last_answer, epoch),
        "reason": str(ended.get("reason", "")),
        "code": code if isinstance(code, int) else killed,
        "error": str(ended.get("error", "")),
        "result": report.unit.result,
        "ended_at": epoch + report.controller_time(at) if at else 0.0,
        "log": report.agent_log[-longest:],
    }


# ---------------------------------------------------------------- launches with only a plan and logs


def from_logs(
    plan: LaunchPlan, logs: Mapping[str, Mapping[str, str]], said: str, lost: Mapping[str, str]
) -> LaunchRecord:
    """Return the record of a launch that is still running, or that this controller did not supervise until its end.

    logs: the end of each log, by node and name ("agent", "LOCAL_RANK/stderr"). said: the outcome of the launch, if
    known. lost: nodes that do not respond, and why.
    """
    reports = []
    for entry in plan.nodes:
        name = entry.node
        known = logs.get(name, {})
        report = NodeReport(
            name,
            lost=name in lost,
            lost_why=lost.get(name, ""),
            first_rank=entry.ranks[0],
            launcher=launchers.spoken(plan.launcher),
            agent_log=known.get("agent", ""),
            stderr={key.partition("/")[0]: text for key, text in known.items() if key.endswith("/stderr")},
        )
        reports.append(report)
    return LaunchRecord(plan, Decision(Ending.FAILED, said) if said else None, reports=reports)


# ---------------------------------------------------------------- nodes checked after the failure


def involved(record: LaunchRecord) -> list[str]:
    """Return the nodes to check after the failure, in plan order. For a small launch, these are all nodes; for a large
    one, the head node, the lost nodes and the nodes that failed first."""
    names = record.plan.names
    first, others = first_failure(record.reports, record.stop_began)
    failed = [one.node for one in ([first, *others] if first else others)]
    silent = [report.node for report in record.reports if report.lost or not report.ranks]
    chosen = list(dict.fromkeys([names[0], *failed[:1], *silent, *failed, *names]))[:MOST_INVOLVED]
    return [name for name in names if name in chosen]
