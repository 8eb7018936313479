"""Build the verdict of a launch from its plan, the reason why it ended, and the report of every node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict import processes
from ..verdict.check import Check
from ..verdict.commands import on_node, playbook
from ..verdict.finding import Finding, add_up, as_lines, evidence, extended, with_fix
from ..verdict.words import few, plural
from . import fetched, launchers, standstill
from .endings import Ending, never
from .failure import Failure, NodeReport, first_failure
from .occupied import describe_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..verdict.finding import Verdict
    from .fetched import Fetched
    from .messages import ProcessFacts
    from .planned import LaunchPlan
    from .standstill import Stuck
    from .watch import Decision

LEFTOVER = Check(
    "launch.leftover",
    seen="stand-in",
    reads="processes in the launch's unit, with its ID in their environment, or of an account that only runs launches",
    fires="processes of the launch remain on a node (fail), or the node does not respond (unknown)",
    fix="End the processes with the command shown in the finding",
)


RANKS = Check(
    "launch.ranks",
    seen="stand-in",
    reads="the processes of the launch that have RANK and LOCAL_RANK in their environment",
    fires="launch_command succeeded, but started fewer ranks on a node than planned (warn)",
    fix="Let the command start the ranks, with placeholders or MUSTER_NPROC",
)

CLUSTER = "cluster"  # the node of findings that concern the whole cluster


class Left(NamedTuple):
    """What remains of a launch on a node. error: why this is unknown, or why the unit has not ended."""

    error: str
    processes: list[ProcessFacts]


@dataclass
class LaunchRecord:
    """The supervisor's record of a launch.

    decision: why the launch ended; None if it was rejected before the start. preflight: findings before the start.

    began, noticed (its end), notices (of silent nodes), stop_began, cleaned: times on the controller's monotonic clock.

    leftovers: what remains of the launch, by node. unseen: nodes that could not be checked at the end. stuck: ranks
    that cannot continue. fetched: files fetched from the working folders; None if none were requested.
    """

    plan: LaunchPlan
    decision: Decision | None
    preflight: list[Finding] = field(default_factory=list)
    reports: list[NodeReport] = field(default_factory=list)
    began: float = 0.0
    noticed: float = 0.0
    notices: list[float] = field(default_factory=list)
    stop_began: float = 0.0
    cleaned: float = 0.0
    leftovers: dict[str, Left] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    fetched: Fetched | None = None

    def timing(self, epoch: float) -> dict[str, Any]:
        """Return the wall-clock times of the events, 0 for events that did not happen.

        epoch: wall clock minus monotonic clock.
        """

        def wall(at: float) -> float:
            return epoch + at if at else 0.0

        times = {"began": self.began, "noticed": self.noticed, "cleaned": self.cleaned}
        return {**{name: wall(at) for name, at in times.items()}, "notices": [wall(at) for at in self.notices]}

    @property
    def launcher(self) -> str:
        return launchers.spoken(self.plan.launcher)

    @property
    def head(self) -> str:
        return self.plan.head.node


def judge(record: LaunchRecord, log_dir: str) -> Verdict:
    """Return the verdict of the launch, with a one-line summary.

    log_dir: the folder on the controller that contains the logs.
    """
    if record.decision is None:
        return refused(record.preflight)
    findings = [finding for finding in record.preflight if finding.status == "warn"]
    findings += findings_of(record, record.decision, log_dir)
    findings += left_behind(record)
    if record.fetched:
        findings += fetched.findings(record.fetched, {one.node: one.work_dir for one in record.plan.nodes})
    return add_up(findings, summary_of(record.plan, findings))


def with_fetched(verdict: Verdict, record: LaunchRecord) -> Verdict:
    """Return the verdict on all attempts, with the files that were fetched after the last attempt."""
    if not record.fetched:
        return verdict
    found = fetched.findings(record.fetched, {one.node: one.work_dir for one in record.plan.nodes})
    return extended(verdict, after=found)


def knows_less(verdict: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Return whether the outcome is unknown in this verdict but known in the verdict that was stored earlier."""
    ends = {ending.check.id for ending in Ending}
    known = [one for one in kept.get("findings", []) if one.get("id") in ends and one.get("status") != "unknown"]
    return bool(known) and all(found["status"] == "unknown" for found in verdict["findings"])


def findings_of(record: LaunchRecord, decision: Decision, log_dir: str) -> list[Finding]:
    match decision.ending:
        case Ending.FINISHED:
            found = finished(record)
        case Ending.INTERRUPTED:
            found = [interrupted(record, decision)]
        case Ending.DETACHED:
            found = [detached(record)]
        case Ending.TAKEN:
            found = [finding for finding in record.preflight if finding.status == "fail"]
        case Ending.STALLED:
            found = standstill.findings(record.head, decision.text, record.stuck, record.reports, log_dir)
        case Ending.FAILED | Ending.NODE:
            found = [failed(record, decision, log_dir)]
        case other:
            never(other)
    return found


def summary_of(plan: LaunchPlan, findings: Sequence[Finding]) -> str:
    worst = [finding for status in ("fail", "unknown") for finding in findings if finding.status == status]
    if worst:
        return with_fix(worst[0])
    names = plural(len(plan.nodes), "node")
    summary = f"{plural(plan.world_size, 'rank')} on {names} succeeded ({plan.backend})"
    return "; ".join([summary, *as_lines(finding for finding in findings if finding.status == "warn")])


def refused(preflight: Sequence[Finding]) -> Verdict:
    reasons = as_lines(finding for finding in preflight if finding.status == "fail")
    more = f"; and {plural(len(reasons) - 2, 'reason')} more" if len(reasons) > 2 else ""
    return add_up(preflight, "not started. " + "; ".join(reasons[:2]) + more)


def finished(record: LaunchRecord) -> list[Finding]:
    passed = [
        Ending.FINISHED.check.passed(entry.node, f"{plural(entry.nproc, 'rank')} exited with code 0")
        for entry in record.plan.nodes
    ]
    return [*without_ranks(record), *passed]


def without_ranks(record: LaunchRecord) -> list[Finding]:
    """Return a warning for each node on which a launch command other than torchrun started fewer ranks than planned."""
    if record.launcher == launchers.TORCHRUN.name:
        return []
    seen = {report.node: len({rank["local_rank"] for rank in report.ranks}) for report in record.reports}
    return [
        RANKS.warn(
            entry.node,
            f"{seen.get(entry.node, 0)} of {plural(entry.nproc, 'rank')} detected",
            fix="Check that launch_command starts each rank with RANK and LOCAL_RANK",
        )
        for entry in record.plan.nodes
        if seen.get(entry.node, 0) < entry.nproc
    ]


def interrupted(record: LaunchRecord, decision: Decision) -> Finding:
    return Ending.INTERRUPTED.check.unknown(
        record.head,
        f"the launch was stopped early: {decision.text}",
        fix="The result is unknown; launch again",
    )


def detached(record: LaunchRecord) -> Finding:
    """Return a finding with an unknown result, because the launch is still running."""
    plan = record.plan
    launch_id = plan.launch_id
    return Ending.DETACHED.check.unknown(
        record.head,
        f"{plural(plan.world_size, 'rank')} on {plural(len(plan.nodes), 'node')} are running detached; to stop"
        f" them: {playbook('playbooks/launch.yml', launch_stop=launch_id)}",
        fix="Follow the launch with",
        command=playbook("playbooks/launch.yml", launch_attach=launch_id),
    )


def failed(record: LaunchRecord, decision: Decision, log_dir: str) -> Finding:
    """Return the first failure on any node, or the failure of the launch itself if no node reports one."""
    for report in record.reports:
        if decision.ending is Ending.NODE and report.node == decision.node:
            report.lost, report.lost_why = True, report.lost_why or decision.text
    cause, others = first_failure(record.reports, record.stop_began)
    if cause is None:
        text = decision.text or f"{record.launcher} ended for an unknown reason"
        return Ending.FAILED.check.fail(decision.node or record.head, text, fix="Its logs", command=log_dir)
    if cause.cascade and cause.ending is not Ending.PEER:
        return cascade_finding(cause, log_dir)
    alike = [one for one in others if one.rank is not None and one.summary == cause.summary]
    report = next(report for report in record.reports if report.node == cause.node)
    kept = report.is_torchrun or str(cause.local_rank) in report.stderr
    return cause_finding(record.plan, cause, len(alike), log_dir, kept=kept)


def cause_finding(plan: LaunchPlan, cause: Failure, alike: int, log_dir: str, *, kept: bool) -> Finding:
    """Return the finding about the cause.

    alike: number of other ranks with the same failure. kept: whether the rank has its own log files.
    """
    who = "" if cause.rank is None else f"rank {cause.rank} (local rank {cause.local_rank}) "
    verb = "failed: " if cause.ending is Ending.EXCEPTION else ""
    summary = f"{who}{verb}{cause.summary}"
    if alike and alike + 1 == plan.world_size:
        summary += " (the same on every rank)"
    elif alike:
        summary += f" (the same on {plural(alike, 'other rank')})"
    if cause.ending is Ending.NODE:
        fix, command = f"Check {cause.node}, then launch again", ""
    else:
        launcher = launchers.log_name(plan.launcher)
        name = f"{launcher}.log" if cause.rank is None or not kept else f"rank{cause.rank}.stderr.log"
        fix, command = "Its log", f"{log_dir}/{cause.node}/{name}"
    proof = evidence(f"stderr of {cause.where}", cause.traceback) if cause.traceback else []
    return cause.ending.check.fail(cause.node, summary, fix=fix, command=command, evidence=proof)


def cascade_finding(first: Failure, log_dir: str) -> Finding:
    """Return the finding for a launch with only consequential failures.

    The ranks that report them are not the cause.
    """
    return first.ending.check.fail(
        CLUSTER,
        f"ranks lost their connections, but no rank reported an error of its own: {first.summary}",
        fix="Their logs",
        command=log_dir,
        evidence=evidence(f"stderr of {first.where}", first.traceback) if first.traceback else [],
    )


def left_behind(record: LaunchRecord) -> list[Finding]:
    units = {entry.node: entry.unit for entry in record.plan.nodes}
    own = record.plan.is_own
    found = [still_there(node, units[node], left, own=own) for node, left in record.leftovers.items()]
    return found + [
        LEFTOVER.unknown(
            node,
            "does not respond, so processes of the launch might remain; they end when the lease expires",
            fix="Check with",
            command=on_node(node, f"systemctl {'--user ' if own else ''}status {{unit}}", unit=units[node]),
        )
        for node in record.unseen
    ]


def still_there(node: str, unit: str, left: Left, *, own: bool = False) -> Finding:
    """Return the finding about remaining processes.

    Stopping the unit ends the processes in the unit. Other processes, such as those started through ssh, must be ended
    separately.
    """
    beyond = [one["pid"] for one in left.processes if one["unit"] != unit and one["pid"] is not None]
    if beyond and len(beyond) == len(left.processes) and not left.error:
        fix = f"End the processes on the node. {processes.advice(beyond, 'kill' if own else 'sudo kill')}"
        command = on_node(node, processes.LOOK, pids=processes.listed(beyond))
    else:
        fix = "End the processes with"
        command = on_node(node, f"systemctl {'--user ' if own else ''}stop {{unit}}", unit=unit, become=not own)
    who = few([describe_process(one) for one in left.processes])
    return LEFTOVER.fail(node, f"the launch has not ended completely: {left.error or who}", fix=fix, command=command)
