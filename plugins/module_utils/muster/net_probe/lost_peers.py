"""Whether the peers of a node that the controller does not reach any more reach it still.

Nothing has to listen there: a call that is refused is answered, too, and by the machine itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.finding import evidence
from ..verdict.words import few
from . import links
from .reach import PEER_DROPPED, PEER_HANGS, PEER_UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..launch.planned import LaunchPlan, PlannedNode
    from ..verdict.finding import Finding

SSH = 22
SILENT = ("dropped", "no_route")  # what no machine answers


def request(plan: LaunchPlan, entry: PlannedNode, lost: Sequence[str], token: str) -> dict[str, Any]:
    """What a node is asked to call: each lost one, on ports that answer or refuse on any machine that is up."""
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
    """Whether a call was taken, which the kernel does by itself, and nothing was said: sshd speaks first."""
    return entry is not None and not entry["error"] and not entry["spoke"]


def judge(node: str, called: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """What stands against a lost node. called: what each peer said of its link to it."""
    came: dict[str, dict[int, str]] = {}
    for peer, seen in called.items():
        entries = seen.get("ports", {})
        came[peer] = {int(port): links.classify(entry, node, seen) for port, entry in entries.items()}
    tried = {peer: ports for peer, ports in came.items() if ports}
    mute = [peer for peer in tried if is_mute(called[peer]["ports"].get(str(SSH)))]
    if tried and len(mute) == len(tried):
        said = f"{few(mute)} can call it, and nothing there says a word"
        return [PEER_HANGS.fail(node, said, evidence=evidence("calls", f"port {SSH}: taken, and silent"))]
    if not tried or any(outcome not in SILENT for ports in tried.values() for outcome in ports.values()):
        return []
    gone = any(outcome == "no_route" for ports in tried.values() for outcome in ports.values())
    shown = "; ".join(
        f"{peer}: {', '.join(f'{port} {one}' for port, one in ports.items())}" for peer, ports in tried.items()
    )
    return [
        (PEER_UNREACHABLE if gone else PEER_DROPPED).fail(
            node,
            f"{few(list(tried))} cannot call it either, on any port that was tried",
            evidence=evidence("calls", shown),
        )
    ]
