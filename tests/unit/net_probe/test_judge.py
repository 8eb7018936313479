"""Each file in cases contains probe results of several nodes, and the expected findings as "status id node: sentence".

Nodes are at 10.0.0.N; nodes and links have no problems by default. `links` changes results: "node1 -> node2", where
either side may be "*", with `ports` as {port: outcome} or one outcome for all ports. `served` and `named` change a
node's reports about itself and about names; `served: null` is a node that was not probed. `rates` are in Gbit/s.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cases import cases
from muster.net_probe import judge, quality
from muster.net_probe.cluster import Cluster
from muster.net_probe.links import Node, between
from muster.verdict.finding import with_fix

PORT = 29500
PORTS = (PORT, 32768, 45000, 60999)
CALLS: dict[str, dict[str, Any]] = {
    "dropped": {"error": "ETIMEDOUT", "seconds": 2.2},
    "refused": {"error": "ECONNREFUSED", "seconds": 0.001},
    "prohibited": {"error": "EHOSTUNREACH", "seconds": 0.002},
    "no_route": {"error": "EHOSTUNREACH", "seconds": 3.05},
    "foreign": {"error": "", "seconds": 0.001, "greeting": None},
}


def seen(target: str, changes: dict[str, Any]) -> dict[str, Any]:
    changes = dict(changes)
    wanted = changes.pop("ports", {})
    outcomes = wanted if isinstance(wanted, dict) else dict.fromkeys(PORTS, wanted)
    ports = {}
    for port in PORTS:
        outcome = outcomes.get(port, "ok")
        answered = {"error": "", "seconds": 0.001, "greeting": target if outcome == "ok" else outcome}
        ports[str(port)] = CALLS.get(outcome, answered)
    good = {
        "ports": ports,
        "source": "10.0.0.9",
        "way": "eth0",
        "route_error": "",
        "neighbour": "known",
        "clock": [[100.0, 100.0501, 100.0502, 100.1003], [101.0, 101.00005, 101.00006, 101.0001]],
        "mss": 1448,
        "pmtu": 1500,
        "full_size": True,
        "sent": 200,
        "lost": 0,
        "rtt_us": 50,
    }
    if not any(outcome == "ok" for outcome in (outcomes.get(port, "ok") for port in PORTS)):
        good = {key: good[key] for key in ("ports", "source", "way", "route_error", "neighbour")}
    return {**good, **changes}


def concerns(pattern: str, origin: str, target: str) -> bool:
    first, second = pattern.split(" -> ")
    return first in ("*", origin) and second in ("*", target)


def cluster_of(case: dict[str, Any]) -> Cluster:
    names = [f"node{number}" for number in range(1, case["nodes"] + 1)]
    probed: dict[str, dict[str, Any]] = {}
    nodes = []
    for number, name in enumerate(names, 1):
        served: dict[str, Any] | None = {
            "holder": "",
            "hostname": name,
            "physical": [],
            "interfaces": {
                "lo": {"addresses": ["127.0.0.1"], "mtu": 65536, "state": "UNKNOWN", "speed": None},
                "eth0": {"addresses": [f"10.0.0.{number}"], "mtu": 1500, "state": "UP", "speed": 10000},
            },
        }
        changes = case.get("served", {}).get(name, {})
        if changes is None:
            served = None
        else:
            assert served is not None
            served["interfaces"].update(copy.deepcopy(changes.get("interfaces") or {}))
            served.update({key: value for key, value in changes.items() if key != "interfaces" or value is None})
        named = {peer: {"addresses": [f"10.0.0.{place}"], "seconds": 0.001} for place, peer in enumerate(names, 1)}
        for asked, answer in case.get("named", {}).get(name, {}).items():
            named[asked] = {"addresses": answer, "seconds": 0.001} if isinstance(answer, list) else answer
        asked = tuple(named)
        named = {key: value for key, value in named.items() if value is not None}
        request = case.get("request", {}).get(name, {})
        why = case.get("why", {}).get(name, "")
        resolvers = case.get("resolvers", {}).get(name, {})
        address = f"10.0.0.{number}"
        nodes.append(Node(name, address, request.get("interface", ""), served, why, named, asked, resolvers))
        found = {}
        for target in names:
            if target != name and served is not None:
                over: dict[str, Any] = {"source": f"10.0.0.{number}", "way": "eth0"}
                for pattern, changes in case.get("links", {}).items():
                    if concerns(pattern, name, target):
                        over.update(changes)
                found[target] = seen(target, over)
        probed[name] = {"links": found}
    links = between(nodes, probed)
    for link in links:
        for pattern, rate in case.get("rates", {}).items():
            if concerns(pattern, link.origin, link.target):
                link.rate = rate * 1e9
                link.twice = True
    port = case.get("port", PORT)
    return Cluster(nodes, links, names[0], port, case.get("participants", names), case.get("left_out", {}))


@cases(__file__, "judge")
def test_network_findings_match_the_case(case: dict[str, Any]) -> None:
    found, skipped = judge.judge(cluster_of(case))
    reported = [f"{one.status} {one.id} {with_fix(one)}." for one in found if one.status != "pass"]
    assert reported == case["findings"], case["what"]
    assert [one.node for one in found if one.status == "pass"] == case.get("passes", []), case["what"]
    assert skipped == case.get("skipped", []), case["what"]


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_good_network_passes_on_every_node(nodes: int) -> None:
    found, skipped = judge.judge(cluster_of({"nodes": nodes, "rates": {"* -> *": 9.4}}))
    assert [(one.status, one.id) for one in found] == [("pass", "net.links")] * nodes
    assert skipped == []


def test_result_contains_one_entry_per_ordered_pair() -> None:
    case = {"nodes": 3, "links": {"node1 -> node2": {"ports": {PORT: "dropped"}, "lost": 8}}, "rates": {"* -> *": 9.4}}
    result = judge.result(cluster_of(case))
    links = result["network"].pop("links")
    assert result["network"] == {"schema": 1, "nodes": ["node1", "node2", "node3"], "port": PORT}
    assert len(links) == 6
    assert links[0] == {
        "from": "node1",
        "to": "node2",
        "ports": {"29500": "dropped", "32768": "ok", "45000": "ok", "60999": "ok"},
        "outcome": "dropped",
        "rtt_ms": 0.05,
        "loss": 0.0385,
        "path_mtu": 1500,
        "gbps": 9.4,
        "offset_ms": 0.005,
        "source": "10.0.0.1",
        "interface": "eth0",
    }
    assert result["verdict"]["status"] == "degraded"
    assert "skipped" not in result


def test_clock_offset_is_taken_from_the_fastest_exchange() -> None:
    cluster = cluster_of({"nodes": 2})
    assert cluster.links[0].offset == pytest.approx(0.000005, abs=1e-6)


def test_only_slow_links_are_measured_again() -> None:
    rates = {"* -> *": 9.4, "node2 -> node3": 0.9}
    assert list(quality.suspects(cluster_of({"nodes": 3, "rates": rates}))) == [("node2", "node3")]
    assert quality.suspects(cluster_of({"nodes": 3})) == {}
