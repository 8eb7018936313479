"""Causes in the network after the rendezvous: blocked ports, lost packets, link failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...verdict.commands import OnNode, playbook
from ..model import Cause, CausePlace, Question, no, not_looked, yes
from ..reaching import ASTRAY, CALLED_HEAD, CALLED_PEER, CUT, WAITED, is_held_up, probed, ways_between
from .address import each_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..case import LaunchCase
    from ..evidence import NodeRecord
    from ..model import CauseAnswer, Places, Symptom

LINK_LINES = ("Link is Down", "link is down", "link down", "NIC Link is Down", "link becomes down")
MOST_RESENT = 0.01  # share of all sent segments; healthy networks stay far below
SOME_RESENT = 100
HANGS = ("launch.stalled", "gloo.timeout", "nccl.timeout")
TRANSFERS = (*HANGS, *CUT)


def unless_held_up(places: Places) -> Places:
    """Yield no places if a rank failed first or is stopped. In that case, waiting ranks and lost connections do not
    show that the network is at fault."""

    def filtered(case: LaunchCase, by: Sequence[Symptom]) -> Iterator[CausePlace]:
        if not is_held_up(case):
            yield from places(case, by)

    return filtered


def link_was_gone(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    interface = case.planned[place.node]["interface"]
    grown = case.grown(place.node, lambda record: changes_of(record, interface))
    if grown is None:
        return not_looked(case.why_not(place.node, "interfaces"))
    if grown > 0:
        return yes(f"carrier_changes of {interface} increased by {grown}", f"counters of {place.node}")
    return no(f"carrier_changes of {interface} did not increase", f"counters of {place.node}")


def changes_of(record: NodeRecord, interface: str) -> int | None:
    found = record["interfaces"].get(interface)
    return found["counters"].get("carrier_changes") if found else None


def link_in_kernel_log(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["end"].get(place.node)
    interface = case.planned[place.node]["interface"]
    if record is None or record["kernel"] is None:
        return not_looked(case.why_not(place.node, "kernel"))
    for line in record["kernel"]:
        if interface and interface in line["text"] and any(words in line["text"] for words in LINK_LINES):
            return yes(line["text"], f"kernel log of {place.node}", line["at"])
    return no("the kernel logged no link failure", f"kernel log of {place.node}")


def link_is_down(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    record = case.seen["end"].get(place.node)
    found = record["interfaces"].get(case.planned[place.node]["interface"]) if record else None
    if found is None:
        return not_looked(case.why_not(place.node, "interfaces"))
    if not found["up"] or found["carrier"] is False:
        return yes(f"{case.planned[place.node]['interface']} is down", f"interfaces of {place.node}")
    return no("the interface is up", f"interfaces of {place.node}")


def sends_again(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    again = case.grown(place.node, lambda record: record["counters"].get("tcp.RetransSegs"))
    sent = case.grown(place.node, lambda record: record["counters"].get("tcp.OutSegs"))
    if again is None:
        return not_looked(case.why_not(place.node, "counters"))
    if again >= SOME_RESENT and (not sent or again / sent >= MOST_RESENT):
        return yes(f"{again}{f' of {sent}' if sent else ''} segments were retransmitted", f"counters of {place.node}")
    return no(f"{again} segments were retransmitted", f"counters of {place.node}")


def waits_for_answers(case: LaunchCase, place: CausePlace) -> CauseAnswer:
    """Check whether a rank had sent data that was not yet acknowledged when the launch was stopped."""
    shot = case.seen["snapshots"].get(place.node)
    if shot is None:
        return not_looked(f"{place.node} was not inspected before the launch was stopped")
    for rank in shot["ranks"]:
        for one in rank["sockets"]:
            peer = case.node_at(one["peer"].rpartition(":")[0].strip("[]"))
            if one["queued"] and one["retransmits"] and (not place.peer or peer == place.peer):
                said = f"{one['queued']} unacknowledged bytes to {one['peer']}, {one['retransmits']} retransmissions"
                return yes(f"rank {rank['rank']}: {said}", "connection snapshot")
    return no("no unacknowledged data", "connection snapshot")


PORTS = ("net.ephemeral_ports.dropped", "net.peer.dropped")
REFUSED = ("net.ephemeral_ports.refused", "net.ephemeral_ports.prohibited", "net.peer.refused", "net.peer.prohibited")
RULES = OnNode("nft list ruleset", become=True)
LET_IN = playbook("site.yml", tags="network")
RESENT = Question("net.resent", "did {node} retransmit many segments?", sends_again, OnNode("ip -statistics link"))
WAITING = Question("net.waiting", "has {node} sent data that was not acknowledged?", waits_for_answers)
LINK_GONE = Question(
    "link.gone",
    "was the link of {node} down during the launch?",
    link_was_gone,
    OnNode("ip -statistics link"),
)
LINK_LOGGED = Question(
    "link.logged",
    "does the kernel log of {node} report that the link was down?",
    link_in_kernel_log,
    OnNode("journalctl --dmesg --lines=50", become=True),
)
LINK_DOWN = Question("link.down", "is the training interface of {node} down?", link_is_down, OnNode("ip -brief link"))

CAUSES = (
    Cause(
        "network.ports_filtered",
        scope="link",
        says="packets to ephemeral ports are dropped ({what}), so ranks cannot reach each other after the rendezvous",
        fix="On the nodes and on any firewall in between, allow traffic between the cluster nodes on all ports",
        command=LET_IN,
        symptoms=(*CALLED_PEER, *HANGS, "nccl.connect", "nccl.system_error", "nccl.starting"),
        places=unless_held_up(ways_between(*PORTS)),
        confirm=(probed("are packets to ephemeral ports of {node} dropped?", *PORTS, by_hand=RULES),),
    ),
    Cause(
        "network.astray",
        scope="link",
        says="{node} sends its packets for {peer} the wrong way, over a wrong route or to a wrong hardware address",
        fix="Remove the wrong route or neighbor entry. Show the route",
        command=OnNode("ip route"),
        symptoms=(*CALLED_HEAD, *WAITED, *CALLED_PEER, *TRANSFERS, "nccl.connect", "nccl.system_error"),
        places=unless_held_up(ways_between(*ASTRAY)),
        confirm=(probed("do packets from {node} to {peer} go the wrong way?", *ASTRAY),),
        instead_of=("head.no_host", "head.filtered"),
    ),
    Cause(
        "network.ports_rejected",
        scope="link",
        says="connections to ephemeral ports are refused: the rendezvous succeeds, but ranks cannot reach each other",
        fix="On the nodes and on any firewall in between, allow traffic between the cluster nodes on all ports",
        command=LET_IN,
        symptoms=(*CALLED_PEER, "nccl.connect", "nccl.timeout", "nccl.system_error"),
        places=ways_between(*REFUSED),
        confirm=(probed("are connections to ephemeral ports of {node} refused?", *REFUSED, by_hand=RULES),),
    ),
    Cause(
        "network.large_packets",
        scope="link",
        says="the network drops large packets but not small ones: initialization succeeds, but large collectives hang",
        fix="Set the same MTU on all nodes and switches, at most the size of the largest packet that passes",
        command=OnNode("ip -brief link"),
        symptoms=TRANSFERS,
        places=unless_held_up(ways_between("net.path_mtu.black_hole")),
        confirm=(probed("are large packets from or to {node} dropped?", "net.path_mtu.black_hole"),),
        support=(WAITING,),
        instead_of=("network.loss",),
    ),
    Cause(
        "network.loss",
        scope="link",
        says="packets are lost in the network",
        fix="Check cables, transceivers, switch port counters, the duplex mode and the interface counters",
        command=OnNode("ip -statistics link"),
        symptoms=TRANSFERS,
        places=unless_held_up(ways_between("net.loss")),
        confirm=(probed("are packets from or to {node} lost?", "net.loss"),),
        support=(RESENT, WAITING),
    ),
    Cause(
        "network.slow",
        scope="link",
        says="the network connection is slow, so the ranks wait for data transfers",
        fix="Check the speed and duplex mode of the link, and other traffic on the link",
        command=OnNode("ip -statistics link"),
        symptoms=HANGS,
        places=unless_held_up(ways_between("net.throughput.slow")),
        confirm=(probed("is the network throughput of {node} low?", "net.throughput.slow"),),
        support=(WAITING,),
    ),
    Cause(
        "network.link_lost",
        scope="node",
        says="the training network link of {node} was down during the launch",
        fix="Check the cable, the transceiver, the switch port and the kernel log",
        command=OnNode("journalctl --dmesg --lines=50", become=True),
        symptoms=(*TRANSFERS, *CALLED_PEER, "node.lost", "launch.peer", "launch.lease", "rank.victim"),
        places=unless_held_up(each_node),
        confirm=(LINK_GONE, LINK_LOGGED, LINK_DOWN),
        instead_of=("network.loss", "network.slow", "access.cut_off"),
    ),
)
