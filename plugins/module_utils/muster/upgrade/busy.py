"""Who is at work on a node, in words: none of them is disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info.processes import describe, keeps_ready
from ..verdict.masking import masked_command
from ..verdict.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_COMMAND = 60


def at_work(processes: Iterable[Mapping[str, Any]], uptime: str) -> tuple[str, ...]:
    """One text for each launch, and for each process that is of none. Daemons that keep GPUs ready do no work."""
    now = _seconds(uptime)
    found: dict[str, None] = {}
    for process in processes:
        if process["launch"]:
            found[f"launch {process['launch']} of {_word(process['owner'])}"] = None
        elif process["runs_from"] or process["people"] or not keeps_ready(describe(process, now)):
            what = _what(process)
            command = _word(masked_command(process["command"])) or _word(process["name"])
            found[f"PID {process['pid']} of {_word(process['owner'])} ({command}) {what}"] = None
    return tuple(found)


def _what(process: Mapping[str, Any]) -> str:
    if process["devices"]:
        return f"has {_word(process['devices'][0])} open"
    return "runs from its environment" if process["runs_from"] else "would be ended by the restart"


def _seconds(uptime: str) -> float:
    first = (uptime.split() or ["0"])[0]
    return float(first) if first.replace(".", "", 1).isdigit() else 0.0


def _word(text: Any) -> str:
    return " ".join(printable(str(text)[:MOST_COMMAND]).split())
