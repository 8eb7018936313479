"""Evaluates the state of each node and of the cluster: which nodes are ready, who uses the GPUs, and which problems
exist.

In the inventory, a quarantine is `true` or a mapping with reason, author and date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..health.host import LEAST_FREE, LITTLE_FREE
from ..members.quarantine import PARTS
from ..verdict.majority import vote
from ..verdict.words import age, gigabytes, plural
from . import past as kept
from .names import numbers, together
from .past import LAYERS, PastRuns, PastVerdict
from .seen import NodeFacts, read, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .seen import NodeHolder

READY, NOT_READY, UNKNOWN, QUARANTINED, SILENT = "ready", "not ready", "unknown", "quarantined", "no answer"
TITLES = {"driver": "driver", "cuda": "CUDA", "torch": "PyTorch", "kernel": "kernel"}
LATE = "did not answer within"
CLOCK_SECONDS = 5.0  # clock offset from which a note is shown
MOST = 300  # characters of a reason


@dataclass(frozen=True)
class StatusNode:
    """A node of the inventory. ranks: the node's ranks in a launch on all nodes; empty if the node does not participate
    in launches."""

    name: str
    gpus: int = 0
    ranks: tuple[int, ...] = ()
    quarantine: Quarantine | None = None
    torch: str = ""  # the requested release
    environment: str = ""


@dataclass(frozen=True)
class StatusFacts:
    """The facts from which the status is computed. answers: by node; clock_off in an answer is how many seconds the
    node's clock is ahead of the controller's. silent: by node, why the node did not respond. not_root: by node, why
    facts that require root are missing. now: time by the controller's clock. time: the same time for display."""

    cluster: str
    nodes: Sequence[StatusNode]
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    not_root: Mapping[str, str] = field(default_factory=dict)
    past: PastRuns = field(default_factory=PastRuns)
    now: float = 0.0
    time: str = ""


@dataclass(frozen=True)
class NodeStatus:
    """The state of one node. why: the reasons why the node is not ready. notes: other remarks.

    gpus: number of GPUs that the node has or should have. free: number of unused GPUs. unknown: number of GPUs whose
    use cannot be determined.
    """

    node: StatusNode
    state: str
    seen: NodeFacts | None = None
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gpus: int = 0
    free: int = 0
    unknown: int = 0

    @property
    def holders(self) -> Sequence[NodeHolder]:
        return tuple(dict.fromkeys(one for _, one in self.held)) if self.seen else ()

    @property
    def held(self) -> list[tuple[int | None, NodeHolder]]:
        """Return (GPU number, user of the GPU). The number is None for a launch that uses the CPUs."""
        if self.seen is None:
            return []
        gpus = [(number, one) for number, who in sorted(self.seen.holders.items()) for one in who]
        return [*gpus, *((None, one) for one in self.seen.processors)]


@dataclass(frozen=True)
class ClusterStatus:
    """The state of the cluster, from which the screen, the JSON output and the last line are generated."""

    cluster: str
    time: str
    rows: Sequence[NodeStatus]
    smoke: PastVerdict
    health: PastVerdict
    drift: PastVerdict
    differ: Sequence[str] = ()  # a sentence for each version that differs
    common: Mapping[str, str] = field(default_factory=dict)  # the versions of most nodes
    changed: str = ""  # since the accepted state

    @property
    def of_launches(self) -> list[NodeStatus]:
        return [row for row in self.rows if row.state != QUARANTINED]

    @property
    def all_ready(self) -> bool:
        """Return whether every node that is not quarantined is ready."""
        return all(row.state == READY for row in self.of_launches)


def ranks_of(nproc: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each node that participates in launches. nproc: number of processes by node, in inventory
    order."""
    found: dict[str, tuple[int, ...]] = {}
    first = 0
    for name, count in nproc.items():
        found[name] = tuple(range(first, first + count))
        first += count
    return found


def status(given: StatusFacts) -> ClusterStatus:
    smoke = kept.smoke(given.past.smoke, given.past.book, given.now)
    health = kept.health(given.past.health, given.now)
    rows = [_row(node, given, health) for node in given.nodes]
    versions = {row.node.name: dict(row.seen.versions) for row in rows if row.seen}
    common, differ = _versions(versions)
    return ClusterStatus(
        given.cluster,
        given.time,
        rows,
        smoke,
        health,
        kept.drift(given.past.drift, given.now),
        differ,
        common,
        kept.changed_since_accepted(given.past.book, versions),
    )


def _row(node: StatusNode, given: StatusFacts, health: PastVerdict) -> NodeStatus:
    answer = given.answers.get(node.name)
    if answer is None:
        why = given.silent.get(node.name, "not asked")
        state = QUARANTINED if node.quarantine else SILENT
        reasons = [str(node.quarantine), f"no answer: {why}"] if node.quarantine else [why]
        return NodeStatus(node, state, why=tuple(reasons), gpus=node.gpus, unknown=node.gpus)
    seen = read(answer)
    total = max(node.gpus, len(seen.gpus), seen.devices)
    free = sum(number not in seen.holders and number not in seen.unknown for number in seen.gpus)
    against = [*_against(node, seen), *_of_health(node, health)]
    state = NOT_READY if against else UNKNOWN if _late(seen) else READY
    if node.quarantine:
        state, against = QUARANTINED, [str(node.quarantine), *against]
    elif state == UNKNOWN:
        against = [f"the GPUs could not be checked: {seen.why}"]
    notes = tuple(_notes(node, seen, answer, given.not_root.get(node.name, "")))
    # A GPU that is not listed is neither free nor used.
    unknown = total if seen.why else len(seen.unknown)
    return NodeStatus(node, state, seen, tuple(against), notes, total, free, unknown)


def _late(seen: NodeFacts) -> bool:
    return LATE in seen.why


def _against(node: StatusNode, seen: NodeFacts) -> Iterator[str]:
    if seen.why and not _late(seen):
        yield f"the GPUs cannot be used: {seen.why}"
    elif not seen.why and len(seen.gpus) < node.gpus:
        listed = f"{len(seen.gpus)} of {plural(node.gpus, 'GPU')} (cluster_gpus)"
        driver = "" if seen.versions.get("driver") else "; no NVIDIA driver is loaded"
        yield f"found {listed}{driver}"
    if seen.torch_why:
        yield seen.torch_why
    if seen.checked and seen.checked.fault:
        yield f"{seen.checked.fault} (own check, {age(seen.checked.age)} ago)"
    free = seen.disk.get("free")
    if seen.disk.get("read_only") is True:
        yield f"{_place(seen)} is read-only"
    elif isinstance(free, int) and free < LEAST_FREE:
        yield f"{gigabytes(free)} free on {_place(seen)}"


def _place(seen: NodeFacts) -> str:
    return text(seen.disk.get("path")) or "the disk"


def _of_health(node: StatusNode, health: PastVerdict) -> Iterator[str]:
    if node.name in health.failing:
        yield f"{health.failing[node.name]} (health, {health.ago})"


def _notes(node: StatusNode, seen: NodeFacts, answer: Mapping[str, Any], not_root: str) -> Iterator[str]:
    free, off = seen.disk.get("free"), answer.get("clock_off")
    if isinstance(free, int) and LEAST_FREE <= free < LITTLE_FREE:
        yield f"{gigabytes(free)} free on {_place(seen)}"
    if isinstance(off, (int, float)) and abs(off) > CLOCK_SECONDS:
        yield f"clock {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine"
    if seen.restart:
        yield "requires a restart"
    if seen.next_boot:
        yield seen.next_boot
    if seen.checked and seen.checked.note:
        yield f"{seen.checked.note} (own check, {age(seen.checked.age)} ago)"
    if seen.checked and seen.checked.past:
        yield seen.checked.past
    torch = seen.versions.get("torch", "")
    if node.torch and torch and torch.partition("+")[0] != node.torch.partition("+")[0]:
        yield f"PyTorch {torch} instead of the requested {node.torch}"
    if not seen.complete:
        yield "processes of other users are hidden, so the use of the GPUs is unknown"
    elif seen.unknown:
        why = f" ({not_root})" if not_root else ""
        yield f"whether launches use {_gpus(seen.unknown)} was not checked: requires root{why}"


def _gpus(which: frozenset[int]) -> str:
    return f"GPU{'s' if len(which) > 1 else ''} {numbers(which)}"


def _versions(versions: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the versions that most nodes have, and a sentence for each software layer in which nodes differ."""
    common, differ = {}, []
    for layer in LAYERS:
        votes = vote({name: said.get(layer) for name, said in versions.items()})
        if votes.usual is not None:
            common[layer] = str(votes.usual)
        if not votes.agree:
            spread = [f"{value} on {together(nodes)}" for value, nodes in reversed(votes.holders.items())]
            differ.append(f"{TITLES[layer]} differs: {'; '.join(spread)}")
    return common, differ


def sentence(status: ClusterStatus) -> str:
    """Return the last line, which summarizes the cluster."""
    ready = sum(row.state == READY for row in status.rows)
    counted = f"{ready} of {plural(len(status.rows), 'node')} ready"
    others = [_counted(state, status) for state in (QUARANTINED, SILENT) if _counted(state, status)]
    if others:
        counted += f" ({', '.join(others)})"
    smoke = f"last smoke {status.smoke.whole}" if status.smoke.run else "no smoke run yet"
    return f"{counted}, {_free(status)}; {smoke}"


def _counted(state: str, status: ClusterStatus) -> str:
    count = sum(row.state == state for row in status.rows)
    words = {QUARANTINED: "quarantined", SILENT: "not responding"}
    return f"{count} {words[state]}" if count else ""


def _free(status: ClusterStatus) -> str:
    """Count the free GPUs of ready nodes. If the cluster has no GPUs, count the free nodes."""
    total = sum(row.gpus for row in status.rows)
    usable = [row for row in status.rows if row.state == READY]
    if total:
        unknown = sum(row.unknown for row in usable)
        more = f" ({unknown} unknown)" if unknown else ""
        return f"{sum(row.free for row in usable)} of {plural(total, 'GPU')} free{more}"
    free = sum(not row.holders for row in usable)
    return f"{free or 'none'} of them without a launch" if usable else "none usable"


def as_dict(status: ClusterStatus) -> dict[str, Any]:
    """Return the status as JSON; docs/status.md describes the shape."""
    return {
        "schema": 1,
        "cluster": status.cluster,
        "time": status.time,
        "sentence": sentence(status),
        "ready": status.all_ready,
        "nodes": [_node(row) for row in status.rows],
        "versions": {"common": dict(status.common), "differ": list(status.differ)},
        "smoke": status.smoke.as_dict(),
        "health": status.health.as_dict(),
        "drift": {**status.drift.as_dict(), "since_accepted": status.changed},
    }


def _node(row: NodeStatus) -> dict[str, Any]:
    out = row.node.quarantine
    return {
        "name": row.node.name,
        "state": row.state,
        "why": list(row.why),
        "notes": list(row.notes),
        "ranks": list(row.node.ranks),
        "gpus": {"total": row.gpus, "free": row.free, "unknown": row.unknown},
        "holders": [
            {
                "gpus": [number for number, who in row.held if who == one and number is not None],
                "launch_id": one.launch_id,
                "user": one.user,
                "own": one.own,
                "pid": one.pid,
                "name": one.name,
                "what": one.what or "launch",
                "seconds": None if one.seconds is None else round(one.seconds),
            }
            for one in row.holders
        ],
        "versions": dict(row.seen.versions) if row.seen else {},
        "quarantine": {"reason": out.reason, "since": out.since, "by": out.by} if out else None,
        "looked": row.seen is not None,
        "root": bool(row.seen and row.seen.root),
    }


@dataclass(frozen=True)
class Quarantine:
    """The quarantine of a node. A part is empty if the inventory does not set it."""

    reason: str = ""
    since: str = ""
    by: str = ""

    def __str__(self) -> str:
        since = f"since {self.since}" if self.since else ""
        parts = [self.reason or "no reason given", since, f"by {self.by}" if self.by else ""]
        return ", ".join(part for part in parts if part)


def quarantine(value: bool | Mapping[str, Any]) -> Quarantine | None:
    """Return the quarantine of a node; None if the node is not quarantined. value: as read by
    muster/members/quarantine.py."""
    if isinstance(value, Mapping):
        return Quarantine(**{name: text(value.get(name), MOST) for name in PARTS})
    return Quarantine() if value else None
