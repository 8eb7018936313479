"""What cluster_quarantined may be, and what is said of it.

In the inventory it is true, false, or a mapping {reason, since, by}, with `automatic: true` where no person has looked
at it yet. A copy of the mapping is kept on the node, for launches by an inventory that says nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.printable import printable
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPTION = "cluster_quarantined"
PARTS = ("reason", "since", "by")
AUTOMATIC = "automatic"
SINCE = "%Y-%m-%d %H:%M UTC"
MOST = 300  # characters of a reason
# What Ansible would take for a template of its own, where the inventory is read.
TEMPLATE = ("{{", "{%", "{#")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

QUARANTINED = Check(
    "launch.quarantined",
    seen="sandbox",
    reads="the node's own copy of its quarantine, right before a launch",
    fires="the node was quarantined, and the inventory in use says nothing of it: an old copy of it, as a rule (fail)",
    fix="Launch by the inventory of today, or end the quarantine",
    command=playbook("playbooks/release.yml", node="NAME"),
)


def read(value: Any) -> bool | dict[str, Any]:
    """The value of the option. Raises ValueError, with what is wrong with it."""
    if isinstance(value, dict):
        return _mapping(value)
    word = str(value).strip().lower()
    if isinstance(value, (bool, str, int)) and word in (*_TRUE, *_FALSE):
        return word in _TRUE
    raise ValueError("is neither true, false, nor a mapping of reason, since and by")


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if unknown := [str(name) for name in value if name not in (*PARTS, AUTOMATIC)]:
        raise ValueError(f"has {few(unknown)}, and may have reason, since, by and automatic")
    said = {name: str(value[name]).strip() for name in PARTS if value.get(name) is not None}
    if not said.get("reason"):
        raise ValueError("has no reason; write why the node takes no part")
    automatic = value.get(AUTOMATIC) is not None and str(value[AUTOMATIC]).strip().lower() in _TRUE
    return {**said, **({AUTOMATIC: True} if automatic else {})}


def reason_of(text: str) -> str:
    """A reason as it is written down: on one line, bounded, and nothing that a terminal or Ansible would obey."""
    line = " ".join(printable(text).split())
    for mark in TEMPLATE:
        line = line.replace(mark, "( ")
    return line if len(line) <= MOST else f"{line[: MOST - 3]}..."


def entry(reason: str, by: str, since: str, *, automatic: bool = False) -> dict[str, Any]:
    """What the inventory says of a node from now on."""
    said: dict[str, Any] = {"reason": reason_of(reason), "since": since, "by": by}
    return {**said, AUTOMATIC: True} if automatic else said


def keeps(now: bool | Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the node is quarantined for this reason already; since when, and by whom first, stays as it is."""
    return isinstance(now, dict) and now["reason"] == wanted["reason"] and bool(now.get(AUTOMATIC)) is False


def words(value: bool | Mapping[str, Any]) -> str:
    """Since when, by whom and why, as the end of "it is quarantined"; nothing where it is not known."""
    if not isinstance(value, dict):
        return ""
    since = f" since {value['since']}" if value.get("since") else ""
    by = f" by {value['by']}" if value.get("by") else ""
    return f"{since}{by}: {value['reason']}"


def of_node(copy: Any) -> dict[str, Any] | None:
    """What a node keeps, read as the foreign text that it is; None where it keeps nothing that can be read."""
    if not isinstance(copy, dict) or not isinstance(copy.get("reason"), str):
        return None
    return {name: reason_of(copy[name]) for name in PARTS if isinstance(copy.get(name), str)}


def refused(node: str, copy: Any) -> list[Any]:
    """Why a launch by an inventory that says nothing of it does not begin there."""
    kept = of_node(copy)
    if kept is None:
        return []
    fix = "Take the inventory of today (playbooks/share.yml writes a folder anew), or end the quarantine with"
    return [
        QUARANTINED.fail(
            node,
            f"is quarantined{words(kept)}; the inventory in use says nothing of it",
            fix=fix,
            command=playbook("playbooks/release.yml", node=node),
        )
    ]


def problems(names: Sequence[str], nodes: Sequence[str], chosen: Sequence[str], reason: str | None) -> list[str]:
    """Why these cannot be quarantined (reason: why they shall be) or released (None), all at once.

    nodes: those of the inventory. chosen: cluster_launch_nodes.
    """
    found = [] if names else ["No node was named: add -e node=NAME, or several with commas."]
    found += [f"{name} is not in gpu_nodes, which has {few(nodes)}." for name in names if name not in nodes]
    if reason is None:
        return found
    if not reason.strip():
        found.append('No reason was given: add -e reason="...", for whoever finds the node left out.')
    found += [
        f"{name} is in cluster_launch_nodes: take it out of that list first, which would contradict its quarantine."
        for name in names
        if name in chosen
    ]
    return found


def ranks_said(nodes: Sequence[str]) -> str:
    """nodes: those that take part, in their order."""
    if not nodes:
        return "no node is left that takes part in launches"
    ranks = [f"{rank} {name}" for rank, name in enumerate(nodes)]
    shown = ranks if len(ranks) <= 8 else [*ranks[:3], "...", ranks[-1]]
    return f"{plural(len(nodes), 'node')} take{'s' if len(nodes) == 1 else ''} part, by node rank: {', '.join(shown)}"
