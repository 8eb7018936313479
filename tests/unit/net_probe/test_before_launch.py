"""Link results from launch participants are untrusted input. Findings about links name both ends."""

from __future__ import annotations

from typing import Any

import pytest

from launch_shapes import a_plan
from muster.net_probe import before_launch
from muster.verdict.finding import with_fix
from muster.verdict.reading import UnusableError

PORT = 29500
PLAN = a_plan(3, entry={"interface": "eth0"})
NAMES = PLAN.names
OPEN = {"error": "", "seconds": 0.001}
SHUT = {"error": "ETIMEDOUT", "seconds": 2.2}


def served(number: int, **changes: Any) -> dict[str, Any]:
    answer = {
        "pid": 100 + number,
        "started": 5,
        "port": PORT if number == 1 else None,
        "holder": "",
        "ephemeral": [32768, 60999],
        "range": [32768, 60999],
        "hostname": f"node{number}",
        "interfaces": {"eth0": {"addresses": [f"10.0.0.{number}"], "mtu": 1500, "state": "UP", "speed": None}},
        "physical": ["eth0"],
    }
    return before_launch.read_served({**answer, **changes})


SERVED = {f"node{number}": served(number) for number in (1, 2, 3)}


def called(origin: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """Return a node's reply if its links are good, with the given changes by peer."""
    request = before_launch.call_request(PLAN, PLAN.nodes[NAMES.index(origin)], "token", SERVED)
    answer = {}
    for peer in request["peers"]:
        name = peer["node"]
        ports = {str(port): {**OPEN, "greeting": name} for port in peer["ports"]}
        good = {"ports": ports, "source": "10.0.0.9", "way": "eth0", "route_error": "", "neighbour": "known"}
        answer[name] = {**good, "full_size": True, "pmtu": 1500, "mss": 1448, "clock": [], **changes.get(name, {})}
    return before_launch.read_called({"links": answer}, {peer["node"]: peer["ports"] for peer in request["peers"]})


def findings(**changes: dict[str, dict[str, Any]]) -> list[str]:
    links = {name: called(name, **changes.get(name, {})) for name in NAMES}
    return [f"{one.status} {one.id} {with_fix(one)}" for one in before_launch.judge(PLAN, SERVED, links, {})]


def ports(shut: list[int], *, name: str, head: bool = False) -> dict[str, Any]:
    every = [*([PORT] if head else []), 32768, 60999]
    return {"ports": {str(port): SHUT if port in shut else {**OPEN, "greeting": name} for port in every}}


def test_launch_port_is_tested_only_on_the_head_node() -> None:
    requests = [before_launch.serve_request(PLAN, entry, "token") for entry in PLAN.nodes]
    assert [request["port"] for request in requests] == [PORT, None, None]
    request = before_launch.call_request(PLAN, PLAN.nodes[1], "token", SERVED)
    assert {peer["node"]: peer["ports"] for peer in request["peers"]} == {
        "node1": [PORT, 32768, 60999],
        "node3": [32768, 60999],
    }


def test_good_links_produce_no_findings() -> None:
    assert findings() == []


def test_closed_port_of_the_head_node_is_reported() -> None:
    [found] = findings(node2={"node1": ports([PORT], name="node1", head=True)})
    assert found.startswith(
        "fail net.master_port.dropped node1: node2 cannot connect to this node on port 29500, but other nodes can: no"
    )


def test_heartbeat_port_of_a_detached_launch_is_tested() -> None:
    beats = 29450
    requests = [before_launch.serve_request(PLAN, entry, "token", beats) for entry in PLAN.nodes]
    assert [request["beats"] for request in requests] == [beats, None, None]
    there = {**SERVED, "node1": served(1, beats=beats)}
    links = {}
    for origin in ("node2", "node3"):
        request = before_launch.call_request(PLAN, PLAN.nodes[NAMES.index(origin)], "token", there)
        [head] = [peer for peer in request["peers"] if peer["node"] == "node1"]
        assert head["ports"] == [PORT, beats, 32768, 60999]
        shut = [beats] if origin == "node3" else []
        calls = {str(port): SHUT if port in shut else {**OPEN, "greeting": "node1"} for port in head["ports"]}
        links[origin] = before_launch.read_called({"links": {"node1": {"ports": calls}}}, {"node1": head["ports"]})
    [found] = before_launch.judge(PLAN, there, links, {}, beats)
    assert (found.status, found.id, found.node, found.peer) == ("fail", "net.master_port.dropped", "node1", "node3")
    assert found.summary.startswith("node3 cannot connect to this node on port 29450, but other nodes can: no reply")


def test_closed_ports_of_ranks_are_reported() -> None:
    shut = ports([32768, 60999], name="node3")
    [found] = findings(node1={"node3": shut}, node2={"node3": shut})
    assert found.startswith(
        "fail net.peer.dropped node3: node1, node2 cannot connect to this node on port 32768, 60999: no reply"
    )


def test_route_through_another_interface_is_not_reported_as_a_firewall() -> None:
    astray = {**ports([32768, 60999], name="node3"), "way": "eth1"}
    back = ports([PORT, 32768, 60999], name="node1", head=True)
    [found] = findings(node1={"node3": astray}, node3={"node1": back})
    assert "node1: the route to node3 uses eth1, but the training address is on eth0" in found
    assert found.startswith("fail ")


def test_path_mtu_black_hole_is_reported() -> None:
    sizes = [{"mtu": size, "passes": size <= 1400} for size in (576, 1000, 1400, 1401, 1500)]
    hole = {"full_size": False, "sizes": sizes}
    found = findings(node1={"node2": hole}, node2={"node1": hole})
    assert any(one.startswith("fail net.path_mtu.black_hole") for one in found)
    assert "packets larger than 1400 bytes are lost" in found[0]


def test_untested_node_is_reported_without_blocking_the_launch() -> None:
    two = {name: one for name, one in SERVED.items() if name != "node3"}
    why = {"node3": "no answer within 15 s"}
    links = {"node1": called("node1"), "node2": called("node2")}
    [found] = before_launch.judge(PLAN, two, links, why)
    assert (found.status, found.id, found.node) == ("warn", "launch.links", "node3")
    assert found.summary == "links not tested: no answer within 15 s"


def test_another_probe_on_the_port_does_not_block_the_launch() -> None:
    busy = {**SERVED, "node1": served(1, port=None, holder="muster-probe")}
    [found] = before_launch.judge(PLAN, busy, {}, {})
    assert (found.status, found.id, found.node) == ("warn", "launch.links", "node1")


def test_another_process_on_the_port_is_reported() -> None:
    busy = {**SERVED, "node1": served(1, port=None, holder="Address already in use")}
    [found] = before_launch.judge(PLAN, busy, {}, {})
    assert (found.status, found.id, found.node) == ("fail", "net.master_port.foreign", "node1")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"pid": "7"},
        {"pid": -1, "started": 1, "ephemeral": []},
        {"pid": 1, "started": True, "ephemeral": []},
    ],
)
def test_reply_without_listener_data_is_rejected(answer: Any) -> None:
    with pytest.raises(UnusableError, match="expected"):
        before_launch.read_served(answer)


def test_unrequested_parts_of_a_reply_are_ignored() -> None:
    seen = served(2, ephemeral=["1", 70000, 40000], port=True, holder=["x"], interfaces={"e" * 900: {"addresses": [7]}})
    assert seen["ephemeral"] == []
    assert (seen["port"], seen["holder"]) == (None, "")
    assert seen["interfaces"] == {"e" * 200: {"addresses": [""], "mac": "", "mtu": None}}
    answer = {
        "links": {
            "node1": {"ports": {"1": OPEN, "22": OPEN, "23": 7}, "way": "w" * 900, "sizes": [{"mtu": "x"}, 3]},
            "node9": {"ports": {"1": OPEN}},
            "node2": "no link",
        }
    }
    found = before_launch.read_called(answer, {"node1": [1, 23], "node2": [1]})
    assert list(found["links"]) == ["node1"]
    link = found["links"]["node1"]
    assert link["ports"] == {"1": {"error": "", "seconds": 0.001, "greeting": None, "spoke": True}}
    assert (link["way"], link["sizes"]) == ("w" * 200, [])
    with pytest.raises(UnusableError, match="connections"):
        before_launch.read_called({"links": 3}, {})


WHOLE = {"whole": True, "acked": 196608, "seconds": 0.002}
STALLED = {"whole": False, "acked": 32000, "seconds": 1.3}


def slow_ways(tries: list[dict[str, Any]]) -> list[str]:
    good = {name: {"bulk": [WHOLE]} for name in NAMES}
    slow = {name: {"bulk": tries} for name in NAMES}
    return findings(node1=good, node2=slow, node3=good)


def test_stalled_link_is_reported() -> None:
    [line] = slow_ways([STALLED, STALLED])
    assert line.startswith(
        "warn net.throughput.slow node2: a TCP stream from this node to node1, node3 reaches only 0.20 Mbit/s"
    )


def test_link_that_stalled_once_is_not_reported() -> None:
    assert slow_ways([STALLED, WHOLE]) == []
    assert slow_ways([STALLED]) == []


@pytest.mark.parametrize(
    "odd", [7, {}, [], [7], [{"whole": True}], [{"acked": -1, "seconds": 1}], [{"acked": 9, "seconds": 0}]]
)
def test_invalid_bulk_results_are_ignored(odd: Any) -> None:
    assert slow_ways(odd) == []
