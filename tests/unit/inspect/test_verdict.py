"""Each file in cases/verdict contains nodes and their expected findings, as "status id node: sentence".

Each node runs Debian 12 at 10.0.0.N and has no problems by default. request: changes to its inventory variables. facts:
changes to the facts, by path. A finding about several nodes is listed once per node. last: the last line of the report.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from cases import cases, document_of
from muster.inspect import cluster
from muster.inspect import node as inspect_node
from muster.inspect.facts import InspectedNode, facts
from muster.inspect.table import WIDTH, outcome, report
from muster.verdict.finding import with_fix

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLATFORMS = document_of(ROOT / "roles/cluster/vars/main.yml")["_cluster_platforms"]
RECORDED = document_of(HERE / "recorded.yml")
REQUEST = {
    "cluster_interface": "",
    "cluster_gpus": 0,
    "cluster_user": "muster",
    "cluster_master_port": 29500,
    "pytorch_root": "/opt/muster/pytorch",
    "node_baseline_user_uid": "",
    "node_baseline_user_gid": "",
    "firewall_mode": "manage",
    "firewall_tight": False,
}


def good_facts(number: int, peers: list[str]) -> dict[str, Any]:
    looks = copy.deepcopy(RECORDED)
    looks["system"].update(
        virt="none", machine_id=f"id{number}", boot_id=f"boot{number}", host_key=f"ssh-ed25519 AAA{number}"
    )
    looks["clock"]["max_error"] = 1500
    seen = facts(looks)
    seen["network"]["interfaces"]["eth0"]["addresses"] = [f"10.0.0.{number}"]
    seen["network"]["ways"] = {peer: {"interface": "eth0", "source": "", "via": ""} for peer in peers}
    return seen


def set_fact(seen: dict[str, Any], dotted: str, value: Any) -> None:
    *folders, last = dotted.split("/")
    for folder in folders:
        seen = seen[folder]
    if value == "absent":
        del seen[last]
    else:
        seen[last] = value


def nodes_of(case: dict[str, Any]) -> list[InspectedNode]:
    given = {name: changes or {} for name, changes in case["nodes"].items()}
    addresses = {name: f"10.0.0.{number}" for number, name in enumerate(given, 1)}
    requests = {
        name: {**REQUEST, "cluster_address": addresses[name], **changes.get("request", {})}
        for name, changes in given.items()
    }
    nodes = []
    for number, (name, changes) in enumerate(given.items(), 1):
        seen = None if "why" in changes else good_facts(number, list(addresses.values()))
        for dotted, value in changes.get("facts", {}).items():
            assert seen is not None
            set_fact(seen, dotted, value)
        peers = {peer: request["cluster_address"] for peer, request in requests.items() if peer != name}
        nodes.append(InspectedNode(name, requests[name], seen, changes.get("why", ""), PLATFORMS, peers))
    return nodes


@cases(__file__, "verdict")
def test_inspection_findings_match_the_case(case: dict[str, Any]) -> None:
    nodes = nodes_of(case)
    found = [finding for node in nodes for finding in inspect_node.judge(node)] + cluster.judge(nodes)
    reported = [f"{finding.status} {finding.id} {with_fix(finding)}." for finding in found if finding.status != "pass"]
    assert reported == case["findings"]
    skipped = [entry for node in nodes for entry in inspect_node.skips(node)]
    text = report(nodes, found, skipped, case.get("rdma", {}))
    table = text.splitlines()[: len(nodes) + 1]
    assert max(map(len, table)) <= WIDTH
    if "table" in case:
        assert text == case["table"].rstrip("\n")
    else:
        assert text.splitlines()[-1] == case["last"]
    assert outcome(nodes, found) == case["outcome"]


def test_node_without_problems_gets_a_single_pass() -> None:
    nodes = nodes_of({"nodes": {"node1": {}, "node2": {}}})
    found = [finding for node in nodes for finding in inspect_node.judge(node)]
    assert [(finding.status, finding.id) for finding in found] == [("pass", "inspect.node")] * 2
    assert cluster.judge(nodes) == []
