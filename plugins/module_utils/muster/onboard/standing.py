"""How far a node has come: what the inventory says of it, and whether that lets it be onboarded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# How the reason of a quarantine begins that onboarding itself has set: it may go on there.
BEGUN = "being onboarded"
REFUSED = "not accepted: "
NEW, UNFINISHED, MEMBER = "new", "unfinished", "member"


def is_ours(reason: str) -> bool:
    return reason.startswith((BEGUN, REFUSED.rstrip()))


def standing(known: Mapping[str, Any] | None) -> str:
    """known: {quarantined, reason} of the inventory; None where it does not have the node. "" for none of ours."""
    if known is None:
        return NEW
    if not known["quarantined"]:
        return MEMBER
    return UNFINISHED if is_ours(known["reason"]) else ""


def problems(
    asked: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]], elsewhere: Mapping[str, str]
) -> list[str]:
    """Why nodes cannot be onboarded as they are asked for. known: the inventory's, {quarantined, reason, address}.

    elsewhere: names of the inventory that are in no gpu_nodes, and the group that they are in.
    """
    found = []
    for one in asked:
        name, own = one["name"], known.get(one["name"])
        if name in elsewhere:
            found.append(f"{name} is in the inventory already, in {elsewhere[name]}. Give the node another name.")
        if own is None:
            continue
        address = one["variables"]["ansible_host"]
        if own["address"] and address and own["address"] != address:
            found.append(
                f"{name} is in the inventory with another address, {own['address']}, and was given {address} now."
                " Correct one of them, or give the node another name."
            )
        if own["quarantined"] and not is_ours(own["reason"]):
            why = f" ({own['reason']})" if own["reason"] else ""
            release = playbook("playbooks/release.yml", node=name)
            found.append(f"{name} is in the inventory and quarantined{why}. When that is over, type: {release}")
    return found
