"""Each file in cases/mtu contains the state of a node's training interface, and the expected MTU plan.

look: merged into the data of a machine without a known network manager. Each case names the source of its program
output.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cases import cases
from muster.network import mtu
from muster.network.mtu import Path
from muster_node.programs import mtu as program

LOOK = {
    "interface": "eth1",
    "link": json.dumps([{}, {"ifname": "eth1", "mtu": 1500, "min_mtu": 68, "max_mtu": 9978}]),
    **dict.fromkeys(("netplan", "networkctl", "nmcli", "nmcli_files", "nmcli_mtu", "interfaces"), ""),
    "written": {"ifupdown": "", "networkd": ""},
}


@cases(__file__, "mtu")
def test_mtu_plan_matches_the_case(case: dict[str, Any]) -> None:
    look = {**LOOK, **case.get("look", {})}
    look["link"] = look["link"] if isinstance(look["link"], str) else json.dumps(look["link"])
    seen = mtu.read(look)
    if "unseen" in case:
        assert seen == case["unseen"]
        return
    assert not isinstance(seen, str), seen
    assert (seen.manager, seen.place) == (case.get("manager", ""), case.get("place", ""))
    plan = mtu.plan(case.get("mtu", 9000), seen)
    assert plan.refusal == case.get("refusal", "")
    assert list(plan.steps) == case.get("steps", [])
    assert [" ".join(argv) for argv in plan.undo] == case.get("undo", [])
    assert list(plan.differences) == case.get("differences", [])
    if plan.steps:
        assert list(plan.files) == case["files"]


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, None), (9000, None), (1280, None), (1279, "mtu_training is 1279"), (65521, "mtu_training is 65521")],
)
def test_mtu_out_of_range_is_rejected(value: int, said: str | None) -> None:
    problem = mtu.request_problem(value)
    assert (problem[0].removesuffix(", which is out of range") if problem else None) == said


def test_every_link_is_tested() -> None:
    nodes = [f"node{number}" for number in range(40)]
    tried = {peer for node in nodes for peer in mtu.peers_of(node, nodes)}
    assert tried == set(nodes)
    assert mtu.peers_of("node39", nodes)[:2] == ["node0", "node1"]
    assert mtu.peers_of("node0", ["node0"]) == []


def test_mtu_is_reverted_on_all_nodes_if_one_path_fails() -> None:
    paths = [
        Path("node1", "node2", "10.0.0.2", small=True, full=False),
        Path("node1", "node3", "10.0.0.3", small=True, full=True),
        Path("node3", "node4", "10.0.0.4", small=False, full=False),
    ]
    judged = mtu.judge(paths, 9000)
    fix = "Raise the MTU of the switch ports and interfaces in between, or lower mtu_training"
    own = "packets of 9000 bytes do not reach node2 (10.0.0.2), but small packets do"
    assert list(mtu.ended("node1", judged, interface="eth1", changed=True)) == [f"{own}. {fix}"]
    other = f"the MTU of eth1 is reverted, because node1 failed its test: {own}. {fix}"
    assert list(mtu.ended("node3", judged, interface="eth1", changed=True)) == [other]
    assert list(mtu.ended("node3", judged, interface="eth1", changed=False)) == []
    assert judged.silent == {"node3": ["node4"]}
    assert list(mtu.ended("node1", mtu.judge(paths[1:], 9000), interface="eth1", changed=True)) == []


@pytest.mark.parametrize(("family", "size"), [(4, 64), (4, 1500), (4, 9000), (6, 1280), (6, 8999)])
def test_probe_packet_has_the_requested_size(family: int, size: int) -> None:
    packet = program.echo(family, size, 7, 1)
    assert len(packet) + program.HEADERS[family] == size
    if family == 4:
        # RFC 1071: the checksum of data that includes its checksum is 0.
        assert program.checksum(packet) == 0
