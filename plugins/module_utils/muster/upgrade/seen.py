"""Read a node's report about its environments and the processes that use it, and describe the processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..gpu_info.processes import describe, keeps_ready
from ..verdict.masking import masked_command
from ..verdict.printable import printable
from .previous import Environments, environments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEXTS = ("name", "owner", "cgroup", "launch", "command")
MOST = 200  # processes and environments
MOST_TEXT = 4000
MOST_COMMAND = 60


@dataclass(frozen=True)
class UpgradeNodeFacts:
    """The report of one node. silent: why its state is unknown."""

    busy: tuple[str, ...] = ()
    environments: Environments = field(default_factory=Environments)
    silent: str = ""


def read(answer: Any) -> UpgradeNodeFacts:
    """Read the report of a node.

    Processes that could not be inspected are treated as busy, so that they are not disturbed.
    """
    if not isinstance(answer, dict):
        return UpgradeNodeFacts(silent="the node's response is invalid")
    why, link, names = (answer.get(name) for name in ("why", "link", "environments"))
    lists = isinstance(answer.get("processes"), list) and isinstance(names, list)
    if not lists or not isinstance(link, str) or not isinstance(why, str):
        return UpgradeNodeFacts(silent="the node's response is invalid")
    found = [_process(one) for one in answer["processes"][:MOST]]
    busy = at_work([one for one in found if one], str(answer.get("uptime", ""))[:MOST_TEXT])
    unseen = (why[:MOST_TEXT],) if why else ()
    texts = [name for name in names or [] if isinstance(name, str)]
    return UpgradeNodeFacts((*unseen, *busy), environments(link, texts[:MOST]))


def _process(one: Any) -> Mapping[str, Any] | None:
    if not isinstance(one, dict) or not isinstance(one.get("pid"), int):
        return None
    devices = one.get("devices")
    started = one.get("started")
    return {
        "pid": one["pid"],
        **{name: str(one.get(name, ""))[:MOST_TEXT] for name in TEXTS},
        "started": started if isinstance(started, (int, float)) else None,
        "devices": [str(path) for path in devices] if isinstance(devices, list) else [],
        "runs_from": one.get("runs_from") is True,
        "people": one.get("people") is True,
    }


def at_work(processes: Iterable[Mapping[str, Any]], uptime: str) -> tuple[str, ...]:
    """Return one text for each launch and for each other process.

    Daemons that only keep GPUs initialised are left out.
    """
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
    return "runs from the environment" if process["runs_from"] else "would be stopped by the reboot"


def _seconds(uptime: str) -> float:
    first = (uptime.split() or ["0"])[0]
    return float(first) if first.replace(".", "", 1).isdigit() else 0.0


def _word(text: Any) -> str:
    return " ".join(printable(str(text)[:MOST_COMMAND]).split())
