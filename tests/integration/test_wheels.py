"""The wheels of PyTorch: written down once, downloaded once, and the same on every node, whenever it joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from counted import FETCH, LOOK, SHARED, WEIGHT, CountedCluster, counted_cluster, make_tiny
from net_faults import shut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play, Result


@pytest.fixture(scope="module")
def cluster(networked: list[Machine], play: Play, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedCluster]:
    with counted_cluster(play, networked, tmp_path_factory.mktemp("counted")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one(cluster: CountedCluster) -> int:
    """The first node is alone, and the first resolution is written down; return the bytes that this took."""
    result, sent = cluster.provide("node1")
    assert result.rc == 0, result.stdout
    assert sent > WEIGHT
    return sent


def test_the_first_resolution_is_written_down(cluster: CountedCluster, one: int) -> None:
    text = cluster.lock.read_text()
    assert "# asked for: torch==2.0.0+cpu\n" in text
    assert "\ntiny==1.0 --hash=sha256:" in text
    assert "\ntorch==2.0.0+cpu --hash=sha256:" in text
    assert "://" not in text
    assert len(cluster.wheelhouses()["node1"]) == 2


def test_a_node_that_joins_later_gets_the_same_from_its_peer(cluster: CountedCluster, one: int) -> None:
    written = cluster.lock.read_bytes()
    make_tiny(cluster.index.folder, "1.1")  # whoever resolves anew takes this one
    result, sent = cluster.provide("node2")
    assert result.rc == 0, result.stdout
    assert sent == 0
    assert cluster.sources(result) == {"node2": ["node1"]}
    assert cluster.torch(cluster.machines[1]) == "2.0.0+cpu 1.0"
    assert cluster.lock.read_bytes() == written
    assert list(cluster.wheelhouses()) == ["node1"], "the wheels lie on the node as often as nobody needs"

    again, sent = cluster.provide("node1", "node2", full=True)
    assert (again.rc, again.changed, sent) == (0, [], 0), again.stdout
    assert tasks_of_the_role(again, "node2") == ["Validating arguments against arg spec 'main'", LOOK]


@pytest.mark.slow
def test_a_node_that_gets_nothing_from_others_downloads_itself(cluster: CountedCluster, one: int) -> None:
    cluster.clean()
    with shut(cluster.machines[0], cluster.machines[1], SHARED, str(SHARED), "drop", refused=False):
        result, sent = cluster.provide("node1", "node2")
    assert result.rc == 0, result.stdout
    assert sent > 1.9 * one
    assert cluster.sources(result) == {"node1": ["index"], "node2": ["index"]}
    assert "node2 downloaded its wheels itself: it got nothing from node1" in result.stdout
    assert {cluster.torch(machine) for machine in cluster.machines[:2]} == {"2.0.0+cpu 1.0"}


def test_all_nodes_together_download_once(cluster: CountedCluster, one: int) -> None:
    cluster.clean()
    cluster.lock.unlink()
    result, sent = cluster.provide()
    assert result.rc == 0, result.stdout
    assert sent < 1.1 * one
    first, *others = (machine.name for machine in cluster.machines)
    # Each takes them from the one before it, which gives them on as they come.
    assert cluster.sources(result) == {first: ["index"], "node2": ["node1"], "node3": ["node2"]}
    assert others == ["node2", "node3"]
    assert {cluster.torch(machine) for machine in cluster.machines} == {"2.0.0+cpu 1.1"}
    assert list(cluster.wheelhouses()) == [first]
    assert cluster.lock.read_text().count("# environment:") == 1


@pytest.mark.slow
def test_with_a_dead_head_node_the_next_one_downloads_what_is_requested_now(cluster: CountedCluster, one: int) -> None:
    """Another version is another resolution: the lock follows, and says in what it is different."""
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
    assert cluster.lock.read_text().count("# environment:") == 1, "nobody asks for the other one"


def test_an_edited_lock_is_refused(cluster: CountedCluster, one: int) -> None:
    text = cluster.lock.read_text()
    try:
        cluster.lock.write_text(text.replace("tiny==1.1", "tiny==1.0"))
        result, _ = cluster.provide("node2", version="2.1.0")
        assert result.rc != 0
        message = result.results(LOOK)["node2"]["msg"]
        assert message.startswith(f"node2: {cluster.lock}: the environment for Python ")
        assert "is not as it was written. Bring it back from version control" in message
    finally:
        cluster.lock.write_text(text)


def tasks_of_the_role(result: Result, name: str) -> list[str]:
    """The tasks of role pytorch that were executed on this node."""
    done = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return [data["task"].partition(" - ")[0] for data in done if (data["host"], data.get("role")) == (name, "pytorch")]
