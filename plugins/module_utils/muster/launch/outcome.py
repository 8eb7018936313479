"""What a launch came to: its verdict, from the plan, the reason it ended and every node's report."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict.entry import Entry
from ..verdict.finding import Finding, add_up, evidence, told, with_fix
from ..verdict.words import plural
from .failure import Failure, NodeReport, first_failure

if TYPE_CHECKING:
    from .watch import Decision

FINDINGS = {
    "launch.ended": Entry(
        "how the ranks and the unit of a launch ended",
        "never: it is the pass of a node whose ranks ended with code 0",
        "",
    ),
    "launch.unreachable": Entry(
        "the connection of Ansible to the node",
        "a participant cannot be reached (fail)",
        "Fix it, or leave the node out (cluster_launch_nodes)",
    ),
    "launch.look": Entry(
        "what the program on the node answers",
        "it cannot be looked at although it is reached (fail)",
        "Fix what it says, and run again",
    ),
    "launch.failed": Entry(
        "how torchrun ended",
        "it ended without a reason that could be found (fail)",
        "Read its log",
    ),
    "launch.exception": Entry(
        "the ranks' standard error, the earliest first",
        "a rank ended by a Python exception, whose last line is quoted (fail)",
        "Read the log that is named",
    ),
    "launch.signal": Entry(
        "the exit codes of the ranks",
        "a rank was killed by a signal, such as SIGKILL by the kernel when memory ran out (fail)",
        "Read the log that is named, and the kernel log of the node",
    ),
    "launch.exit": Entry(
        "the exit codes of the ranks",
        "a rank ended with another code than 0 (fail)",
        "Read the log that is named",
    ),
    "launch.agent": Entry(
        "the exit code and the log of torchrun",
        "torchrun itself failed on the node (fail)",
        "Read the log that is named",
    ),
    "launch.unit": Entry(
        "the state of the unit",
        "systemd or the kernel ended the unit from outside (fail)",
        "Look at journalctl -u with the name of the unit",
    ),
    "launch.lease": Entry(
        "the lease that the supervisor renews",
        "nobody renewed it: the controller was gone or cut off (fail)",
        "Launch again; detached, a launch goes on without the controller",
    ),
    "launch.limit": Entry(
        "the time limit of a detached launch",
        "it ran out (fail)",
        "Raise launch_time_limit",
    ),
    "launch.node": Entry(
        "the connection to the node while the launch runs",
        "it does not answer any more (fail)",
        "Look at the node, then launch again",
    ),
    "launch.stalled": Entry(
        "the output and the stacks of all ranks",
        "no rank has written a line for launch_stall_timeout; the rank that holds the others up is named (fail)",
        "Read the stacks in the verdict",
    ),
    "launch.interrupted": Entry(
        "the supervisor itself",
        "the launch was ended early, by a signal or by launch_stop (unknown)",
        "Launch again",
    ),
    "launch.detached": Entry(
        "the supervisor itself",
        "the launch goes on without it, so its result is not known yet (unknown)",
        "Follow it with -e launch_attach and its id",
    ),
    "launch.leftover": Entry(
        "the processes that carry the mark of the launch",
        "something of it is left on a node (fail), or the node does not answer (unknown)",
        "End the unit with the command that is named",
    ),
}

STACK_LINE = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
# A rank that stands in one of these waits for its peers; the one that stands elsewhere is the one they wait for.
COLLECTIVE = re.compile(r"torch/distributed/|torch/nn/parallel/distributed|torch/autograd/")
TORCH = re.compile(r"-packages/torch/(?!nn/modules/)")


@dataclass(frozen=True)
class Ending:
    """How the supervisor saw the end.

    stop_began: controller time. leftovers: what is left of the launch, by node. unseen: nodes that could not be looked
    at in the end. log_dir: where the controller keeps the logs.
    """

    decision: Decision
    preflight: list[Finding]
    reports: list[NodeReport]
    stop_began: float
    stalled: list[dict[str, Any]]
    leftovers: dict[str, str]
    unseen: list[str]
    log_dir: str


def judge(plan: dict[str, Any], end: Ending) -> dict[str, Any]:
    """The verdict of the launch (see verdict.add_up); its summary is one line for people."""
    kind = end.decision.kind
    if kind == "refused":
        return refused(end.preflight)
    findings = [finding for finding in end.preflight if finding.status == "warn"]
    findings += {
        "finished": finished,
        "interrupted": interrupted,
        "detached": detached,
        "stalled": stalled,
    }.get(kind, failed)(plan, end)
    findings += left_behind(plan, end)
    return add_up(findings, summary_of(plan, findings))


def summary_of(plan: dict[str, Any], findings: list[Finding]) -> str:
    worst = [finding for status in ("fail", "unknown") for finding in findings if finding.status == status]
    if worst:
        return with_fix(worst[0])
    names = plural(len(plan["nodes"]), "node")
    summary = f"{plural(plan['world_size'], 'rank')} on {names} ran to their end ({plan['backend']})"
    return "; ".join([summary, *told([finding for finding in findings if finding.status == "warn"])])


def refused(preflight: list[Finding]) -> dict[str, Any]:
    reasons = told([finding for finding in preflight if finding.status == "fail"])
    more = f"; and {plural(len(reasons) - 2, 'reason')} more" if len(reasons) > 2 else ""
    return add_up(preflight, "not started. " + "; ".join(reasons[:2]) + more)


def finished(plan: dict[str, Any], _end: Ending) -> list[Finding]:
    return [
        Finding("launch.ended", "pass", entry["node"], f"{plural(entry['nproc'], 'rank')} ended with code 0")
        for entry in plan["nodes"]
    ]


def interrupted(plan: dict[str, Any], end: Ending) -> list[Finding]:
    head = plan["nodes"][0]["node"]
    fix = {"text": "Nothing is known of its result; launch it again"}
    return [Finding("launch.interrupted", "unknown", head, f"the launch was ended early: {end.decision.text}", fix=fix)]


def detached(plan: dict[str, Any], _end: Ending) -> list[Finding]:
    """It goes on: an honest verdict is that nothing is known yet."""
    launch_id = plan["launch_id"]
    return [
        Finding(
            "launch.detached",
            "unknown",
            plan["nodes"][0]["node"],
            f"{plural(plan['world_size'], 'rank')} on {plural(len(plan['nodes']), 'node')} run detached, result unknown"
            f" as yet (-e launch_stop={launch_id} ends them)",
            fix={"text": "Follow them with", "command": f"playbooks/launch.yml -e launch_attach={launch_id}"},
        )
    ]


def failed(plan: dict[str, Any], end: Ending) -> list[Finding]:
    for report in end.reports:
        if end.decision.kind == "lost" and report.node == end.decision.node:
            report.lost, report.lost_why = True, report.lost_why or end.decision.text
    cause, others = first_failure(end.reports, end.stop_began)
    if cause is None:
        text = end.decision.text or "torchrun ended without a reason that could be found"
        return [
            Finding("launch.failed", "fail", end.decision.node or plan["nodes"][0]["node"], text, fix=read_logs(end))
        ]
    alike = [one for one in others if one.rank is not None and one.summary == cause.summary]
    return [cause_finding(plan, end, cause, alike)]


def cause_finding(plan: dict[str, Any], end: Ending, cause: Failure, alike: list[Failure]) -> Finding:
    who = "" if cause.rank is None else f"rank {cause.rank} (local rank {cause.local_rank}) "
    verb = "failed: " if cause.kind == "exception" else ""
    summary = f"{who}{verb}{cause.summary}"
    if alike and len(alike) + 1 == plan["world_size"]:
        summary += " (the same on every rank)"
    elif alike:
        summary += f" (the same on {plural(len(alike), 'other rank')})"
    if cause.cascade:
        summary += " (only connection errors were seen: no rank failed by itself before)"
    proof = evidence(f"stderr of {cause.where}", cause.traceback) if cause.traceback else []
    return Finding(
        f"launch.{cause.kind}",
        "fail",
        cause.node,
        summary,
        evidence=proof,
        fix=fix_of(end, cause),
    )


def fix_of(end: Ending, cause: Failure) -> dict[str, str]:
    if cause.kind == "node":
        return {"text": f"Look at {cause.node}, then launch again"}
    name = "torchrun.log" if cause.rank is None else f"rank{cause.rank}.stderr.log"
    return {"text": "Its log", "command": f"{end.log_dir}/{cause.node}/{name}"}


def read_logs(end: Ending) -> dict[str, str]:
    return {"text": "Its logs", "command": end.log_dir}


def stalled(plan: dict[str, Any], end: Ending) -> list[Finding]:
    """A standstill: the rank that cannot go on, or that is not where the others wait."""
    head = plan["nodes"][0]["node"]
    stacks = {
        (report.node, int(local)): last_stack(text) for report in end.reports for local, text in report.stderr.items()
    }
    ranks = {report.node: report.first_rank for report in end.reports}
    proof = [
        {"source": f"stack of rank {ranks[node] + local} ({node})", "text": "\n".join(stack)}
        for (node, local), stack in sorted(stacks.items(), key=lambda item: ranks[item[0][0]] + item[0][1])
        if stack
    ]
    found = [
        Finding(
            "launch.stalled",
            "fail",
            one["node"],
            f"rank {one['rank']} (local rank {one['local_rank']}) stands still: {one['meaning']}"
            + (f", in {one['wchan']}" if one["wchan"] not in ("", "0") else "")
            + f"; {end.decision.text}",
            observed=f"state {one['state']}",
            evidence=proof,
            fix=read_logs(end),
        )
        for one in end.stalled
    ]
    if found:
        return found
    waiting = [stack for stack in stacks.values() if waits(stack)]
    elsewhere = [(node, local, stack) for (node, local), stack in stacks.items() if stack and not waits(stack)]
    if elsewhere and waiting:
        return [
            Finding(
                "launch.stalled",
                "fail",
                node,
                f"rank {ranks[node] + local} (local rank {local}) holds up the others, which wait in a collective:"
                f" it is at {stack[0].strip()}; {end.decision.text}",
                evidence=proof,
                fix=read_logs(end),
            )
            for node, local, stack in elsewhere
        ]
    return [Finding("launch.stalled", "fail", head, end.decision.text, evidence=proof, fix=read_logs(end))]


def waits(stack: list[str]) -> bool:
    """Whether torch's own frames at the top are those of a collective; the script's model may run under them."""
    at_the_top = itertools.takewhile(TORCH.search, stack)
    return any(COLLECTIVE.search(line) for line in at_the_top)


def last_stack(stderr: str) -> list[str]:
    """The innermost lines of the main thread's stack, as faulthandler prints it (most recent call first)."""
    stack: list[str] = []
    for line in stderr.splitlines():
        if line.endswith("(most recent call first):") and "C stack" not in line:  # the latter since Python 3.14
            stack = []
        elif STACK_LINE.match(line):
            stack.append(line)
    return stack[:8]


def left_behind(plan: dict[str, Any], end: Ending) -> list[Finding]:
    units = {entry["node"]: entry["unit"] for entry in plan["nodes"]}
    found = [
        Finding(
            "launch.leftover",
            "fail",
            node,
            f"left of the launch: {what}",
            fix={"text": "End it with", "command": f"systemctl stop {units[node]}"},
        )
        for node, what in end.leftovers.items()
    ]
    return found + [
        Finding(
            "launch.leftover",
            "unknown",
            node,
            "does not answer, so what is left of the launch is unknown; its lease ends it there",
            fix={"text": "Look with", "command": f"systemctl status {units[node]}"},
        )
        for node in end.unseen
    ]
