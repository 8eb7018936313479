"""Test whether other nodes can still reach a node that the controller has lost.

The lost node needs no listener, because a refused connection also proves that the machine responds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.finding import evidence
from ..verdict.words import few
from . import links
from .reach import PEER, PEER_HANGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.planned import LaunchPlan, PlannedNode
    from ..verdict.finding import Finding

SSH = 22
SILENT = ("dropped", "no_route")  # outcomes without a reply


def request(plan: LaunchPlan, entry: PlannedNode, lost: Sequence[str], token: str) -> dict[str, Any]:
    """Return a request to connect to the lost nodes, on ports that every running machine accepts or refuses."""
    ports = ports_of(plan)
    peers = [
        {"node": one.node, "address": one.address, "names": [], "ports": ports}
        for one in plan.nodes
        if one.node in lost
    ]
    return {"token": token, "address": entry.address, "packets": 0, "peers": peers}


def ports_of(plan: LaunchPlan) -> list[int]:
    return list(dict.fromkeys([SSH, plan.master_port]))


def is_mute(entry: Mapping[str, Any] | None) -> bool:
    """Return whether the kernel accepted a connection but sshd, which has to send the first message, sent nothing."""
    return entry is not None and not entry["error"] and not entry["spoke"]


def judge(node: str, called: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Return the findings about a lost node. called: for each other node, its results for the link to the lost node."""
    came: dict[str, dict[int, str]] = {}
    for peer, seen in called.items():
        entries = seen.get("ports", {})
        came[peer] = {int(port): links.classify(entry, node, seen) for port, entry in entries.items()}
    tried = {peer: ports for peer, ports in came.items() if ports}
    mute = [peer for peer in tried if is_mute(called[peer]["ports"].get(str(SSH)))]
    if tried and len(mute) == len(tried):
        what = f"{few(mute)} can connect to the SSH port, but the server sends nothing"
        return [PEER_HANGS.fail(node, what, evidence=evidence("calls", f"port {SSH}: accepted, no data"))]
    if not tried or any(outcome not in SILENT for ports in tried.values() for outcome in ports.values()):
        return []
    gone = any(outcome == "no_route" for ports in tried.values() for outcome in ports.values())
    shown = "; ".join(
        f"{peer}: {', '.join(f'{port} {one}' for port, one in ports.items())}" for peer, ports in tried.items()
    )
    return [
        PEER["unreachable" if gone else "dropped"].fail(
            node,
            f"{few(list(tried))} cannot connect to this node on any tested port either",
            evidence=evidence("calls", shown),
        )
    ]
