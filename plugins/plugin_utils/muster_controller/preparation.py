"""Before a launch starts: a look at every node, and whether all of them may take part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.launch import data, preflight
from muster.launch import plan as planning

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.launch.messages import Facts, Identity, PrepareRequest
    from muster.verdict.finding import Finding

    from .messages import Answer, Messages
    from .settings import Settings

PREPARE_TIMEOUT = 30.0


@dataclass
class Prepared:
    """plan: with what only the nodes know filled in, once nothing is refused. readers: who looks on each node."""

    plan: dict[str, Any]
    readers: dict[str, Identity] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return any(finding.status in ("fail", "unknown") for finding in self.findings)


def prepare(plan: dict[str, Any], settings: Settings, messages: Messages, give_up: Callable[[], bool]) -> Prepared:
    """Look at every node and judge it; give_up: whether to wait no longer for answers."""
    prepared = Prepared(plan)
    entries = {entry["node"]: entry for entry in plan["nodes"]}
    for name in entries:
        messages.ask(name, "identity", {})
    known = messages.gather("identity", entries, PREPARE_TIMEOUT, too_late, give_up)
    prepared.readers = {name: answer.data for name, answer in known.items() if answer.data is not None}
    for name in prepared.readers:
        messages.ask(name, "prepare", {**request_of(plan, entries[name], settings)}, privileged=True)
    answers = messages.gather("prepare", prepared.readers, PREPARE_TIMEOUT, too_late, give_up)
    seen: dict[str, Facts] = {}
    requested = preflight.Requested(
        settings.user,
        plan["backend"],
        settings.min_free_bytes,
        bool(settings.script_name),
        settings.shared,
        settings.begun_here,
    )
    for name, entry in entries.items():
        answer = (answers if name in prepared.readers else known).get(name)
        if answer is None or answer.data is None:
            prepared.findings.append(unanswered(name, answer))
            continue
        try:
            prepared.findings += preflight.judge(entry, answer.data, requested)
            prepared.reached.add(name)
            seen[name] = answer.data
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            why = f"what it reports is of no use ({type(exc).__name__}: {exc})"
            prepared.findings.append(preflight.not_looked_at(name, why, reachable=True))
    requested_data = plan.get("data", [])
    if requested_data:
        reports = {name: facts.get("data") for name, facts in seen.items()}
        prepared.findings += data.judge(requested_data, reports, settings.user)
    if not prepared.refused:
        completed = [planning.complete(entry, seen[entry["node"]], plan["backend"]) for entry in plan["nodes"]]
        prepared.plan = {**plan, "nodes": completed}
    return prepared


def request_of(plan: dict[str, Any], entry: dict[str, Any], settings: Settings) -> PrepareRequest:
    return {
        "user": settings.user,
        "executable": entry["argv"][0],
        "script": None if settings.script_name or in_project(entry) else script_of(entry),
        "chdir": settings.chdir or None,
        "run_root": str(Path(entry["run_dir"]).parent),
        "work_root": None if settings.chdir else str(Path(entry["work_dir"]).parent),
        "address": entry["address"],
        "port": plan["master_port"] if entry["node_rank"] == 0 else None,
        "gpus": plan["backend"] == "nccl",
        "data": plan.get("data", []),
    }


def script_of(entry: dict[str, Any]) -> str:
    return str(next(word for word in entry["argv"][1:] if not word.startswith("--")))


def in_project(entry: dict[str, Any]) -> bool:
    """Whether the script comes with the project, so that it is not there yet."""
    return script_of(entry).startswith(f"{entry['run_dir']}/{planning.PROJECT}/")


def unanswered(name: str, answer: Answer | None) -> Finding:
    why = answer.error if answer else f"no answer within {PREPARE_TIMEOUT:.0f} s"
    return preflight.not_looked_at(name, why, reachable=answer is not None and answer.reachable)


def too_late(_answer: Answer) -> None:
    """Nothing else is asked before the start, so what comes late is of no use any more."""
