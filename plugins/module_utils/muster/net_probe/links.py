"""Combine the probe results of all nodes into one `Link` for every ordered pair of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Drops(TypedDict):
    """The packets that did not get through to a node. filtered: dropped by its packet filters; None if unknown.
    half_open: connections whose replies are lost."""

    filtered: int | None
    half_open: int


# From best to worst.
OUTCOMES = ("ok", "not_tried", "refused", "prohibited", "dropped", "no_route", "foreign", "wrong_host")
UNREACHABLE = ("EHOSTUNREACH", "ENETUNREACH", "EACCES", "EPERM", "EHOSTDOWN", "ENONET")
# Seconds. The kernel sends three ARP requests, one per second, before it reports an unreachable host.
AT_ONCE = 0.9


@dataclass(frozen=True)
class Node:
    """A probed node. served: its result of `serve`; None if its listener is not running. why: why it is not running.

    named: {name: {addresses, seconds}} as resolved on the node. asked: the names to resolve. resolvers: for each name
    server in order of use, the seconds until it answered, "refused", or None for no answer.
    """

    name: str
    address: str
    interface: str
    served: Mapping[str, Any] | None
    why: str = ""
    named: Mapping[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    resolvers: Mapping[str, float | str | None] = field(default_factory=dict)

    @property
    def interfaces(self) -> dict[str, Any] | None:
        return self.served["interfaces"] if self.served else None

    def carrier(self, address: str) -> str:
        """Return the interface that has this address; "" if there is none."""
        found = (name for name, seen in (self.interfaces or {}).items() if address in seen["addresses"])
        return next(found, "")

    @property
    def speed(self) -> int | None:
        """Speed of a physical training interface in Mbit/s; None for virtual interfaces, whose reported speed is
        meaningless.
        """
        carrier = self.carrier(self.address)
        if self.served is None or carrier not in self.served["physical"]:
            return None
        speed: int | None = self.served["interfaces"][carrier]["speed"]
        return speed


@dataclass
class Link:
    """The path from one node to another, as measured by the origin. A value of None was not measured.

    ports: {port: outcome}. sent, lost: number of small packets. path_mtu: size of the largest packet that arrived.
    hole: whether larger packets are lost although smaller ones arrive. offset: seconds by which the target's clock is
    ahead. rate: bit/s. twice: whether `rate` is the better of two measurements. bulk: bit/s of a burst of some hundred
    packets, sent before any stream. stalled: whether this burst timed out twice. interface: the interface that has the
    source address. way, gateway: the output interface and the next hop of the route. hardware: the hardware address to
    which packets are sent. knocks, left: further attempts on a port that did not respond, and the packets that the
    origin's interface sent meanwhile.
    """

    origin: str
    target: str
    ports: dict[int, str] = field(default_factory=dict)
    rtt: float | None = None
    sent: int | None = None
    lost: int | None = None
    path_mtu: int | None = None
    hole: bool = False
    offset: float | None = None
    source: str | None = None
    interface: str | None = None
    way: str = ""
    gateway: str = ""
    neighbour: str = ""
    hardware: str = ""
    knocks: int = 0
    left: int = 0
    rate: float | None = None
    twice: bool = False
    bulk: float | None = None
    stalled: bool = False
    answered_by: str = ""
    error: str = ""

    @property
    def outcome(self) -> str:
        return max(self.ports.values(), key=OUTCOMES.index, default="not_tried")

    @property
    def loss(self) -> float | None:
        if self.sent is None or self.lost is None:
            return None
        return self.lost / (self.sent + self.lost)

    def as_dict(self) -> dict[str, Any]:
        """Return the link as an entry of network.json."""
        return {
            "from": self.origin,
            "to": self.target,
            "ports": {str(port): outcome for port, outcome in self.ports.items()},
            "outcome": self.outcome,
            "rtt_ms": None if self.rtt is None else round(self.rtt * 1000, 3),
            "loss": None if self.loss is None else round(self.loss, 4),
            "path_mtu": self.path_mtu,
            "gbps": None if self.rate is None else round(self.rate / 1e9, 3),
            "offset_ms": None if self.offset is None else round(self.offset * 1000, 3),
            "source": self.source,
            "interface": self.interface,
        }


def classify(entry: Mapping[str, Any], target: str, seen: Mapping[str, Any]) -> str:
    """Return the outcome of one connection attempt. entry: {error, seconds, greeting?}. seen: all results of this link.

    "No route to host" has two possible causes: no host has the address, or a firewall rejects the packet. If no host
    has the address, the error takes some seconds, and the kernel's neighbour table has a failed entry.
    """
    error = entry["error"]
    if not error:
        greeting = entry.get("greeting")
        if greeting is None:
            return "foreign"
        return "ok" if greeting == target else "wrong_host"
    if error == "ECONNREFUSED":
        return "refused"
    if error in UNREACHABLE:
        if seen.get("route_error") or seen.get("neighbour") == "failed" or entry["seconds"] > AT_ONCE:
            return "no_route"
        return "prohibited"
    if error in ("ETIMEDOUT", "EAGAIN", "EINPROGRESS"):
        # A neighbour that does not answer ARP is absent; no packets were dropped.
        return "no_route" if seen.get("neighbour") == "failed" else "dropped"
    return "dropped"


def link(origin: Node, target: Node, seen: Mapping[str, Any] | None) -> Link:
    """Return the link from origin to target. seen: the origin's entry in `links` of its `probe` result."""
    found = Link(origin.name, target.name)
    if seen is None:
        return found
    found.ports = {int(port): classify(entry, target.name, seen) for port, entry in seen["ports"].items()}
    greetings = [entry.get("greeting") for entry in seen["ports"].values()]
    found.answered_by = next((name for name in greetings if name not in (None, target.name)), "") or ""
    found.source = seen.get("source")
    found.interface = origin.carrier(found.source) or None if found.source else None
    found.way, found.gateway = seen.get("way") or "", seen.get("gateway") or ""
    found.neighbour, found.hardware = seen.get("neighbour") or "", seen.get("hardware") or ""
    found.knocks, found.left = seen.get("knocks") or 0, seen.get("left") or 0
    found.error = str(seen.get("error", ""))
    found.sent, found.lost = seen.get("sent"), seen.get("lost")
    found.rtt = seen["rtt_us"] / 1e6 if seen.get("rtt_us") else None
    found.offset = offset(seen.get("clock", []))
    if seen.get("full_size"):
        found.path_mtu = seen["pmtu"]
    elif seen.get("sizes"):
        found.path_mtu, found.hole = edge(seen["sizes"])
    if tries := seen.get("bulk"):
        found.bulk = max(8 * one["acked"] / one["seconds"] for one in tries)
        found.stalled = len(tries) > 1 and not any(one["whole"] for one in tries)
    return found


def offset(exchanges: list[list[float]]) -> float | None:
    """Return the seconds by which the target's clock is ahead, computed from the fastest exchange (RFC 5905, section
    8).
    """
    if not exchanges:
        return None
    sent, heard, answered, received = min(exchanges, key=lambda times: times[3] - times[0] - (times[2] - times[1]))
    return ((heard - sent) + (answered - received)) / 2


def edge(sizes: list[dict[str, Any]]) -> tuple[int | None, bool]:
    """Return the largest size that arrived, and whether there is a black hole: every smaller size arrives, and no
    larger size does.

    If a large size arrives and a smaller one does not, the loss is random and does not depend on the size.
    """
    passed = [entry["mtu"] for entry in sizes if entry["passes"]]
    failed = [entry["mtu"] for entry in sizes if not entry["passes"]]
    if not passed or not failed or max(passed) > min(failed):
        return (max(passed) if passed else None), False
    return max(passed), True


def between(nodes: list[Node], probed: Mapping[str, Mapping[str, Any]]) -> list[Link]:
    """Return one link for every ordered pair, in inventory order. probed: the `probe` result of each node."""
    return [
        link(origin, target, probed.get(origin.name, {}).get("links", {}).get(target.name))
        for origin in nodes
        for target in nodes
        if origin is not target
    ]
