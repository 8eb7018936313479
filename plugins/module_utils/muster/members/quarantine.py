"""Validate cluster_quarantined, and describe a quarantine.

In the inventory, the value is true, false, or a mapping {reason, since, by}. The mapping contains `automatic: true`
until a person has reviewed the quarantine. The node keeps a copy of the mapping for launches whose inventory does not
contain the quarantine.
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
# Markers that Ansible would evaluate as a template when it reads the inventory.
TEMPLATE = ("{{", "{%", "{#")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

QUARANTINED = Check(
    "launch.quarantined",
    seen="sandbox",
    reads="the node's own copy of its quarantine, read before a launch",
    fires="the node is quarantined, but not in the inventory in use, which is typically an outdated copy (fail)",
    fix="Use the current inventory, or end the quarantine",
    command=playbook("playbooks/release.yml", node="NAME"),
)


def read(value: Any) -> bool | dict[str, Any]:
    """Return the value of the option. Raises ValueError with a description of the error."""
    if isinstance(value, dict):
        return _mapping(value)
    word = str(value).strip().lower()
    if isinstance(value, (bool, str, int)) and word in (*_TRUE, *_FALSE):
        return word in _TRUE
    raise ValueError("must be true, false, or a mapping of reason, since and by")


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if unknown := [str(name) for name in value if name not in (*PARTS, AUTOMATIC)]:
        raise ValueError(f"has unknown keys {few(unknown)}; use reason, since, by and automatic")
    said = {name: str(value[name]).strip() for name in PARTS if value.get(name) is not None}
    if not said.get("reason"):
        raise ValueError("has no reason; add the reason for the quarantine")
    automatic = value.get(AUTOMATIC) is not None and str(value[AUTOMATIC]).strip().lower() in _TRUE
    return {**said, **({AUTOMATIC: True} if automatic else {})}


def reason_of(text: str) -> str:
    """Return the reason in the form in which it is stored: one line of limited length, without control or template
    characters.
    """
    line = " ".join(printable(text).split())
    for mark in TEMPLATE:
        line = line.replace(mark, "( ")
    return line if len(line) <= MOST else f"{line[: MOST - 3]}..."


def entry(reason: str, by: str, since: str, *, automatic: bool = False) -> dict[str, Any]:
    """Return the new value of cluster_quarantined for the inventory."""
    said: dict[str, Any] = {"reason": reason_of(reason), "since": since, "by": by}
    return {**said, AUTOMATIC: True} if automatic else said


def keeps(now: bool | Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the node is already quarantined for this reason. In that case, `since` and `by` stay unchanged."""
    return isinstance(now, dict) and now["reason"] == wanted["reason"] and bool(now.get(AUTOMATIC)) is False


def words(value: bool | Mapping[str, Any]) -> str:
    """Return since when, by whom and why a node is quarantined, to follow "is quarantined"; "" if unknown."""
    if not isinstance(value, dict):
        return ""
    since = f" since {value['since']}" if value.get("since") else ""
    by = f" by {value['by']}" if value.get("by") else ""
    return f"{since}{by}: {value['reason']}"


def of_node(copy: Any) -> dict[str, Any] | None:
    """Return the node's copy, sanitized because it is untrusted input; None if there is no valid copy."""
    if not isinstance(copy, dict) or not isinstance(copy.get("reason"), str):
        return None
    return {name: reason_of(copy[name]) for name in PARTS if isinstance(copy.get(name), str)}


def refused(node: str, copy: Any) -> list[Any]:
    """Return the finding that blocks a launch whose inventory does not contain the node's quarantine."""
    kept = of_node(copy)
    if kept is None:
        return []
    fix = "Use the current inventory (playbooks/share.yml updates a shared folder), or end the quarantine with"
    return [
        QUARANTINED.fail(
            node,
            f"is quarantined{words(kept)}, but the inventory in use does not contain the quarantine",
            fix=fix,
            command=playbook("playbooks/release.yml", node=node),
        )
    ]


def problems(names: Sequence[str], nodes: Sequence[str], chosen: Sequence[str], reason: str | None) -> list[str]:
    """Return all reasons why these nodes cannot be quarantined or released. reason: text of the quarantine; None to
    release the nodes.

    nodes: nodes of the inventory. chosen: cluster_launch_nodes.
    """
    found = [] if names else ["No node was given: add -e node=NAME, or -e node=NAME1,NAME2."]
    found += [f"{name} is not in gpu_nodes, which contains {few(nodes)}." for name in names if name not in nodes]
    if reason is None:
        return found
    if not reason.strip():
        found.append('No reason was given: add -e reason="...", with the reason for the quarantine.')
    found += [
        f"{name} is in cluster_launch_nodes. Remove it from cluster_launch_nodes first."
        for name in names
        if name in chosen
    ]
    return found


def ranks_said(nodes: Sequence[str]) -> str:
    """Describe which nodes take part in launches. nodes: the participants, by node rank."""
    if not nodes:
        return "no node is left that takes part in launches"
    ranks = [f"{rank} {name}" for rank, name in enumerate(nodes)]
    shown = ranks if len(ranks) <= 8 else [*ranks[:3], "...", ranks[-1]]
    return f"{plural(len(nodes), 'node')} take{'s' if len(nodes) == 1 else ''} part, by node rank: {', '.join(shown)}"
