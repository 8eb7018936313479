"""The link probe before a launch: listeners are always stopped, even after failed connections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from answering_nodes import AnsweringNodes
from launch_shapes import a_plan
from muster_controller.launch.link_probe import probe_links

PLAN = a_plan()
PORTS = {"node1": [29500, 40000], "node2": [40000]}


def served(name: str) -> dict[str, Any]:
    return {"pid": 7, "started": 9, "port": PORTS[name][0], "holder": "", "ephemeral": [40000], "interfaces": {}}


def links(peer: str, error: str = "") -> dict[str, Any]:
    calls = {str(port): {"error": error, "seconds": 2.2 if error else 0.0, "greeting": peer} for port in PORTS[peer]}
    return {"links": {peer: {"ports": calls, "source": "10.0.0.9", "way": "eth0", "full_size": True, "pmtu": 1500}}}


def nodes(**of_node2: list[Any]) -> AnsweringNodes:
    """Return two nodes with good links. of_node2: other answers of node2, by verb."""
    answers: dict[tuple[str, str], list[Any]] = {}
    for name, peer in (("node1", "node2"), ("node2", "node1")):
        answers |= {(name, "serve"): [served(name)], (name, "links"): [links(peer)], (name, "end"): [{"ended": True}]}
    return AnsweringNodes({**answers, **{("node2", verb): given for verb, given in of_node2.items()}})


def never() -> bool:
    return False


def ended(asked: AnsweringNodes) -> list[str]:
    return [name for name, verb, payload in asked.asked if verb == "end" and payload == {"pid": 7, "started": 9}]


def test_good_links_produce_no_findings() -> None:
    asked = nodes()
    assert probe_links(PLAN, asked, never) == []
    assert [verb for _, verb, _ in asked.asked] == ["serve", "serve", "links", "links", "end", "end"]
    assert ended(asked) == ["node1", "node2"]


def test_single_node_is_not_probed() -> None:
    asked = nodes()
    assert probe_links(replace(PLAN, nodes=PLAN.nodes[:1]), asked, never) == []
    assert asked.asked == []


def test_closed_port_is_reported() -> None:
    asked = nodes(links=[links("node1", "ETIMEDOUT")])
    assert [(one.status, one.node) for one in probe_links(PLAN, asked, never)] == [("fail", "node1")]
    assert ended(asked) == ["node1", "node2"]


def test_missing_or_invalid_answer_is_reported() -> None:
    for given, listening, why in (
        ({"serve": []}, ["node1"], "no response within 15 s"),
        ({"serve": ["python3: not found"]}, ["node1"], "python3: not found"),
        (
            {"serve": [{"pid": "seven"}]},
            ["node1"],
            "invalid response: pid: expected a whole number, got 'seven'",
        ),
        ({"links": [{}]}, ["node1", "node2"], "invalid response: links: expected the results of connections"),
    ):
        asked = nodes(**given)
        [found] = probe_links(PLAN, asked, never)
        assert (found.status, found.id, found.node) == ("warn", "launch.links", "node2")
        assert found.summary == f"links not tested: {why}"
        assert ended(asked) == listening


def test_interrupted_probe_produces_no_findings() -> None:
    asked = nodes(serve=[])
    assert probe_links(PLAN, asked, lambda: True) == []
