"""Whether a launch that failed goes on in a new attempt, on which nodes, from which checkpoint; else why it does not.

A node that a failure names is left out. A spare takes its place at unchanged world size; else the rest goes on with
ranks reckoned anew, as long as launch_min_nodes are left; else the same node is used again where nothing is wrong with
it. What will repeat is not tried again.
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
    from .outcome import Record

RESTARTED = Check(
    "launch.restarted",
    seen="sandbox",
    reads="the attempts of a launch with launch_restarts",
    fires="an attempt failed, and the launch went on with another one (warn)",
    fix="Look at what is named before the next launch",
)
GIVEN_UP = Check(
    "launch.given_up",
    seen="sandbox",
    reads="how the attempts of a launch ended, its checkpoints, and the nodes that are left",
    fires="another attempt is allowed, but cannot help or cannot be begun (fail)",
    fix="Fix why its last attempt failed, then launch again",
)
CHECKS = (RESTARTED, GIVEN_UP)

NO_WATCHER = (
    "launch_restarts of a detached launch needs a watcher on the head node, which logs in on the others as the launch's"
    " user; an administrator's launch has no such logins"
)
WITHOUT_WATCHER = "or leave launch_detached out and run it where it stays, as in tmux, or leave launch_restarts out"
FUTILE = 3  # attempts in a row without a newer checkpoint
# What the driver and its services keep on an idle GPU is a few hundred megabytes at most.
IDLE_MIB = 1024
LEASES = 2  # a look that was under way when the supervisor gave a node up can have renewed its lease once more
SLACK = 5.0  # seconds for a node to see that its lease is over, and for systemd behind SIGKILL
FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
A_LAUNCH = re.compile(LAUNCH_ID.pattern.removesuffix(r"\Z"))


@dataclass
class Attempt:
    """One that has ended. failed: the nodes that its failure names. signature: of the exception, "" for none.

    before, after: when the newest complete checkpoint was written, 0 for none; after is None until it was looked at.
    checkpoint: the path of the one that it began from, "" for none.
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
    """A node that can take part, with its number of ranks."""

    node: str
    nproc: int


def problems(
    options: LaunchOptions, participants: Sequence[str], inventory: Collection[str], *, unwatched: bool
) -> list[str]:
    """What is wrong with the request, in sentences. unwatched: it is detached, and surely no user's own launch."""
    found = []
    if options.restarts < 0 or options.restarts >= PORTS:
        found.append(f"launch_restarts is {options.restarts}; it is a number from 0 to {PORTS - 1}.")
    if unwatched and options.restarts > 0:
        found.append(f"{NO_WATCHER}: launch as yourself (launch_as), {WITHOUT_WATCHER}.")
    extra = [
        name for name, value in (("launch_spares", options.spares), ("launch_min_nodes", options.min_nodes)) if value
    ]
    if extra and options.restarts <= 0:
        found.append(f"{' and '.join(extra)} means nothing without launch_restarts: set it, say to 3.")
    for name in options.spares:
        if name not in inventory:
            found.append(f"launch_spares names {name!r}, which is not in gpu_nodes, or is quarantined.")
        elif name in participants:
            found.append(f"launch_spares names {name}, which takes part already (cluster_launch_nodes).")
    if options.min_nodes > len(participants) or options.min_nodes < 0:
        found.append(f"launch_min_nodes is {options.min_nodes}, and {plural(len(participants), 'node')} take part.")
    return found


# ---------------------------------------------------------------- how one attempt ended


def ended(
    record: Record, verdict: Mapping[str, Any], number: int, before: float, blamed: Collection[str] = ()
) -> Attempt:
    """What is kept of an attempt. blamed: nodes that its diagnosis proves to be the cause."""
    plan = record.plan
    nodes = [entry["node"] for entry in plan["nodes"]]
    ids = {check.id for check in ENDINGS}
    refused = record.decision is None
    failed = list(blamed) or [
        str(finding["node"])
        for finding in verdict["findings"]
        if finding["status"] in ("fail", "unknown") and (refused or finding["id"] in ids)
    ]
    gone = [*record.leftovers, *record.unseen]
    named = [name for name in nodes if name in {*failed, *gone}]
    return Attempt(
        number,
        plan["launch_id"],
        nodes,
        why_in_short(verdict),
        named,
        signature(record),
        before,
        checkpoint=str(plan["nodes"][0].get("env", {}).get("MUSTER_CHECKPOINT", "")),
    )


def why_in_short(verdict: Mapping[str, Any]) -> str:
    """The first that failed, without what to do about it: another attempt is made instead."""
    for finding in verdict["findings"]:
        if finding["status"] == "fail":
            return f"{finding['node']}: {finding['summary']}"
    return str(verdict["summary"])


def final(record: Record, attempt: Attempt) -> bool:
    """Whether it ended in a way that has no further attempt: well, by somebody's word, or before the first began."""
    if record.decision is None:
        return attempt.number == 1
    if not has_failed(record.decision.ending):
        return True
    cause, _ = first_failure(record.reports, record.stop_began)
    return cause is not None and cause.ending is Ending.LIMIT


def signature(record: Record) -> str:
    """The kind of exception and where it was raised; "" for whatever else, and for what only followed from it."""
    if record.decision is None:
        return ""
    cause, _ = first_failure(record.reports, record.stop_began)
    if cause is None or cause.ending is not Ending.EXCEPTION or cause.cascade:
        return ""
    kind = exception_line(cause.traceback).partition(":")[0]
    places = [f"{match['file'].rpartition('/')[2]}:{match['line']}" for match in FRAME.finditer(cause.traceback)]
    return A_LAUNCH.sub("ID", f"{kind} at {' > '.join(places) or 'an unknown place'}")


def stays(record: Record) -> str:
    """What is left of an attempt and would not end by its lease; "" for nothing."""
    units = {entry["node"]: entry["unit"] for entry in record.plan["nodes"]}
    for node, left in record.leftovers.items():
        beyond = [one for one in left.processes if one["unit"] != units[node]]
        if beyond:
            pids = few([f"PID {one['pid']}" for one in beyond])
            return f"{node}: {pids} of attempt {record.plan['launch_id']} goes on outside of its unit"
    return ""


def certain_end(record: Record, lease: float, failure_timeout: float) -> float:
    """When whatever nobody has seen to end has certainly ended, on the controller's monotonic clock; 0 for nothing.

    A unit ends by its lease, and has the time between SIGTERM and SIGKILL.
    """
    heard = {report.node: report.last_answer for report in record.reports}
    open_ends = [*record.unseen, *record.leftovers]
    last = [max(heard.get(node, 0.0), record.began) for node in open_ends]
    # Their lease may have been renewed until the supervisor left off.
    return max(last, default=0.0) and max([*last, record.stop_began]) + LEASES * lease + failure_timeout + SLACK


# ---------------------------------------------------------------- what will repeat


def futile(history: Sequence[Attempt], options: LaunchOptions) -> str:
    """Why another attempt would end as this one did; "" where it might not."""
    last = history[-1]
    if last.signature and last.signature in [one.signature for one in history[:-1]]:
        return f"the same exception at the same place twice: {last.signature}"
    if options.checkpoints and len(history) >= FUTILE and not any(map(newer, history[-FUTILE:])):
        return f"{FUTILE} attempts without a newer checkpoint ({options.checkpoints})"
    return ""


def newer(attempt: Attempt) -> bool:
    return attempt.after is not None and attempt.after > attempt.before


# ---------------------------------------------------------------- the nodes of the next one


def unfit(seen: Fit | str, nproc: int, *, gpus: bool, shared: bool) -> str:
    """Why a node may not take part now, "" when it may. seen: its look, or why there is none."""
    if isinstance(seen, str):
        return seen
    if seen["running"]:
        return f"{few(seen['running'])} has not ended there"
    if not gpus:
        return ""
    if seen["gpu_error"]:
        return f"nvidia-smi fails: {seen['gpu_error'].line}"
    if len(seen["gpus"]) < nproc:
        return f"nvidia-smi lists {plural(len(seen['gpus']), 'GPU')} for {plural(nproc, 'rank')}"
    for gpu in seen["gpus"]:
        if gpu["uncorrected"] > 0:
            return f"GPU {gpu['index']} has {plural(gpu['uncorrected'], 'memory error')} that could not be corrected"
        if gpu["used_mib"] > IDLE_MIB and not shared:
            return f"GPU {gpu['index']} has {gpu['used_mib']} MiB in use still"
    return ""


def may_pass(seen: Fit | str) -> bool:
    """Whether what makes a node unfit may be over soon: memory that is being freed, or a unit that is ending."""
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
    """(the nodes of the next attempt in their order, what is said of it); no nodes where none can be begun.

    current: the nodes of the one that ended. failed: those that it names, and others that are out. unfit_why: nodes
    that cannot take part, and why. spares: those that are not in use.
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
        said.append(f"{spare.node} takes the place of {seat.node}")
    if not without:
        return chosen, ", ".join(said) or "on the same nodes"
    names = [seat.node for seat in without]
    if options.min_nodes and len(chosen) >= options.min_nodes:
        return chosen, ", ".join([*said, f"without {few(names)}, ranks reckoned anew"])
    broken = [name for name in names if unfit_why.get(name)]
    if not broken:
        out = {seat.node for seat in without}
        kept = iter(chosen)
        same = [seat.node if seat.node in out else next(kept) for seat in current]
        return same, ", ".join([*said, f"with {few(names)} again, where nothing is found wrong"])
    return [], no_way(broken, unfit_why, spares, len(chosen), options)


def no_way(
    broken: Sequence[str], unfit_why: Mapping[str, str], spares: Sequence[Seat], left: int, options: LaunchOptions
) -> str:
    reasons = "; ".join(f"{name}: {unfit_why[name]}" for name in broken)
    idle = [f"{seat.node}: {unfit_why[seat.node]}" for seat in spares if unfit_why.get(seat.node)]
    spare = f"no spare can take its place ({'; '.join(idle)})" if idle else "no spare is left (launch_spares)"
    if options.min_nodes:
        rest = f"{plural(left, 'node')} left, and launch_min_nodes is {options.min_nodes}"
    else:
        rest = "launch_min_nodes lets no smaller number go on"
    return f"{reasons}; {spare}; {rest}"


# ---------------------------------------------------------------- the checkpoint


def newest(seen: Mapping[str, Fit | str], nodes: Sequence[str]) -> tuple[Checkpoint | None, list[str]]:
    """The newest complete checkpoint on these nodes, and those that have it."""
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
    """In their order, but that rank 0 is where the checkpoint is: it reads it, and hands it on."""
    if not holders or nodes[0] in holders:
        return list(nodes)
    head = next((node for node in nodes if node in holders), nodes[0])
    return [head, *(node for node in nodes if node != head)]


def alone(path: str, holders: Sequence[str], nodes: Sequence[str]) -> str:
    """What a script has to know of a checkpoint that lies on the disks of some of its nodes; nothing, if on all."""
    if not path or set(nodes) <= set(holders):
        return ""
    return (
        f"{path} is on {few(holders)} alone: rank 0 finds it there. A script that reads it on every rank needs it"
        " on all nodes, as in a launch_chdir that they share"
    )


# ---------------------------------------------------------------- what is said in the end


def whole_verdict(last: Verdict, history: Sequence[Attempt], went_on: Sequence[str], given_up: str) -> Verdict:
    """The verdict over all attempts, from that of the last one. went_on: how it went on after each of the others."""
    earlier = [
        RESTARTED.warn(
            named(attempt), f"attempt {attempt.number} ({attempt.launch_id}) failed: {attempt.summary}; went on {how}"
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
        summary = f"{summary}, in attempt {number}"  # why the others failed are findings
    return extended(last, earlier, end, summary)


def named(attempt: Attempt) -> str:
    return (attempt.failed or attempt.nodes)[0]
