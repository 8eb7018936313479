"""The last line of a run: its outcome in one sentence, after a word in capitals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALM = ("healthy", "degraded")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")  # ssh errors contain the address of their node


class Stop(NamedTuple):
    """The task at which a node stopped, and why."""

    task: str
    why: str


@dataclass(frozen=True)
class RunEnding:
    """The facts from which the last line is composed.

    book: the playbook's file name, empty if no line is printed. contacts: whether it contacts nodes. nodes: their
    number. changed: nodes that were changed, or in check mode would be. failures: node -> where it stopped and why.
    where: path of the report or other details. reminder: a warning for successful runs. outcome: the result, if the
    playbook has its own sentence. unfinished: state of the failed nodes until the run is finished, and how to finish
    it; a sentence without its subject. closing: {status, text} that replaces the whole line.
    """

    book: str = ""
    contacts: bool = True
    check: bool = False
    nodes: int = 0
    changed: Sequence[str] = ()
    failures: Mapping[str, Stop] = field(default_factory=dict)
    verdict: Mapping[str, Any] | None = None
    where: str = ""
    reminder: str = ""
    closing: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = ""
    unfinished: str = ""


def last_line(end: RunEnding) -> tuple[str, str]:
    """Return the status, for the colour, and the line; both are empty if nothing is printed."""
    if end.closing:
        return str(end.closing["status"]), str(end.closing["text"])
    where = f" ({end.where})" if end.where else ""
    status, sentence = _ending(end)
    # A failed run gets only its failure, without the reminder.
    if end.reminder and status in CALM:
        status, sentence = "degraded", f"{sentence}, but {end.reminder}"
    return (status, f"{sentence}{where}") if sentence else ("", "")


def _ending(end: RunEnding) -> tuple[str, str]:
    if end.verdict is not None:
        status = str(end.verdict["status"])
        if status not in CALM:
            return status, f"{status.upper()}: {end.verdict['summary']}"
        if end.failures:
            return status, f"{_calm(end, status)}, but before that {_stops(end.failures)}"
        return status, _calm(end, status)
    if end.failures:
        left = f". {few(list(end.failures))} {end.unfinished}" if end.unfinished else ""
        return "stopped", f"STOPPED: {_stops(end.failures)}{left}"
    if end.outcome:
        return "healthy", f"CHECKED: without --check, {end.outcome}" if end.check else f"DONE: {end.outcome}"
    if end.book and not end.contacts:
        what = f"found no problems in the inventory ({_all_of(end)})"
        return "healthy", f"DONE: {end.book} {what}; no node was contacted or changed"
    if end.book and end.check:
        return "healthy", _checked(end)
    if end.book:
        named = f"changed {few(end.changed)}" if end.changed else f"changed nothing on {_all_of(end)}"
        return "healthy", f"DONE: {end.book} {named}"
    return "", ""


def _calm(end: RunEnding, status: str) -> str:
    """Return the sentence of a run without failures: warnings were printed before, so only the first is named."""
    summary = str((end.verdict or {})["summary"])
    warned = [one for one in (end.verdict or {}).get("findings", []) if one["status"] == "warn"]
    if end.check:
        counted = f"; the health checks report {plural(len(warned), 'warning')}" if warned else ""
        return f"{_checked(end)}{counted}"
    if status == "degraded" and warned:
        more = f"; the first on {warned[0]['node']}: {warned[0]['summary']}" if len(warned) > 1 else _of(warned[0])
        return f"{status.upper()}: {summary}, with {plural(len(warned), 'warning')}{more}"
    return f"{status.upper()}: {summary}"


def _of(warning: Mapping[str, Any]) -> str:
    return f" on {warning['node']}: {warning['summary']}"


def _checked(end: RunEnding) -> str:
    """Return the sentence of check mode, with the nodes that a run without --check would change."""
    does = f"change {few(end.changed)}" if end.changed else f"change nothing on {_all_of(end)}"
    return f"CHECKED: nothing was changed; without --check, the run would {does}"


def _all_of(end: RunEnding) -> str:
    return plural(end.nodes, "node")


def _stops(failures: Mapping[str, Stop]) -> str:
    """Return the first reason with all nodes that it stopped, and only the names of nodes with other reasons."""
    # A reason may begin with its node's name, which the line already contains.
    reasons = {node: stop.why.removeprefix(f"{node}: ") for node, stop in failures.items()}
    first, why = next(iter(reasons.items()))
    same = [node for node, each in reasons.items() if ADDRESS.sub("", each) == ADDRESS.sub("", why)]
    others = [node for node in failures if node not in same]
    more = f" ({few(others)}: another reason)" if others else ""
    return f"{few(same)} at '{failures[first].task}': {why}{more}"
