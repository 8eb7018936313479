"""Collectives, bandwidth and transport of the acceptance test, with real faults on real nodes."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acceptance_runs import site_packages_of_torch, stub_module
from machines import NODES, find_machine
from paths import NAME, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance_runs import Run
    from machines import Machine

STANDIN = ROOT / "tests/standins/spoilt_ranks.py"
# A second network of the sandbox, which exists for the duration of a test.
SECOND = f"{NAME}-second"
SLOW = "50mbit"
BYTES = 4_000_000


def test_healthy_cluster_has_no_findings(smoke: Callable[..., Run]) -> None:
    run = smoke("world,collectives,bandwidth,transport", cluster_launch_nodes=list(NODES))
    measured = run.measured
    assert run.found == []
    assert {case["collective"] for case in measured["collectives"]["cases"] if case["exact"]} == {
        "all_reduce",
        "broadcast",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "ring",
    }
    assert sorted({curve["level"] for curve in measured["bandwidth"]["curves"]}) == ["across", "all", "node"]
    assert [(pair["a"], pair["b"]) for pair in measured["bandwidth"]["pairs"]] == [
        ("node1", "node2"),
        ("node1", "node3"),
        ("node2", "node3"),
    ]
    kinds = {pair["kind"] for pair in measured["transport"]["pairs"]}
    assert kinds == {"TCP over eth0"}


def test_wrong_result_is_reported_with_its_rank(smoke: Callable[..., Run]) -> None:
    machine = find_machine("node2")
    with stub_module(machine, STANDIN, {"txt": "result 3"}):
        python = site_packages_of_torch(machine).split("/lib/")[0] + "/bin/python"
        shown = machine.inside(python, "-c", "import sys; print(sys.modules['spoilt_ranks'].WHICH)").stdout
        assert shown.strip() == "3"
        found = smoke("collectives").found
    [finding, *_] = found
    assert finding.startswith(
        "smoke.all_reduce fail node2: rank 3 (node2, local rank 1): all_reduce of 1023 int64 elements is wrong in "
        "1 element: element 0 is 11 instead of 10"
    )
    assert all(" node2: rank 3 " in other for other in found)


def test_lost_contribution_is_reported_with_its_rank(smoke: Callable[..., Run]) -> None:
    with stub_module(find_machine("node2"), STANDIN, {"txt": "contribution 2"}):
        found = smoke("collectives").found
    [finding] = found
    assert finding.startswith(
        "smoke.all_reduce fail node2: rank 2 (node2, local rank 0): contribution to all_reduce of 1023 int64 elements "
        "is missing on all 4 ranks: element 0 is 7 instead of 10; "
    )
    assert smoke("collectives").found == []


def test_lost_broadcast_is_reported_with_its_root_rank(smoke: Callable[..., Run]) -> None:
    with stub_module(find_machine("node2"), STANDIN, {"txt": "broadcast 3"}):
        found = smoke("collectives").found
    [finding] = found
    assert finding == (
        "smoke.collectives fail node2: rank 3 (node2, local rank 1): data sent in broadcast of 1023 int64 elements "
        "is wrong on 4 ranks: element 0 is 0 instead of 14955; 1 more case"
    )


def seconds_from(machine: Machine) -> float:
    """Return the seconds that a transfer from the node to this machine takes."""
    began = time.monotonic()
    machine.ssh(f"head -c {BYTES} /dev/zero")
    return time.monotonic() - began


def test_slow_link_is_reported_with_node_and_level(smoke: Callable[..., Run]) -> None:
    machine = find_machine("node2")
    machine.inside(
        "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", SLOW, "burst", "64kb", "latency", "400ms"
    )
    try:
        assert seconds_from(machine) > BYTES * 8 / 50e6 * 0.7
        run = smoke("bandwidth", cluster_launch_nodes=list(NODES))
    finally:
        machine.inside("tc", "qdisc", "delete", "dev", "eth0", "root")
    assert "tbf" not in machine.inside("tc", "qdisc", "show", "dev", "eth0").stdout
    [finding] = run.found
    assert finding.startswith("smoke.pairs warn node2: the links to node1, node3 carry at most 0.00")
    assert "the node's network is slow (all-reduce busbw inside the node: " in finding
    assert run.measured["bandwidth"]["slow_level"] == "across"


def test_bandwidth_below_the_floor_is_a_failure(smoke: Callable[..., Run]) -> None:
    found = smoke("bandwidth", ddp_smoke_busbw_floor=1000).found
    [finding] = found
    assert finding.startswith("smoke.bandwidth fail node1: all-reduce busbw across nodes is ")
    assert "below the 1000 GB/s of ddp_smoke_busbw_floor" in finding


def firewall_is_on(machine: Machine) -> bool:
    """Return whether an earlier stage left the firewall enabled."""
    return machine.inside("sh", "-c", "! command -v ufw >/dev/null || ufw status").stdout.startswith("Status: active")


@contextmanager
def second_network(*machines: Machine) -> Iterator[None]:
    """Connect each machine to a second network as eth1, and allow eth1 in active firewalls."""
    walled = [machine for machine in machines if firewall_is_on(machine)]
    subprocess.run(["podman", "network", "create", "--internal", SECOND], check=True, capture_output=True)
    try:
        for machine in machines:
            subprocess.run(["podman", "network", "connect", SECOND, machine.container], check=True, capture_output=True)
        for machine in walled:
            machine.inside("ufw", "allow", "in", "on", "eth1")
        yield
    finally:
        for machine in walled:
            machine.inside("ufw", "delete", "allow", "in", "on", "eth1")
        for machine in machines:
            argv = ["podman", "network", "disconnect", "--force", SECOND, machine.container]
            subprocess.run(argv, check=False, capture_output=True)
        subprocess.run(["podman", "network", "rm", SECOND], check=True, capture_output=True)


def test_gloo_on_another_interface_is_reported(smoke: Callable[..., Run]) -> None:
    machines = [find_machine(name) for name in NODES[:2]]
    with second_network(*machines):
        assert all("eth1" in machine.inside("ip", "-brief", "address").stdout for machine in machines)
        with (
            stub_module(machines[0], STANDIN, {"txt": "interface eth1"}),
            stub_module(machines[1], STANDIN, {"txt": "interface eth1"}),
        ):
            found = smoke("transport").found
    assert [finding.partition(" (")[0] for finding in found] == [
        "smoke.interface warn node1: rank 0",
        "smoke.interface warn node2: rank 2",
    ]
    assert "Gloo uses eth1 (" in found[0]
    assert all("eth1" not in machine.inside("ip", "-brief", "address").stdout for machine in machines)
    assert all("eth1" not in machine.inside("iptables-save").stdout for machine in machines if firewall_is_on(machine))
