"""Decide whether a failed launch gets another attempt, on which nodes and from which checkpoint, or why it does not.

A node that a failure names is left out. A spare node replaces it, so that the world size stays the same. Without a
spare, the other nodes continue with renumbered ranks if at least launch_min_nodes of them remain. Otherwise the same
node is used again if no fault is found on it. If the failure would occur again, no further attempt is started.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.check import Check
from ..verdict.finding import Finding, extended
from ..verdict.words import few, plural
from .endings import CHECKS as ENDINGS
from .endings import Ending, has_failed
from .failure import first_failure
from .plan import PORTS
from .tracebacks import exception_line
from .unit import LAUNCH_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..verdict.finding import Verdict
    from .fit import Checkpoint, Fit
    from .options import LaunchOptions
    from .outcome import LaunchRecord

RESTARTED = Check(
    "launch.restarted",
    seen="sandbox",
    reads="the attempts of a launch with launch_restarts",
    fires="an attempt failed and the launch continued with another attempt (warn)",
    fix="Check the node named in the finding before the next launch",
)
GIVEN_UP = Check(
    "launch.given_up",
    seen="sandbox",
    reads="the outcomes of all attempts, the checkpoints, and the remaining nodes",
    fires="another attempt is allowed, but would fail in the same way or cannot start (fail)",
    fix="Fix the cause of the last attempt's failure, then launch again",
)
CHECKS = (RESTARTED, GIVEN_UP)

NO_WATCHER = (
    "launch_restarts with launch_detached requires a watcher on the head node that can log in to the other nodes as"
    " the launch's user; administrator launches have no such logins"
)
WITHOUT_WATCHER = "or remove launch_detached and launch in a persistent terminal (tmux), or remove launch_restarts"
FUTILE = 3  # attempts in a row without a newer checkpoint
# The driver and its services use at most a few hundred megabytes on an idle GPU.
IDLE_MIB = 1024
LEASES = 2  # a request in flight when the supervisor gives up on a node can renew the node's lease once more
SLACK = 5.0  # seconds for a node to notice that its lease has expired, and for systemd after SIGKILL
FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
A_LAUNCH = re.compile(LAUNCH_ID.pattern.removesuffix(r"\Z"))


@dataclass
class LaunchAttempt:
    """A finished attempt. failed: nodes that its failure names. signature: signature of the exception; "" if there is
    none.

    before, after: when the newest complete checkpoint was written, before and after the attempt. 0 means that there was
    none; None in `after` means that it has not been checked. checkpoint: path of the checkpoint that the attempt
    started from; "" for none.
    """

    number: int
    launch_id: str
    nodes: list[str]
    summary: str
    failed: list[str] = field(default_factory=list)
    signature: str = ""
    before: float = 0.0
    after: float | None = None
    checkpoint: str = ""


class Seat(NamedTuple):
    """An available node and its number of ranks."""

    node: str
    nproc: int


def problems(
    options: LaunchOptions, participants: Sequence[str], inventory: Collection[str], *, unwatched: bool
) -> list[str]:
    """Return the problems of the request as sentences.

    unwatched: whether the launch is detached and certainly not a user launch.
    """
    found = []
    if options.restarts < 0 or options.restarts >= PORTS:
        found.append(f"launch_restarts is {options.restarts}, but must be between 0 and {PORTS - 1}.")
    if unwatched and options.restarts > 0:
        found.append(f"{NO_WATCHER}: launch as yourself (launch_as), {WITHOUT_WATCHER}.")
    extra = [
        name for name, value in (("launch_spares", options.spares), ("launch_min_nodes", options.min_nodes)) if value
    ]
    if extra and options.restarts <= 0:
        found.append(f"{' and '.join(extra)}: no effect without launch_restarts. Set it, for example to 3.")
    for name in options.spares:
        if name not in inventory:
            found.append(f"launch_spares contains {name!r}, which is not in gpu_nodes or is quarantined.")
        elif name in participants:
            found.append(f"launch_spares contains {name}, which is already in the launch (cluster_launch_nodes).")
    if options.min_nodes > len(participants) or options.min_nodes < 0:
        found.append(f"launch_min_nodes is {options.min_nodes}, but must be between 0 and {len(participants)}.")
    return found


# ---------------------------------------------------------------- how one attempt ended


def ended(
    record: LaunchRecord, verdict: Mapping[str, Any], number: int, before: float, blamed: Collection[str] = ()
) -> LaunchAttempt:
    """Return the summary of an attempt. blamed: nodes that the diagnosis has proven to be the cause."""
    plan = record.plan
    nodes = plan.names
    ids = {check.id for check in ENDINGS}
    refused = record.decision is None
    failed = list(blamed) or [
        str(finding["node"])
        for finding in verdict["findings"]
        if finding["status"] in ("fail", "unknown") and (refused or finding["id"] in ids)
    ]
    gone = [*record.leftovers, *record.unseen]
    named = [name for name in nodes if name in {*failed, *gone}]
    return LaunchAttempt(
        number,
        plan.launch_id,
        nodes,
        why_in_short(verdict),
        named,
        signature(record),
        before,
        checkpoint=plan.head.env.get("MUSTER_CHECKPOINT", ""),
    )


def why_in_short(verdict: Mapping[str, Any]) -> str:
    """Return the first failure without its fix. The fix is not needed, because another attempt follows."""
    for finding in verdict["findings"]:
        if finding["status"] == "fail":
            return f"{finding['node']}: {finding['summary']}"
    return str(verdict["summary"])


def final(record: LaunchRecord, attempt: LaunchAttempt) -> bool:
    """Return whether no further attempt is allowed: after success, a requested stop or the time limit, or if the first
    attempt did not start.
    """
    if record.decision is None:
        return attempt.number == 1
    if not has_failed(record.decision.ending):
        return True
    cause, _ = first_failure(record.reports, record.stop_began)
    return cause is not None and cause.ending is Ending.LIMIT


def signature(record: LaunchRecord) -> str:
    """Return the type of the exception and where it was raised; "" for other failures, and for failures that a peer
    caused.
    """
    if record.decision is None:
        return ""
    cause, _ = first_failure(record.reports, record.stop_began)
    if cause is None or cause.ending is not Ending.EXCEPTION or cause.cascade:
        return ""
    kind = exception_line(cause.traceback).partition(":")[0]
    places = [f"{match['file'].rpartition('/')[2]}:{match['line']}" for match in FRAME.finditer(cause.traceback)]
    return A_LAUNCH.sub("ID", f"{kind} at {' > '.join(places) or 'an unknown place'}")


def stays(record: LaunchRecord) -> str:
    """Return a description of leftover processes that keep running after the lease expires; "" if there are none."""
    units = {entry.node: entry.unit for entry in record.plan.nodes}
    for node, left in record.leftovers.items():
        beyond = [one for one in left.processes if one["unit"] != units[node]]
        if beyond:
            pids = few([f"PID {one['pid']}" for one in beyond])
            return f"{node}: {pids} of attempt {record.plan.launch_id} still running outside the launch's unit"
    return ""


def certain_end(record: LaunchRecord, lease: float, failure_timeout: float) -> float:
    """Return the time by which unobserved processes have certainly ended, on the controller's monotonic clock; 0 if
    there are none.

    A unit has ended once its lease has expired and the time between SIGTERM and SIGKILL has passed.
    """
    heard = {report.node: report.last_answer for report in record.reports}
    open_ends = [*record.unseen, *record.leftovers]
    last = [max(heard.get(node, 0.0), record.began) for node in open_ends]
    # The supervisor may have renewed their lease until it stopped.
    return max(last, default=0.0) and max([*last, record.stop_began]) + LEASES * lease + failure_timeout + SLACK


# ---------------------------------------------------------------- what will repeat


def futile(history: Sequence[LaunchAttempt], options: LaunchOptions) -> str:
    """Return why another attempt would fail in the same way; "" if another attempt might succeed."""
    last = history[-1]
    if last.signature and last.signature in [one.signature for one in history[:-1]]:
        return f"the same exception occurred twice at the same place: {last.signature}"
    if options.checkpoints and len(history) >= FUTILE and not any(map(newer, history[-FUTILE:])):
        return f"no newer checkpoint after {FUTILE} attempts ({options.checkpoints})"
    return ""


def newer(attempt: LaunchAttempt) -> bool:
    return attempt.after is not None and attempt.after > attempt.before


# ---------------------------------------------------------------- the nodes of the next one


def unfit(seen: Fit | str, nproc: int, *, gpus: bool, shared: bool) -> str:
    """Return why a node is unavailable; "" if it is available.

    seen: the node's answer, or why the node did not answer.
    """
    if isinstance(seen, str):
        return seen
    if seen["running"]:
        return f"earlier attempts are still running: {few(seen['running'])}"
    if not gpus:
        return ""
    if seen["gpu_error"]:
        return f"nvidia-smi fails: {seen['gpu_error'].line}"
    if len(seen["gpus"]) < nproc:
        return f"nvidia-smi lists {plural(len(seen['gpus']), 'GPU')} for {plural(nproc, 'rank')}"
    for gpu in seen["gpus"]:
        if gpu["uncorrected"] > 0:
            return f"GPU {gpu['index']} has {plural(gpu['uncorrected'], 'uncorrected memory error')}"
        if gpu["used_mib"] > IDLE_MIB and not shared:
            return f"GPU {gpu['index']} still has {gpu['used_mib']} MiB in use"
    return ""


def may_pass(seen: Fit | str) -> bool:
    """Return whether a node might become available soon because its memory is being freed or a unit is ending."""
    if isinstance(seen, str):
        return False
    return bool(seen["running"]) or any(gpu["used_mib"] > IDLE_MIB for gpu in seen["gpus"])


def next_nodes(
    current: Sequence[Seat],
    failed: Collection[str],
    unfit_why: Mapping[str, str],
    spares: Sequence[Seat],
    options: LaunchOptions,
) -> tuple[list[str], str]:
    """Return the nodes of the next attempt in order, and a description. No nodes are returned if no attempt can start.

    current: nodes of the previous attempt. failed: nodes that its failure names, and nodes that were excluded earlier.
    unfit_why: the reason for each unavailable node. spares: spare nodes that are not in use.
    """
    free = [seat for seat in spares if seat.node not in failed and not unfit_why.get(seat.node)]
    chosen: list[str] = []
    without: list[Seat] = []
    said: list[str] = []
    for seat in current:
        if seat.node not in failed and not unfit_why.get(seat.node):
            chosen.append(seat.node)
            continue
        spare = next((one for one in free if one.nproc == seat.nproc), None)
        if spare is None:
            without.append(seat)
            continue
        free.remove(spare)
        chosen.append(spare.node)
        said.append(f"{spare.node} replaces {seat.node}")
    if not without:
        return chosen, ", ".join(said) or "on the same nodes"
    names = [seat.node for seat in without]
    if options.min_nodes and len(chosen) >= options.min_nodes:
        return chosen, ", ".join([*said, f"without {few(names)}, ranks renumbered"])
    broken = [name for name in names if unfit_why.get(name)]
    if not broken:
        out = {seat.node for seat in without}
        kept = iter(chosen)
        same = [seat.node if seat.node in out else next(kept) for seat in current]
        return same, ", ".join([*said, f"with {few(names)} again (no fault found)"])
    return [], no_way(broken, unfit_why, spares, len(chosen), options)


def no_way(
    broken: Sequence[str], unfit_why: Mapping[str, str], spares: Sequence[Seat], left: int, options: LaunchOptions
) -> str:
    reasons = "; ".join(f"{name}: {unfit_why[name]}" for name in broken)
    idle = [f"{seat.node}: {unfit_why[seat.node]}" for seat in spares if unfit_why.get(seat.node)]
    spare = f"no spare node is available ({'; '.join(idle)})" if idle else "no spare node is left (launch_spares)"
    if options.min_nodes:
        rest = f"only {plural(left, 'node')} left, but launch_min_nodes is {options.min_nodes}"
    else:
        rest = "launch_min_nodes does not allow fewer nodes"
    return f"{reasons}; {spare}; {rest}"


# ---------------------------------------------------------------- the checkpoint


def newest(seen: Mapping[str, Fit | str], nodes: Sequence[str]) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest complete checkpoint on these nodes, and the nodes that have this checkpoint."""
    found = {
        node: look["checkpoint"]
        for node in nodes
        if not isinstance(look := seen.get(node, ""), str) and look["checkpoint"] is not None
    }
    best = max(found.values(), key=lambda one: one["time"], default=None)
    if best is None:
        return None, []
    return best, [node for node, one in found.items() if one["path"] == best["path"] and one["time"] == best["time"]]


def led_by(nodes: Sequence[str], holders: Collection[str]) -> list[str]:
    """Return the nodes in their order, but start with a node that has the checkpoint, because rank 0 reads and
    distributes the checkpoint.
    """
    if not holders or nodes[0] in holders:
        return list(nodes)
    head = next((node for node in nodes if node in holders), nodes[0])
    return [head, *(node for node in nodes if node != head)]


def alone(path: str, holders: Sequence[str], nodes: Sequence[str]) -> str:
    """Return a warning if only some of the nodes have the checkpoint; "" if all have it."""
    if not path or set(nodes) <= set(holders):
        return ""
    return (
        f"{path} exists only on {few(holders)}, where rank 0 runs. If every rank reads the checkpoint, make it"
        " available on all nodes, for example in a shared launch_chdir"
    )


# ---------------------------------------------------------------- the verdict over all attempts


def whole_verdict(last: Verdict, history: Sequence[LaunchAttempt], went_on: Sequence[str], given_up: str) -> Verdict:
    """Extend the verdict of the last attempt to all attempts.

    went_on: how the launch continued after each earlier attempt.
    """
    earlier = [
        RESTARTED.warn(
            named(attempt), f"attempt {attempt.number} ({attempt.launch_id}) failed: {attempt.summary}; continued {how}"
        )
        for attempt, how in zip(history, went_on, strict=False)
    ]
    end: list[Finding] = []
    number = len(went_on) + 1
    summary = last["summary"]
    if given_up:
        why = f"given up after {plural(number, 'attempt')}: {given_up}"
        end.append(GIVEN_UP.fail(named(history[-1]), why))
        summary = f"{summary}; {why}"
    elif went_on:
        summary = f"{summary}, in attempt {number}"  # the failures of the others are findings
    return extended(last, earlier, end, summary)


def named(attempt: LaunchAttempt) -> str:
    return (attempt.failed or attempt.nodes)[0]
