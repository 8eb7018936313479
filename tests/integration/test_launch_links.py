"""Participants of a launch connect to each other before the start, which reveals problems within seconds.

torchrun alone would time out after two minutes. Network faults are real. The ranks run under a torchrun stub without
PyTorch.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import net_faults
from drill import Drill, listening, processes
from machines import NODES, find_machine
from paths import ROOT
from standin_torchrun import TORCHRUN, provide
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play

PORT = net_faults.PORT
# torchrun waits 120 s; a dropped connection attempt times out after 2.2 s.
SOON = 60.0


@pytest.fixture(scope="module")
def nodes(play: Play) -> list[Machine]:
    machines = [find_machine(name) for name in NODES]
    provide(play, *machines)
    for machine in machines:
        # The faults are packet filter rules.
        assert machine.inside("nft", "list", "tables", check=False).returncode == 0
    return machines


@pytest.fixture
def drill(tmp_path: Path, nodes: list[Machine]) -> Iterator[Drill]:
    variables = {
        "cluster_torchrun": TORCHRUN,
        "launch_script_src": str(ROOT / "tests/integration/payloads/wait_for_gate.py"),
        "cluster_launch_nodes": list(NODES),
        "cluster_nproc_per_node": 1,
    }
    drill = Drill(tmp_path, variables)
    yield drill
    for machine in nodes:
        drill.open_gate(machine)
    if drill.thread:
        drill.wait()
    for machine in nodes:
        machine.inside("rm", "--force", drill.gate)


def nothing_listens(nodes: list[Machine]) -> bool:
    return not any(machine.inside("pgrep", "--exact", "muster-probe", check=False).stdout for machine in nodes)


def refused(drill: Drill) -> list[str]:
    """Check that a launch is refused quickly and cleanly. Return findings as "status id node" and the peer."""
    began = time.monotonic()
    verdict = drill.begin().end()
    assert time.monotonic() - began < SOON
    assert verdict["summary"].startswith("not started. "), verdict["summary"]
    assert drill.runner.rc == 2
    assert json.loads((drill.run / "run.json").read_text())["launch"] == "refused"
    assert processes(drill.launch_id) == {}
    return [named(one) for one in verdict["findings"] if one["status"] != "pass"]


def named(finding: dict[str, Any]) -> str:
    return " ".join(filter(None, (finding["status"], finding["id"], finding["node"], finding.get("peer"))))


def test_working_links_are_probed_and_probe_listeners_exit(drill: Drill, nodes: list[Machine]) -> None:
    drill.begin()
    until(lambda: len(ranks(drill)) == len(nodes), PATIENCE, "all ranks run")
    assert nothing_listens(nodes)
    assert not any(PORT in listening(machine.container) for machine in nodes[1:])
    for machine in nodes:
        drill.open_gate(machine)
    verdict = drill.end()
    assert verdict["status"] == "healthy", verdict
    assert {one["id"] for one in verdict["findings"]} == {"launch.ended"}


def ranks(drill: Drill) -> list[str]:
    found = processes(drill.launch_id) if drill.run.is_dir() and (drill.run / "plan.json").exists() else {}
    return [env["RANK"] for env in found.values() if "RANK" in env]


def test_closed_port_is_reported_with_both_nodes(drill: Drill, nodes: list[Machine]) -> None:
    with net_faults.shut(nodes[0], nodes[1], PORT, f"{PORT} ip saddr {nodes[1].address}", "drop", refused=False):
        assert refused(drill) == ["fail net.master_port.dropped node1 node2"]
        summary = drill.verdict()["summary"]
        assert f"node1: node2 cannot connect to this node on port {PORT}, but other nodes can" in summary
        assert "--tags network" in summary
        assert nothing_listens(nodes)


def test_heartbeat_port_of_a_detached_launch_is_probed(drill: Drill, nodes: list[Machine]) -> None:
    """An attached launch does not need this port."""
    port = PORT - 50
    drill.variables.update(launch_detached=True, launch_time_limit=600)
    with net_faults.shut(nodes[0], nodes[1], port, f"{port} ip saddr {nodes[1].address}", "drop", refused=False):
        assert refused(drill) == ["fail net.master_port.dropped node1 node2"]
        assert (
            f"node1: node2 cannot connect to this node on port {port}, but other nodes can"
            in drill.verdict()["summary"]
        )
        assert nothing_listens(nodes)


@pytest.mark.slow
def test_closed_ephemeral_ports_are_reported(drill: Drill, nodes: list[Machine]) -> None:
    match = "32768-60999 ct state new"
    with net_faults.shut(nodes[2], nodes[0], net_faults.EPHEMERAL, match, "reject with tcp reset", refused=True):
        assert [one.partition(" net.")[0] for one in refused(drill)] == ["fail"]
        assert "any tested port" in drill.verdict()["summary"] or "port" in drill.verdict()["summary"]
        assert nothing_listens(nodes)


def test_route_over_another_interface_is_reported(drill: Drill, nodes: list[Machine]) -> None:
    with net_faults.wrong_route(nodes[0], nodes[2]):
        [found] = refused(drill)
        assert found.startswith("fail network.peer_other_interface") or "node1 node3" in found
        summary = drill.verdict()["summary"]
        assert "the route to node3 uses astray0, but the training address is on eth0" in summary
        assert nothing_listens(nodes)


@pytest.mark.slow
def test_torchrun_times_out_without_the_probe(drill: Drill, nodes: list[Machine]) -> None:
    drill.variables.update(launch_probe=False, launch_rendezvous_timeout=8)
    with net_faults.wrong_route(nodes[0], nodes[2]):
        verdict = drill.begin().end()
    assert verdict["status"] == "failed", verdict
    assert not verdict["summary"].startswith("not started."), verdict["summary"]
    assert "astray0" not in json.dumps(verdict)
    assert json.loads((drill.run / "run.json").read_text())["launch"] == "failed"
