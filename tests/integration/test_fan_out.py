"""Nodes forward wheels while they still receive them, and another source takes over when a source fails.

The tests interrupt a transfer halfway: the outgoing bandwidth of the first node is limited, and machines are paused.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from counted import ROOT, SHARED, WEIGHT, CountedCluster, counted_cluster
from machines import find_machine
from net_faults import slow
from outside import scan
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play, Result

RATE = "12mbit"
HALF = WEIGHT // 3  # bytes received by a node in the middle of the transfer
RECEIVED = "/sys/class/net/eth0/statistics/rx_bytes"
STRANGER = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
said = peer.recv(100)
peer.sendall(bytes(64))
print(len(said), len(peer.recv(100)))
"""


@pytest.fixture(scope="module")
def cluster(networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedCluster]:
    """Yield a cluster whose first node got its wheels from the index and keeps them."""
    with counted_cluster(play, networked, tmp_path_factory.mktemp("counted")) as cluster:
        result, sent = cluster.provide("node1")
        assert result.rc == 0, result.stdout
        assert sent > WEIGHT
        yield cluster


@pytest.fixture
def nodes(cluster: CountedCluster) -> Iterator[list[Machine]]:
    """Yield the nodes. The second and third have no wheels."""
    for machine in cluster.machines[1:]:
        machine.inside("rm", "-rf", ROOT)
    yield cluster.machines
    for machine in cluster.machines:
        assert machine.inside("ps", "-u", "nobody", "-o", "pid=", check=False).stdout == ""
        assert machine.inside("sh", "-c", f"ls -A {ROOT}/wheels/*/ | grep new", check=False).stdout == ""
    assert list(cluster.wheelhouses()) == ["node1"]


@contextmanager
def paused(machine: Machine) -> Iterator[None]:
    machine.podman("pause")
    try:
        yield
    finally:
        machine.podman("unpause")


def received(machine: Machine) -> int:
    return int(machine.inside("cat", RECEIVED).stdout)


def processes(machine: Machine) -> list[str]:
    """Return the PIDs of processes that exchange wheels with other nodes."""
    return machine.inside("ps", "-u", "nobody", "-o", "pid=", check=False).stdout.split()


@contextmanager
def providing(cluster: CountedCluster, machine: Machine, amount: int) -> Iterator[list[tuple[Result, int]]]:
    """Run the step on the other two nodes during the block, which starts once this node has received `amount` bytes.
    Yield a list to which the result is appended.
    """
    done: list[tuple[Result, int]] = []
    before = received(machine)
    with ThreadPoolExecutor(1) as pool, slow(cluster.machines[0], RATE):
        running = pool.submit(cluster.provide, "node2", "node3")
        until(lambda: running.done() or received(machine) > before + amount, PATIENCE, "the transfer is in progress")
        assert not running.done(), running.result()[0].stdout
        yield done
        done.append(running.result())


@pytest.mark.slow
def test_another_node_replaces_a_failed_source_of_wheels(cluster: CountedCluster, nodes: list[Machine]) -> None:
    first, middle, last = nodes
    with providing(cluster, last, HALF) as done, paused(first):
        # The last node receives from the middle node, which has only a part so far.
        assert scan(find_machine("outsider"), middle.address, SHARED).open == []
        said = last.inside("python3", "-c", STRANGER, middle.address, str(SHARED)).stdout.split()
        assert said == ["32", "0"], "a client without the token must get nothing"
        pids = processes(middle)
        assert pids
        middle.inside("sh", "-c", 'kill -9 "$@"; true', "sh", *pids)
        until(lambda: not processes(middle), 20, "no source is left on the node")
    result, sent = done[0]
    assert result.rc == 0, result.stdout
    assert sent == 0
    sources = cluster.sources(result)
    assert set(sources["node3"]) == {"node1", "node2"}, result.stdout
    assert "index" not in sources["node2"]
    assert {cluster.torch(machine) for machine in nodes} == {"2.0.0+cpu 1.0"}
