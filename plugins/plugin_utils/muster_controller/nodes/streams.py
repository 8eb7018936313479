"""Measures the throughput between listening nodes in both directions, with at most one stream per node at a time.

The receiver is programs/probe_listener.py and the sender is programs/probe_caller.py. muster/net_probe/schedule.py
decides which nodes are measured together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from muster.net_probe import quality, schedule
from muster.verdict.reading import Limit, read_one

from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.net_probe.blame import Pair
    from muster.net_probe.cluster import Cluster

    from .messages import Messages

CALLER = NodeProgram("probe_caller")
MOMENT = 0.1  # duration of a stream in seconds
LONGER = 0.25  # duration of a repeated stream
AGAIN = 12  # number of the slowest pairs that are measured again
PAIR_TIMEOUT = 30.0


class Streams:
    def __init__(
        self,
        messages: Messages,
        token: str,
        served: Mapping[str, Mapping[str, Any]],
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """token: the token of the probe. served: the result of `serve` on each listening node."""
        self.messages = messages
        self.token = token
        self.served = served
        self.give_up = give_up

    def measure(self, cluster: Cluster, most_again: int = AGAIN) -> None:
        """Measure the rates of all links on which connections work. Slow links are measured again, one at a time and
        for longer."""
        usable = {(link.origin, link.target) for link in cluster.links if good_ports(link.ports)}
        self.pairs(cluster, schedule.calls(cluster.names, usable), MOMENT)
        pairs: dict[frozenset[str], Pair] = {}
        for pair in sorted(quality.suspects(cluster), key=lambda pair: cluster.link(*pair).rate or 0.0):
            way = pair if pair in usable else pair[::-1]
            if way in usable and len(pairs) < most_again:
                pairs.setdefault(frozenset(pair), way)
        for caller, called in schedule.again(list(pairs.values())).items():
            for pair in self.pairs(cluster, {caller: called}, LONGER):
                cluster.link(*pair).twice = True

    def pairs(self, cluster: Cluster, calls: Mapping[str, list[str]], seconds: float) -> list[Pair]:
        """Measure these pairs. Return the directions for which there is a result."""
        for name, called in calls.items():
            own = self.served[name]
            request = {
                "token": self.token,
                "node": name,
                "port": own["port"] or own["ephemeral"][0],
                "seconds": seconds,
                "peers": [
                    {
                        "node": peer,
                        "address": cluster.node(peer).address,
                        "port": good_ports(cluster.link(name, peer).ports)[0],
                    }
                    for peer in called
                ],
            }
            self.messages.ask(name, "pair", request, program=CALLER)
        timeout = PAIR_TIMEOUT + len(cluster.nodes)
        answers = self.messages.gather("pair", list(calls), timeout, lambda _: None, self.give_up)
        found = []
        for name, answer in answers.items():
            for peer, there, back in read_pairs(answer.data, calls[name]):
                for link, rate in ((cluster.link(name, peer), there), (cluster.link(peer, name), back)):
                    if rate is not None:
                        link.rate = max(rate, link.rate or 0.0)
                        found.append((link.origin, link.target))
        return found


def good_ports(ports: Mapping[int, str]) -> list[int]:
    return [port for port, outcome in ports.items() if outcome == "ok"]


Rate = Annotated[float | None, Limit(least=0, instead=None)]


class Rates(TypedDict):
    """The rates in bit/s to a peer and back."""

    there: Rate
    back: Rate


def read_pairs(data: Any, peers: list[str]) -> list[tuple[str, float | None, float | None]]:
    """Return the valid results of `pair` for these peers: (peer, bit/s to the peer, bit/s back)."""
    pairs = (read_one(dict[str, Rates], data.get("pairs")) if isinstance(data, dict) else None) or {}
    return [(peer, pairs[peer]["there"], pairs[peer]["back"]) for peer in peers if peer in pairs]
