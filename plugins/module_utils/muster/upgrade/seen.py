"""What a node says of who is at work there and of its environments, as far as it can be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .busy import at_work
from .previous import Environments, environments

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXTS = ("name", "owner", "cgroup", "launch", "command")
MOST = 200  # processes and environments that are read
MOST_TEXT = 4000


@dataclass(frozen=True)
class UpgradeNodeFacts:
    """Of one node. silent: why nothing is known."""

    busy: tuple[str, ...] = ()
    environments: Environments = field(default_factory=Environments)
    silent: str = ""


def read(answer: Any) -> UpgradeNodeFacts:
    """What nobody could look at counts as somebody's work: nobody is disturbed for not being seen."""
    if not isinstance(answer, dict):
        return UpgradeNodeFacts(silent="its answer is of no use")
    why, link, names = (answer.get(name) for name in ("why", "link", "environments"))
    lists = isinstance(answer.get("processes"), list) and isinstance(names, list)
    if not lists or not isinstance(link, str) or not isinstance(why, str):
        return UpgradeNodeFacts(silent="its answer is of no use")
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
