"""Evaluate the links between nodes: packet sizes, loss, throughput, latency and clock offset."""

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

# Mathis et al. (1997): TCP reaches MSS / RTT * 1.22 / sqrt(p); with 1 % loss and 0.1 ms RTT, at most 1.4 Gbit/s.
# At least three packets, because any network may lose a single one.
LOSS = 0.01
LOST = 3
# Tested with 16 containers on two busy cores: parallel streams of 0.1 s vary by a factor of eight. Links below a
# quarter are therefore measured again, alone and longer, before they are reported.
SLOW = 1 / 4
# Not every CPU can send more than this in a single stream of this program.
ONE_STREAM = 10_000  # Mbit/s
# For the shortest of many round trips: load or chance cannot explain a factor this large.
FAR = 10
FAR_SECONDS = 0.005
# Tested: with c10d, a node whose clock is 20 s behind is dropped from the rendezvous, and the others train without it.
CLOCK = 1.0
COMPARED = 3  # minimum number of nodes for comparing links

BLACK_HOLE = Check(
    "net.path_mtu.black_hole",
    seen="sandbox",
    reads="full-size packets, and if they stall, packets of many sizes in parallel",
    fires="small packets arrive, but larger packets are lost without an error (fail). A launch starts and"
    " hangs at its first large collective",
    fix="Set the same MTU on all nodes and network devices in between, at most the largest size that arrives",
)
PACKETS_LOST = Check(
    "net.loss",
    seen="sandbox",
    reads="200 small packets per link (fewer in large clusters), and the kernel's retransmissions (TCP_INFO)",
    fires=f"at least {LOST} packets and at least {LOSS:.0%} of the packets are lost (warn)",
    fix="Check the cable, the switch port and the interface's error counters",
)
SLOW_STREAM = Check(
    "net.throughput.slow",
    seen="sandbox",
    reads="one stream of 0.1 s in each direction, between disjoint pairs. Slow links are measured again, alone and"
    " longer",
    fires="the throughput is below a quarter of the median link of the median node, or of the speed of a physical"
    " interface up to 10 Gbit/s (warn)",
    fix="Check the negotiated speed, the cable, the switch port and traffic control",
)
FAR_AWAY = Check(
    "net.latency.high",
    seen="stand-in",
    reads="the shortest round trip measured by the kernel",
    fires=f"the round trip takes over {FAR} times as long as the median round trip to the nearest node, and over"
    f" {FAR_SECONDS * 1000:.0f} ms longer (warn)",
    fix="Trace the path of the packets",
)
CLOCK_OFFSET = Check(
    "net.clock.offset",
    seen="sandbox",
    reads="the clocks of both ends in several exchanges, as in NTP; the fastest exchange counts",
    fires=f"the clocks differ by {CLOCK:.0f} s or more (warn). Muster launches are not affected, but the c10d"
    " rendezvous drops a node at 15 s. Smaller offsets change the order of log lines",
    fix="Synchronize the clock with a time server (step baseline)",
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
            f"packets larger than {largest} bytes are lost {ways(share)}, but smaller packets arrive. A launch would"
            " start, but hang at the first large message",
            observed=f"{largest} bytes",
            expected=f"{mtu(cluster.node(share.node))} bytes",
            peer=share.peer,
            evidence=evidence("packets of many sizes (net_probe)", f"largest that arrived: {largest}; MTU: {mtus}"),
            fix="Set the same MTU on all nodes and network devices in between. Test the size with",
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
            f"{lost / sent:.0%} of the packets {ways(share)} are lost",
            command=on_node(share.node, "ip -statistics link"),
            observed=f"{lost} of {sent} packets",
            expected="none",
            peer=share.peer,
            evidence=evidence(
                "retransmissions of paced packets (TCP_INFO)", measured_on(share, bad, lambda link: f"{link.lost}")
            ),
        )


def of_nodes(cluster: Cluster, value: Callable[[Link], float | None]) -> list[list[float]]:
    """Return the measured values grouped by node. Without grouping, one bad node of three would affect most values."""
    found = []
    for name in cluster.names:
        values = [value(link) for link in cluster.touching(name)]
        found.append([one for one in values if one is not None])
    return [values for values in found if values]


def nominal(cluster: Cluster, link: Link) -> float | None:
    """Return the expected bit/s of a stream; None unless both ends have physical interfaces of known speed."""
    speeds = [cluster.node(name).speed for name in (link.origin, link.target)]
    known = [speed for speed in speeds if speed is not None]
    return min(*known, ONE_STREAM) * 1e6 if len(known) == 2 else None


def suspects(cluster: Cluster) -> dict[Pair, float]:
    """Return the slow links, each with its expected bit/s."""
    measured = by_pair([link for link in cluster.links if link.rate is not None])
    typical = [median(rates) for rates in of_nodes(cluster, lambda link: link.rate)]
    if len(cluster.names) < COMPARED:
        # With two nodes, compare only with the faster direction.
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
            f"a TCP stream {ways(share)} reaches only {gbps(got)} instead of {gbps(wanted)}",
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
            f"the round trip to {few(share.peers)} takes {got * 1000:.1f} ms, but {usual * 1000:.1f} ms on other links",
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
        yield CLOCK_OFFSET.warn(
            share.node,
            f"clock {abs(ahead):.1f} s {direction} {few(share.peers)}",
            observed=f"{ahead:+.3f} s",
            expected=f"less than {CLOCK:.0f} s",
            peer=share.peer,
            evidence=evidence("exchange of clocks (net_probe)", f"{ahead:+.6f} s"),
            fix="Synchronize the clock with a time server (step baseline). Check the clock with",
            command=on_node(share.node, "chronyc tracking"),
        )


def ahead_of(node: str, link: Link) -> float:
    """Return by how many seconds the node's clock is ahead of the clock at the other end."""
    offset = link.offset or 0.0
    return offset if link.target == node else -offset


def measured_on(share: BlameShare, links: Mapping[Pair, Link], value: Callable[[Link], str]) -> str:
    return "; ".join(f"{pair[0]} -> {pair[1]}: {value(links[pair])}" for pair in share.links[:8])


def ways(share: BlameShare) -> str:
    names = few(share.peers)
    return {
        "to": f"from {names} to this node",
        "from": f"from this node to {names}",
        "both": f"between this node and {names}",
        "pair": f"from {names} to this node",
    }[share.way]


def gbps(rate: float) -> str:
    if rate < 1e7:
        return f"{rate / 1e6:.2f} Mbit/s"
    return f"{rate / 1e9:.2f} Gbit/s" if rate < 1e10 else f"{rate / 1e9:.0f} Gbit/s"
