"""Determine the onboarding state of a node from the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.commands import playbook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Prefixes of quarantine reasons that onboarding sets; onboarding may continue with these nodes.
BEGUN = "being onboarded"
REFUSED = "not accepted: "
NEW, UNFINISHED, MEMBER = "new", "unfinished", "member"


def is_ours(reason: str) -> bool:
    return reason.startswith((BEGUN, REFUSED.rstrip()))


def standing(known: Mapping[str, Any] | None) -> str:
    """Return the onboarding state; "" if the node is quarantined for another reason.

    known: {quarantined, reason}; None if the node is not in the inventory.
    """
    if known is None:
        return NEW
    if not known["quarantined"]:
        return MEMBER
    return UNFINISHED if is_ours(known["reason"]) else ""


def problems(
    asked: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]], elsewhere: Mapping[str, str]
) -> list[str]:
    """Return why nodes cannot be onboarded. known: {quarantined, reason, address} of each node, from the inventory.

    elsewhere: for each other name in the inventory, its group.
    """
    found = []
    for one in asked:
        name, own = one["name"], known.get(one["name"])
        if name in elsewhere:
            found.append(f"{name} is already in the inventory (group {elsewhere[name]}). Choose another name.")
        if own is None:
            continue
        address = one["variables"]["ansible_host"]
        if own["address"] and address and own["address"] != address:
            found.append(
                f"{name} is in the inventory with the address {own['address']}, but the given address is {address}."
                " Correct one of them, or give the node another name."
            )
        if own["quarantined"] and not is_ours(own["reason"]):
            why = f" ({own['reason']})" if own["reason"] else ""
            release = playbook("playbooks/release.yml", node=name)
            found.append(f"{name} is in the inventory and quarantined{why}. To end the quarantine, run: {release}")
    return found
