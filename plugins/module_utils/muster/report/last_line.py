"""The last line of a run: a word in capitals, followed by the result in one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALM = ("done", "healthy", "degraded")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")  # ssh puts the node's address into every message


class Stop(NamedTuple):
    """The task at which a node stopped, and why. for_all: the task runs only once, on the controller and on behalf of
    all nodes."""

    task: str
    why: str
    for_all: bool = False


@dataclass(frozen=True)
class RunEnding:
    """The state at the end of a run.

    book: file name of the playbook, empty for a playbook without a last line. contacts: whether the playbook contacts
    nodes. nodes: number of nodes. changed: nodes that were changed (in check mode: nodes that a run would change).
    failures: node -> the task where the node stopped, and why. where: path of the report or verdict. reminder: text
    that is added to the line of a successful run. outcome: the result, if the playbook provides its own wording.
    unfinished: state of the nodes in failures until the run is repeated, and how to repeat it: a sentence without its
    subject. closing: {status, text} that replaces the whole line.
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
    """Return (status, line). The status selects the colour. Both are empty for a run without a last line."""
    if end.closing:
        return str(end.closing["status"]), str(end.closing["text"])
    where = f" ({end.where})" if end.where else ""
    status, sentence = _ending(end)
    # The line of a failed run gives one reason only.
    if end.reminder and status in CALM:
        status, sentence = "degraded", f"{sentence}, but {end.reminder}"
    return (status, f"{sentence}{where}") if sentence else ("", "")


def _ending(end: RunEnding) -> tuple[str, str]:
    if end.verdict is not None:
        status = str(end.verdict["status"])
        if status not in CALM:
            return status, f"{status.upper()}: {end.verdict['summary']}"
        if end.failures:
            return status, f"{_calm(end, status)}, but earlier {_stops(end.failures)}"
        return status, _calm(end, status)
    if end.failures:
        own = [node for node, stop in end.failures.items() if not stop.for_all]
        left = f". {few(own)} {end.unfinished}" if end.unfinished and own else ""
        stopped = _stops(end.failures)
        return "stopped", f"STOPPED{' ' if stopped.startswith('at ') else ': '}{stopped}{left}"
    if end.outcome:
        return "done", f"CHECKED: without --check, {end.outcome}" if end.check else f"DONE: {end.outcome}"
    if end.book and not end.contacts:
        what = f"found no problems in the inventory ({_all_of(end)})"
        return "done", f"DONE: {end.book} {what}; no node was contacted or changed"
    if end.book and end.check:
        return "done", _checked(end)
    if end.book:
        named = f"changed {few(end.changed)}" if end.changed else f"changed nothing on {_all_of(end)}"
        return "done", f"DONE: {end.book} {named}"
    return "", ""


def _calm(end: RunEnding, status: str) -> str:
    """Return the line of a run in which nothing failed. All warnings were shown before; this line names the first
    warning and counts the others."""
    verdict = end.verdict or {}
    warned = [one for one in verdict.get("findings", []) if one["status"] == "warn"]
    if end.check:
        counted = f", and health currently has {plural(len(warned), 'warning')}" if warned else ""
        return f"{_checked(end)}{counted}"
    if status == "degraded" and warned:
        first = f"{warned[0]['node']}: {warned[0]['summary']}"
        more = f" (and {plural(len(warned) - 1, 'more warning')})" if len(warned) > 1 else ""
        return f"{status.upper()}: {first}{more}; {verdict['summary']}"
    return f"{status.upper()}: {verdict['summary']}"


def _checked(end: RunEnding) -> str:
    """Return what a run without --check would change on the nodes."""
    change = few(end.changed) if end.changed else f"nothing on {_all_of(end)}"
    return f"CHECKED: nothing was changed; without --check, the run would change {change}"


def _all_of(end: RunEnding) -> str:
    return plural(end.nodes, "node")


def _stops(failures: Mapping[str, Stop]) -> str:
    """Return the first reason with all nodes that stopped for it, and the names of the nodes that stopped for other
    reasons."""
    # A sentence may begin with the name of its node, which is in the line already.
    reasons = {node: headline(stop.why).removeprefix(f"{node}: ") for node, stop in failures.items()}
    first, why = next(iter(reasons.items()))
    same = [node for node, each in reasons.items() if ADDRESS.sub("", each) == ADDRESS.sub("", why)]
    others = [node for node in failures if node not in same]
    more = f" ({few(others)}: another reason)" if others else ""
    nodes = "" if failures[first].for_all else f"{few(same)} "
    return f"{nodes}at '{failures[first].task}': {why}{more}"


def headline(text: str) -> str:
    """Return one line of a message. If a list follows the first line, its first entry is shown, with the number of
    other entries."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    entries = [line[2:] for line in rest if line.startswith("- ")]
    if not entries:
        return " ".join([first, *rest[:1]]) if first.endswith(":") else first
    more = f" (and {len(entries) - 1} more)" if len(entries) > 1 else ""
    return f"{first} {entries[0]}{more}" if first.endswith(":") else f"{entries[0]}{more}"
