"""How good are the ways between the nodes: packet sizes, losses, speed, delay, and how far the clocks are apart."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import on_node
from ..verdict.finding import evidence
from ..verdict.words import few
from .blame import BlameShare, blame, couples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..verdict.finding import Finding
    from .blame import Pair
    from .cluster import Cluster
    from .links import Link, Node

# By Mathis et al. (1997) TCP gets MSS / RTT * 1.22 / sqrt(p): with 1 % lost and 0.1 ms on the way, 1.4 Gbit/s at most.
# Three packets at least: a single one may be lost by chance on any network.
LOSS = 0.01
LOST = 3
# Tried with 16 containers on two busy cores: streams of a tenth of a second spread by a factor of eight when several
# run side by side. So what gets less than a quarter is measured again, alone and for longer, before it is reported.
SLOW = 1 / 4
# More than this a single stream of this program does not send on every processor, whatever the link can do.
ONE_STREAM = 10_000  # Mbit/s
# The shortest of many round trips: neither load nor chance makes it this much longer than that of the other links.
FAR = 10
FAR_SECONDS = 0.005
# Tried: with c10d a clock 20 s behind makes the node vanish from the rendezvous, and the rest trains without it.
CLOCK = 1.0
COMPARED = 3  # nodes from which on there is something to compare a link with

BLACK_HOLE = Check(
    "net.path_mtu.black_hole",
    seen="sandbox",
    reads="packets of the full size of the connection, and where they stall, packets of many sizes side by side",
    fires="small packets come through and larger ones vanish without an error (fail): init works, the first large"
    " collective hangs",
    fix="Set the same MTU on every node and on all that is between them, not above what comes through",
)
PACKETS_LOST = Check(
    "net.loss",
    seen="sandbox",
    reads="200 small packets on every link, fewer where there are many nodes, and what the kernel had to send again"
    " (TCP_INFO)",
    fires=f"{LOST} or more, and {LOSS:.0%} or more, are lost (warn)",
    fix="Look at the cable, the switch port and the interface's error counters",
)
SLOW_STREAM = Check(
    "net.throughput.slow",
    seen="sandbox",
    reads="one stream of a tenth of a second in each direction, between disjoint pairs; what is slow, again, alone and"
    " for longer",
    fires="it gets less than a quarter of what the median link of the median node gets, or of what a physical interface"
    " of up to 10 Gbit/s says it has (warn)",
    fix="Look at the speed that was negotiated, the cable and the switch port, and for traffic control",
)
FAR_AWAY = Check(
    "net.latency.high",
    seen="stand-in",
    reads="the shortest round trip that the kernel saw",
    fires=f"it is {FAR} times that of the median node to its nearest, and {FAR_SECONDS * 1000:.0f} ms more (warn)",
    fix="See which way the packets take",
)
CLOCK_OFFSET = Check(
    "net.clock.offset",
    seen="sandbox",
    reads="the clocks of both ends in several exchanges, as NTP does it; the shortest counts",
    fires=f"they are {CLOCK:.0f} s or more apart (warn). A launch of Muster does not mind; with the rendezvous c10d,"
    " 15 s make a node vanish, and logs are in the wrong order before that",
    fix="Have a time server set the clock, which the step baseline sees to",
)


def judge(cluster: Cluster) -> Iterator[Finding]:
    for rule in (black_holes, losses, slow, far, clocks):
        yield from rule(cluster)


def by_pair(links: list[Link]) -> dict[Pair, Link]:
    return {(link.origin, link.target): link for link in links}


def black_holes(cluster: Cluster) -> Iterator[Finding]:
    tested = by_pair([link for link in cluster.links if link.path_mtu is not None or link.hole])
    bad = {pair: link for pair, link in tested.items() if link.hole}
    for share in blame(cluster.names, bad, tested):
        largest = min(bad[pair].path_mtu or 0 for pair in share.links)
        mtus = "; ".join(f"{name} {mtu(cluster.node(name))}" for name in [share.node, *share.peers[:8]])
        launched = any(set(pair) <= set(cluster.participants) for pair in share.links)
        yield (BLACK_HOLE.fail if launched else BLACK_HOLE.warn)(
            share.node,
            f"packets of more than {largest} bytes vanish on the way {ways(share)}, and smaller ones come through: a"
            " launch starts, and hangs at its first large message",
            observed=f"{largest} bytes",
            expected=f"{mtu(cluster.node(share.node))} bytes",
            peer=share.peer,
            evidence=evidence(
                "packets of many sizes (net_probe)", f"largest that came through: {largest}; MTU: {mtus}"
            ),
            fix="Set the same MTU on all nodes and on what is between them; to see where it ends",
            command=on_node(
                share.links[0][0],
                "ping -c 2 -M do -s {size} {address}",
                size=largest - 28 + 1,
                address=cluster.node(share.links[0][1]).address,
            ),
        )


def mtu(node: Node) -> str:
    carrier = node.carrier(node.address)
    return str((node.interfaces or {}).get(carrier, {}).get("mtu") or "unknown")


def losses(cluster: Cluster) -> Iterator[Finding]:
    tested = by_pair([link for link in cluster.links if link.loss is not None])
    bad = {pair: link for pair, link in tested.items() if (link.lost or 0) >= LOST and (link.loss or 0) >= LOSS}
    for share in blame(cluster.names, bad, tested):
        lost = sum(bad[pair].lost or 0 for pair in share.links)
        sent = sum((bad[pair].sent or 0) + (bad[pair].lost or 0) for pair in share.links)
        yield PACKETS_LOST.warn(
            share.node,
            f"{lost / sent:.0%} of the packets are lost on the way {ways(share)}",
            command=on_node(share.node, "ip -statistics link"),
            observed=f"{lost} of {sent} packets",
            expected="none",
            peer=share.peer,
            evidence=evidence(
                "retransmissions of paced packets (TCP_INFO)", measured_on(share, bad, lambda link: f"{link.lost}")
            ),
        )


def of_nodes(cluster: Cluster, value: Callable[[Link], float | None]) -> list[list[float]]:
    """For each node, what was measured on its links: one odd node of three has most links, but is one of three."""
    found = []
    for name in cluster.names:
        values = [value(link) for link in cluster.touching(name)]
        found.append([one for one in values if one is not None])
    return [values for values in found if values]


def nominal(cluster: Cluster, link: Link) -> float | None:
    """Bits per second that a stream can be expected to get, where both ends have real interfaces of known speed."""
    speeds = [cluster.node(name).speed for name in (link.origin, link.target)]
    known = [speed for speed in speeds if speed is not None]
    return min(*known, ONE_STREAM) * 1e6 if len(known) == 2 else None


def suspects(cluster: Cluster) -> dict[Pair, float]:
    """Links that get less than can be expected, each with that."""
    measured = by_pair([link for link in cluster.links if link.rate is not None])
    typical = [median(rates) for rates in of_nodes(cluster, lambda link: link.rate)]
    if len(cluster.names) < COMPARED:
        # Of two nodes' two directions, the faster one is the only thing to compare with.
        typical = [max(link.rate or 0.0 for link in measured.values())] if measured else []
    usual = median(typical) if typical else 0.0
    found = {}
    for pair, link in measured.items():
        wanted = [expected for expected in (usual, nominal(cluster, link)) if expected]
        if (link.rate or 0.0) < SLOW * max(wanted, default=0.0):
            found[pair] = max(wanted)
    return found


def slow(cluster: Cluster) -> Iterator[Finding]:
    measured = by_pair([link for link in cluster.links if link.rate is not None])
    bad = {pair: wanted for pair, wanted in suspects(cluster).items() if measured[pair].twice}
    for share in blame(cluster.names, bad, measured):
        got = median((measured[pair].rate or 0.0) for pair in share.links)
        wanted = median(bad[pair] for pair in share.links)
        yield SLOW_STREAM.warn(
            share.node,
            f"a stream gets {gbps(got)} on the way {ways(share)}, where {gbps(wanted)} can be expected",
            command=on_node(share.node, "tc -statistics qdisc"),
            observed=gbps(got),
            expected=gbps(wanted),
            peer=share.peer,
            evidence=evidence(
                "one stream, measured twice", measured_on(share, measured, lambda link: gbps(link.rate or 0.0))
            ),
        )


def far(cluster: Cluster) -> Iterator[Finding]:
    measured = by_pair([link for link in cluster.links if link.rtt is not None])
    if len(cluster.names) < COMPARED:
        return
    nearest = [min(times) for times in of_nodes(cluster, lambda link: link.rtt)]
    usual = median(nearest) if nearest else 0.0
    bad = {
        pair: link
        for pair, link in measured.items()
        if (link.rtt or 0.0) > FAR * usual and (link.rtt or 0.0) > usual + FAR_SECONDS
    }
    for share in couples(cluster.names, blame(cluster.names, bad, measured)):
        got = median(bad[pair].rtt or 0.0 for pair in share.links if pair in bad)
        yield FAR_AWAY.warn(
            share.node,
            f"a packet needs {got * 1000:.1f} ms to {few(share.peers)} and back; elsewhere {usual * 1000:.1f} ms",
            command=on_node(share.node, "tracepath -n {address}", address=cluster.node(share.peers[0]).address),
            observed=f"{got * 1000:.1f} ms",
            expected=f"{usual * 1000:.1f} ms",
            peer=share.peer,
            evidence=evidence("the kernel's shortest round trip (TCP_INFO)", f"{got * 1000:.3f} ms"),
        )


def clocks(cluster: Cluster) -> Iterator[Finding]:
    measured = by_pair([link for link in cluster.links if link.offset is not None])
    bad = {pair: link for pair, link in measured.items() if abs(link.offset or 0.0) >= CLOCK}
    for share in couples(cluster.names, blame(cluster.names, bad, measured)):
        ahead = median(ahead_of(share.node, bad[pair]) for pair in share.links)
        direction = "ahead of" if ahead > 0 else "behind"
        others = f"that of {share.peer}" if share.way == "pair" else f"those of {few(share.peers)}"
        yield CLOCK_OFFSET.warn(
            share.node,
            f"its clock is {abs(ahead):.1f} s {direction} {others}",
            observed=f"{ahead:+.3f} s",
            expected=f"less than {CLOCK:.0f} s",
            peer=share.peer,
            evidence=evidence("exchange of clocks (net_probe)", f"{ahead:+.6f} s"),
            fix="Have a time server set it, which the step baseline sees to; whether it is set is shown by",
            command=on_node(share.node, "chronyc tracking"),
        )


def ahead_of(node: str, link: Link) -> float:
    """Seconds that the node's clock is ahead of the other end's."""
    offset = link.offset or 0.0
    return offset if link.target == node else -offset


def measured_on(share: BlameShare, links: Mapping[Pair, Link], value: Callable[[Link], str]) -> str:
    return "; ".join(f"{pair[0]} -> {pair[1]}: {value(links[pair])}" for pair in share.links[:8])


def ways(share: BlameShare) -> str:
    names = few(share.peers)
    return {
        "to": f"from {names} to it",
        "from": f"from it to {names}",
        "both": f"between it and {names}",
        "pair": f"from {names} to it",
    }[share.way]


def gbps(rate: float) -> str:
    if rate < 1e7:
        return f"{rate / 1e6:.2f} Mbit/s"
    return f"{rate / 1e9:.2f} Gbit/s" if rate < 1e10 else f"{rate / 1e9:.0f} Gbit/s"
