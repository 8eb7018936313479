"""The last line of a run: one sentence of what came of it, after a word in capitals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALM = ("healthy", "degraded")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")  # ssh names that of its node in whatever it says


class Stop(NamedTuple):
    """The task at which a node stopped, and why."""

    task: str
    why: str


@dataclass(frozen=True)
class RunEnding:
    """What is known when a run ends.

    book: the playbook's file name, empty where nothing is to be said of its end. contacts: whether it contacts nodes.
    nodes: how many there are. changed: those on which something was, or in check mode is to be. failures: node ->
    where it stopped and why. where: the page, or what else to read. reminder: what a run that went well must not let
    anybody miss. outcome: what came of it, where the playbook has a sentence of its own. unfinished: what holds for the
    nodes of failures until the run is finished, and how to finish it: a sentence without its subject. closing: {status,
    text} where the whole line is its own.
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
    """Return the status, for the colour, and the line; both empty where there is nothing to say."""
    if end.closing:
        return str(end.closing["status"]), str(end.closing["text"])
    where = f" ({end.where})" if end.where else ""
    status, sentence = _ending(end)
    # Of a run that did not go well one reason is enough.
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
        what = f"found no problem in the inventory of {_all_of(end)}"
        return "healthy", f"DONE: {end.book} {what}, contacted none and changed nothing"
    if end.book and end.check:
        return "healthy", _checked(end)
    if end.book:
        named = f"changed {few(end.changed)}" if end.changed else f"changed nothing on {_all_of(end)}"
        return "healthy", f"DONE: {end.book} {named}"
    return "", ""


def _calm(end: RunEnding, status: str) -> str:
    """Nothing failed. The warnings were shown one by one before; here they are counted, and the first is named."""
    summary = str((end.verdict or {})["summary"])
    warned = [one for one in (end.verdict or {}).get("findings", []) if one["status"] == "warn"]
    if end.check:
        counted = f", and health has {plural(len(warned), 'warning')} as things are" if warned else ""
        return f"{_checked(end)}{counted}"
    if status == "degraded" and warned:
        more = f", the first about {warned[0]['node']}: {warned[0]['summary']}" if len(warned) > 1 else _of(warned[0])
        return f"{status.upper()}: {summary}, with {plural(len(warned), 'warning')}{more}"
    return f"{status.upper()}: {summary}"


def _of(warning: Mapping[str, Any]) -> str:
    return f" about {warning['node']}: {warning['summary']}"


def _checked(end: RunEnding) -> str:
    """A check ends with what a run does: whether it is worth one is why it was made."""
    does = f"changes {few(end.changed)}" if end.changed else f"changes nothing on {_all_of(end)}"
    return f"CHECKED: nothing was changed, and a run without --check {does}"


def _all_of(end: RunEnding) -> str:
    return plural(end.nodes, "node")


def _stops(failures: Mapping[str, Stop]) -> str:
    """The first reason, with all the nodes that it stopped, and only the names of those that others did."""
    # A sentence may begin with its node's name, which the line has already.
    reasons = {node: stop.why.removeprefix(f"{node}: ") for node, stop in failures.items()}
    first, why = next(iter(reasons.items()))
    same = [node for node, each in reasons.items() if ADDRESS.sub("", each) == ADDRESS.sub("", why)]
    others = [node for node in failures if node not in same]
    more = f" (and {few(others)} for another reason)" if others else ""
    return f"{few(same)} at '{failures[first].task}': {why}{more}"
