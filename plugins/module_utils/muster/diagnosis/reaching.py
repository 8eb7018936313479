"""Places and questions of causes between nodes: which node cannot connect to which.

A probe's finding names one node if most links of this node are bad, else a pair of nodes. The cause is reported at the
place of the finding.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ..verdict.commands import playbook
from .case import FOUND
from .model import CausePlace, Question, no, not_looked, yes
from .questions import MOST_SHOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ..verdict.commands import OnNode
    from ..verdict.finding import FindingShape
    from .case import LaunchCase
    from .model import CauseAnswer, Places, Symptom

# Symptoms of a node that could not connect to the head node.
CALLED_HEAD = (
    "store.connect.timeout",
    "store.connect.refused",
    "store.connect.unanswered",
    "store.connect.no_host",
    "store.connect.no_route",
    "store.connect.none",
    "store.name",
    "rendezvous.connection",
)
# Symptoms of the head node, or of all nodes, waiting for others.
WAITED = (
    *("store.clients", "store.barrier", "store.timeout", "store.members"),
    *("rendezvous.timeout", "launch.stalled"),
)
DROPPED = ("net.master_port.dropped", "net.peer.dropped", "net.ephemeral_ports.dropped")
UNKNOWN_SIDE = "dropped"
# Packets that a node sends the wrong way.
ASTRAY = ("net.peer.other_interface", "net.peer.neighbour")
STILL = ("T", "t", "D")
CALLED_PEER = ("gloo.connect.timeout", "gloo.connect.refused", "gloo.connect.no_host", "gloo.mesh", "ray.connect")
CUT = (
    *("gloo.closed", "gloo.timeout", "store.closed", "rendezvous.heartbeat", "rendezvous.closed"),
    *("nccl.timeout", "nccl.closed"),
)


def is_held_up(case: LaunchCase) -> bool:
    """Return whether a rank failed or is stopped. If so, symptoms of other ranks are a consequence."""
    ended = any(one.rank is not None and not one.cascade for one in case.all_failures)
    still = any(shot["state"] in STILL for _, shot in case.shots.values())
    return ended or still or any(one["frozen"] for one in case.seen["snapshots"].values())


def have_met(case: LaunchCase) -> bool:
    """Return whether the rendezvous was complete: all ranks were running and at least one was connected to the
    store."""
    if not case.shots or set(case.shots) < {rank for one in case.launch["nodes"] for rank in one["ranks"]}:
        return False
    sockets = [one for _, shot in case.shots.values() for one in shot["sockets"]]
    port = f":{case.launch['master_port']}"
    return not sockets or any(one["peer"].endswith(port) and one["state"] == "ESTABLISHED" for one in sockets)


def before_they_met(places: Places) -> Places:
    """Return a function that yields no places if the only symptom is a hang after a completed rendezvous."""

    def filtered(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        if {one.id for one in by} != {"launch.stalled"} or not have_met(case):
            yield from places(case, by)

    return filtered


def callers(case: LaunchCase, by: Sequence[Symptom]) -> list[str]:
    """Return the nodes that could not connect to the head node. If no node shows such a symptom, return all nodes
    except the head node."""
    called = [one.node for one in by if one.id in CALLED_HEAD and one.node and one.node != case.head]
    return list(dict.fromkeys(called)) or [node for node in case.nodes if node != case.head]


def ends_of(found: FindingShape) -> set[str]:
    return {found["node"], found.get("peer") or ""} - {""}


def of_checks(case: LaunchCase, checks: Collection[str]) -> Iterator[FindingShape]:
    return (one for one in case.seen["findings"] if one["id"] in checks and one["status"] in FOUND)


def place_of(found: FindingShape) -> CausePlace:
    """Return the place of a finding. what: of dropped packets, the side that drops them."""
    side = found.get("observed", UNKNOWN_SIDE) if found["id"] in DROPPED else ""
    return CausePlace(
        found["node"], found.get("peer") or "", what="typical of a firewall" if side == UNKNOWN_SIDE else side
    )


def ways_to_head(*checks: str) -> Places:
    """Return a function that yields the places of probe findings between the callers and the head node, and a place for
    each other pair of caller and head node."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        them = callers(case, by)
        for found in of_checks(case, checks):
            ends = ends_of(found)
            if ends <= {case.head, *them}:
                yield place_of(found)
        covered = {node for found in of_checks(case, checks) for node in ends_of(found)}
        for node in them:
            if not {node, case.head} & covered:
                yield CausePlace(node, case.head)

    return places


def ways_between(*checks: str) -> Places:
    """Return a function that yields the places of probe findings between participants, and the nodes that show a
    symptom (all nodes if none does)."""

    def places(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        nodes = set(case.nodes)
        found = [one for one in of_checks(case, checks) if ends_of(one) <= nodes]
        yield from map(place_of, found)
        covered = {node for one in found for node in ends_of(one)}
        shown = [(one.node, case.node_at(one.about.get("address", ""))) for one in by if one.node]
        for node, peer in shown or [(node, "") for node in case.nodes]:
            if node not in covered:
                yield CausePlace(node, peer if peer != node else "")

    return places


def probed(asks: str, *checks: str, by_hand: str | OnNode = "") -> Question:
    """Return a question that is answered "yes" if one of these checks found a problem at the same place after the
    failure."""

    def look(case: LaunchCase, place: CausePlace) -> CauseAnswer:
        for found in of_checks(case, checks):
            if place_of(found)[:2] == place[:2]:
                return yes(found["summary"][:MOST_SHOWN], f"{found['id']} on {found['node']}")
        for node in (place.node, place.peer):
            if node and not any(case.looked_for(check, node) for check in checks):
                why = case.seen["not_looked"].get(node, f"{checks[0]} was not checked on {node}")
                return not_looked(why)
        return no(f"{checks[0]} was checked", "net_probe")

    return Question(f"probe.{checks[0]}", asks, look, playbook("playbooks/health.yml"), by_hand)


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(text: str) -> bool:
    return is_address(text) and ipaddress.ip_address(text).is_loopback


def addresses_of(case: LaunchCase, node: str) -> set[str]:
    """Return all known addresses of a node, except loopback."""
    record = case.record(node)
    known = {case.planned[node]["address"]} if node in case.planned else set()
    if record:
        known |= {each for one in record["interfaces"].values() for each in one["addresses"]}
    return {one for one in known if one and not is_loopback(one)}


def at_head(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
    del by
    if case.head or case.is_only_a_log:
        yield CausePlace(case.head)
