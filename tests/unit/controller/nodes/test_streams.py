"""Rates between nodes: choice of senders and receivers, and validation of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from answering_nodes import AnsweringNodes
from muster.net_probe.cluster import Cluster
from muster.net_probe.links import Link, Node
from muster_controller.nodes.streams import LONGER, MOMENT, Streams, good_ports, read_pairs

SERVED: dict[str, dict[str, Any]] = {
    "node1": {"port": 29500, "ephemeral": [40001], "interfaces": {}, "physical": []},
    "node2": {"port": None, "ephemeral": [40002], "interfaces": {}, "physical": []},
}


def cluster(**ports: dict[int, str]) -> Cluster:
    """Return a cluster of two nodes. ports: results per port of the link from each node to the other."""
    nodes = [Node(name, f"10.0.0.{name[-1]}", "eth0", served) for name, served in SERVED.items()]
    links = [
        Link("node1", "node2", ports.get("node1", {29500: "refused", 40002: "ok"})),
        Link("node2", "node1", ports.get("node2", {29500: "ok"})),
    ]
    return Cluster(nodes, links, "node1", 29500, ["node1", "node2"])


def answered(there: Any, back: Any) -> dict[str, Any]:
    return {"pairs": {"node2": {"there": there, "back": back}}}


def test_one_node_measures_both_directions_and_repeats_slow_results() -> None:
    again = {"pairs": {"node1": {"there": 3e9, "back": 8e9}}}
    asked = AnsweringNodes({("node1", "pair"): [answered(9e9, 1e9)], ("node2", "pair"): [again]})
    seen = cluster()
    Streams(asked, "secret", SERVED).measure(seen)
    (first, verb, request), (second, _, longer) = asked.asked
    assert (first, verb, second, longer["seconds"]) == ("node1", "pair", "node2", LONGER)
    assert request == {
        "token": "secret",
        "node": "node1",
        "port": 29500,
        "seconds": MOMENT,
        "peers": [{"node": "node2", "address": "10.0.0.2", "port": 40002}],
    }
    assert [(link.origin, link.rate, link.twice) for link in seen.links] == [("node1", 9e9, True), ("node2", 3e9, True)]


def test_symmetric_link_is_measured_once() -> None:
    asked = AnsweringNodes({("node1", "pair"): [answered(9e9, 9e9)]})
    seen = cluster()
    Streams(asked, "secret", SERVED).measure(seen)
    assert [(name, request["seconds"]) for name, _, request in asked.asked] == [("node1", MOMENT)]
    assert [link.twice for link in seen.links] == [False, False]


def test_link_keeps_the_higher_of_two_rates() -> None:
    asked = AnsweringNodes({("node1", "pair"): [answered(5e9, 5e9), answered(4e9, 6e9)]})
    seen, streams = cluster(), Streams(asked, "secret", SERVED)
    for _ in range(2):
        both = streams.pairs(seen, {"node1": ["node2"]}, MOMENT)
        assert both == [("node1", "node2"), ("node2", "node1")]
    assert (seen.link("node1", "node2").rate, seen.link("node2", "node1").rate) == (5e9, 6e9)


def test_node_without_launch_port_uses_another_port() -> None:
    asked = AnsweringNodes({("node2", "pair"): [{"pairs": {"node1": {"there": 1e9, "back": None}}}]})
    seen = cluster()
    assert Streams(asked, "secret", SERVED).pairs(seen, {"node2": ["node1"]}, 1.0) == [("node2", "node1")]
    ((_, _, request),) = asked.asked
    assert (request["port"], request["peers"]) == (40002, [{"node": "node1", "address": "10.0.0.1", "port": 29500}])
    assert seen.link("node1", "node2").rate is None


def test_links_without_open_ports_are_not_measured() -> None:
    asked = AnsweringNodes({})
    Streams(asked, "secret", SERVED).measure(cluster(node1={40002: "dropped"}, node2={29500: "refused"}))
    assert asked.asked == []


@pytest.mark.parametrize("data", [None, [], {}, {"pairs": []}, {"pairs": {"node2": "fast"}}, {"pairs": {"node3": {}}}])
def test_invalid_answer_is_ignored(data: Any) -> None:
    assert read_pairs(data, ["node2"]) == []


@pytest.mark.parametrize(
    ("value", "usable"),
    [(5, 5.0), (0, 0.0), (2.5, 2.5), (-1, None), (float("inf"), None), (float("nan"), None), (True, None), ("5", None)],
)
def test_rate_must_be_a_finite_non_negative_number(value: Any, usable: float | None) -> None:
    data = {"pairs": {"node2": {"there": value, "back": None}}}
    assert read_pairs(data, ["node2"]) == [("node2", usable, None)]


def test_only_ports_that_accepted_a_connection_are_used() -> None:
    assert good_ports({1: "ok", 2: "dropped", 3: "ok"}) == [1, 3]
