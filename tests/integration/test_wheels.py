"""PyTorch wheels: locked once, downloaded once, and equal on all nodes, including nodes that join later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from counted import FETCH, LOOK, SHARED, WEIGHT, CountedCluster, counted_cluster, make_tiny
from net_faults import shut
from paths import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result


@pytest.fixture(scope="module")
def cluster(networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedCluster]:
    with counted_cluster(play, networked, tmp_path_factory.mktemp("counted")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one(cluster: CountedCluster) -> int:
    """Install on the first node, which writes the lock. Return the downloaded bytes."""
    result, sent = cluster.provide("node1")
    assert result.rc == 0, result.stdout
    assert sent > WEIGHT
    return sent


def test_first_resolution_is_locked(cluster: CountedCluster, one: int) -> None:
    text = cluster.lock.read_text()
    assert "# asked for: torch==2.0.0+cpu\n" in text
    assert "\ntiny==1.0 --hash=sha256:" in text
    assert "\ntorch==2.0.0+cpu --hash=sha256:" in text
    assert "://" not in text
    assert len(cluster.wheelhouses()["node1"]) == 2


def test_node_added_later_gets_locked_wheels_from_a_peer(cluster: CountedCluster, one: int) -> None:
    written = cluster.lock.read_bytes()
    make_tiny(cluster.index.folder, "1.1")  # only a new resolution uses this version
    result, sent = cluster.provide("node2")
    assert result.rc == 0, result.stdout
    assert sent == 0
    assert cluster.sources(result) == {"node2": ["node1"]}
    assert cluster.torch(cluster.machines[1]) == "2.0.0+cpu 1.0"
    assert cluster.lock.read_bytes() == written
    assert list(cluster.wheelhouses()) == ["node1"], "only the sharing node keeps its wheels"

    again, sent = cluster.provide("node1", "node2", full=True)
    assert (again.rc, again.changed, sent) == (0, [], 0), again.stdout
    assert tasks_of_the_role(again, "node2") == ["Validating arguments against arg spec 'main'", LOOK]


@pytest.mark.slow
def test_node_that_cannot_reach_its_peers_downloads_from_the_index(cluster: CountedCluster, one: int) -> None:
    cluster.clean()
    with shut(cluster.machines[0], cluster.machines[1], SHARED, str(SHARED), "drop", refused=False):
        result, sent = cluster.provide("node1", "node2")
    assert result.rc == 0, result.stdout
    assert sent > 1.9 * one
    assert cluster.sources(result) == {"node1": ["index"], "node2": ["index"]}
    assert "node2 downloaded its wheels itself: received no content from node1" in result.stdout
    assert {cluster.torch(machine) for machine in cluster.machines[:2]} == {"2.0.0+cpu 1.0"}


def test_all_nodes_download_once_in_total(cluster: CountedCluster, one: int) -> None:
    cluster.clean()
    cluster.lock.unlink()
    result, sent = cluster.provide()
    assert result.rc == 0, result.stdout
    assert sent < 1.1 * one
    first, *others = (machine.name for machine in cluster.machines)
    # Each node receives them from the node before it, during that node's download.
    assert cluster.sources(result) == {first: ["index"], "node2": ["node1"], "node3": ["node2"]}
    assert others == ["node2", "node3"]
    assert {cluster.torch(machine) for machine in cluster.machines} == {"2.0.0+cpu 1.1"}
    assert list(cluster.wheelhouses()) == [first]
    assert cluster.lock.read_text().count("# environment:") == 1


@pytest.mark.slow
def test_next_node_downloads_while_the_head_node_is_down(cluster: CountedCluster, one: int) -> None:
    """A new version causes a new resolution, and the lock records the difference."""
    head, *others = cluster.machines
    head.podman("stop", "--time=1")
    try:
        result, sent = cluster.provide(version="2.1.0")
    finally:
        head.podman("start")
    assert result.stats["dark"] == {"node1": 1}
    assert not result.stats["failures"]
    assert sent < 1.1 * one
    assert cluster.sources(result) == {"node2": ["index"], "node3": ["node2"]}
    assert {cluster.torch(machine) for machine in others} == {"2.1.0+cpu 1.1"}

    done = result.results(FETCH)["node2"]
    assert [line.partition(": ")[2] for line in done["locked"]] == ["torch 2.0.0+cpu -> 2.1.0+cpu"]
    assert done["diff"]["after"] == cluster.lock.read_text()
    assert cluster.lock.read_text().count("# environment:") == 1, "the environment of the old version must be gone"


def test_edited_lock_is_refused(cluster: CountedCluster, one: int) -> None:
    text = cluster.lock.read_text()
    try:
        cluster.lock.write_text(text.replace("tiny==1.1", "tiny==1.0"))
        result, _ = cluster.provide("node2", version="2.1.0")
        assert result.rc != 0
        message = result.results(LOOK)["node2"]["msg"]
        assert message.startswith(f"node2: {cluster.lock}: the environment for Python ")
        assert "was modified (its digest does not match). Restore it from version control" in message
    finally:
        cluster.lock.write_text(text)


@pytest.mark.parametrize("terminal", [False, True], ids=["lines", "terminal"])
def test_slow_download_is_shown(
    cluster: CountedCluster, one: int, terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first download has no lock and is made by a temporary user, the second one by root."""
    monkeypatch.setitem(ENVIRONMENT, "TERM", "xterm" if terminal else "dumb")
    first, second = (
        r"waiting for node1: \d:\d\d \(node1: downloading torch, \d+ of 20 MB\)\n",
        r"\x1b\[2K  node1 \[#+\.+\] downloading torch, \d+ of 20 MB\r?\n  waiting for node1: 0:\d\d\r?\x1b\[2K\x1b\[1A",
    )
    for _ in range(2):
        cluster.clean()
        cluster.index.rate = WEIGHT // 30
        try:
            result, sent = cluster.provide("node1", pytorch_lock=str(tmp_path / "lock.txt"))
        finally:
            cluster.index.rate = 0
        assert result.rc == 0, result.stdout
        assert sent > WEIGHT
        assert re.search(second if terminal else first, result.stdout), result.stdout
    cluster.clean()
    fast, _ = cluster.provide("node1", pytorch_lock=str(tmp_path / "lock.txt"))
    assert fast.rc == 0, fast.stdout
    assert "waiting for" not in fast.stdout


def tasks_of_the_role(result: Result, name: str) -> list[str]:
    """Return the tasks of the role pytorch that ran on this node."""
    done = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return [data["task"].partition(" - ")[0] for data in done if (data["host"], data.get("role")) == (name, "pytorch")]
