"""RDMA adapters of three nodes are tested pairwise, with a broken adapter and a slow adapter.

Adapters and verbs are simulated: a copy of /sys/class with additional files, and stub tools that communicate over TCP
(tests/standins/rdma_node.py). Connections to the nodes, the schedule, the user, the ports and the firewall are real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import rdma_node
import rdma_sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play

PLAYBOOK = "tests/integration/payloads/rdma_rails.yml"
TASK = "Test all RDMA adapters against their counterparts"
ADAPTERS = {"mlx5_0": rdma_sysfs.INFINIBAND, "mlx5_1": rdma_sysfs.ROCE}
FAULTS: dict[str, dict[str, Any]] = {
    "node2": {"mlx5_1": {"ibv_rc_pingpong": "Failed to modify QP to RTR"}},
    "node3": {"mlx5_0": {"gbps": 41.2}},
}


@pytest.fixture
def adapters(networked: list[Machine]) -> Iterator[list[Machine]]:
    try:
        for node in networked:
            rdma_node.undo(node.container)
            rdma_node.make(node.container, ADAPTERS, FAULTS.get(node.name, {}))
        yield networked
    finally:
        for node in networked:
            rdma_node.undo(node.container)


def tried(play: Play) -> dict[str, Any]:
    result = play(PLAYBOOK)
    assert result.rc == 0, result.stdout
    assert not result.changed
    return next(iter(result.results(TASK).values()))


def test_broken_and_slow_adapters_are_reported(adapters: list[Machine], play: Play) -> None:
    said = tried(play)
    found = {f"{one['status']} {one['id']} {one['node']}": one for one in said["findings"]}
    assert set(found) == {"fail rdma.rail.broken node2", "warn rdma.rail.slow node3", "pass rdma.rail.broken node1"}
    assert "mlx5_1:1 does not communicate with node1, node3" in found["fail rdma.rail.broken node2"]["summary"]
    assert len(said["rails"]) == 6, "three pairs of nodes with two rails each"
    for node in adapters:
        runs = {tuple(line.split()) for line in node.inside("cat", rdma_node.LOG).stdout.splitlines()}
        assert {user for user, *_ in runs} == {"muster"}
        # InfiniBand is addressed by LID, RoCE by a GID with an IPv4 address.
        assert {(adapter, gid) for _, _, adapter, gid in runs} == {("mlx5_0", "LID"), ("mlx5_1", "3")}
        left = "ibv_rc_pingpong|ib_write"
        assert node.inside("pgrep", "-f", left, check=False).stdout == "", "a listener is left"


def test_nodes_without_adapters_are_skipped(networked: list[Machine], play: Play) -> None:
    said = tried(play)
    assert (said["rails"], said["findings"]) == ([], [])
    skipped = {entry["why"] for entry in said["verdict"]["coverage"]["skipped"]}
    assert "the node has no RDMA adapter" in skipped
