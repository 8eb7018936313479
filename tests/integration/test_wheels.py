"""PyTorch wheels: locked once, downloaded once, and equal on all nodes, including nodes that join later."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from counted import FETCH, LOOK, SHARED, WEIGHT, CountedCluster, counted_cluster, make_tiny
from net_faults import shut
from paths import ENVIRONMENT, INVENTORY, ROOT

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
        assert "was modified (its digest does not match). Restore the file from version control" in message
    finally:
        cluster.lock.write_text(text)


LINE = r"\n  waiting for node1: 1:\d\d \(node1: downloading torch, \d+ of 20 MB\)\n"
SHOWN = r"\r\x1b\[2K  node1 \[#+\.+\] downloading torch, \d+ of 20 MB\n  waiting for node1: 0:\d\d"
BAR = SHOWN + r"\r\x1b\[2K\x1b\[1A\x1b\[2K"


@pytest.mark.slow
def test_slow_downloads_are_shown(cluster: CountedCluster, tmp_path: Path) -> None:
    """The first download has no lock and is made by a temporary user, the second one by root."""
    lines = shown(cluster, tmp_path, seconds=100)
    assert re.search(LINE, lines), lines
    redrawn = shown(cluster, tmp_path, seconds=40, terminal=True)
    assert re.search(BAR, redrawn), redrawn


def test_fast_download_is_not_shown(cluster: CountedCluster, tmp_path: Path) -> None:
    assert "downloading" not in shown(cluster, tmp_path)


def shown(cluster: CountedCluster, folder: Path, *, seconds: int = 0, terminal: bool = False) -> str:
    """Install on the first node again. Return the output. seconds: duration of the download."""
    extravars = json.dumps(cluster.extravars(pytorch_lock=str(folder / "lock.txt")))
    command = ["ansible-playbook", "-i", str(INVENTORY), "playbooks/pytorch.yml", "-l", "node1", "-e", extravars]
    if terminal:
        command = ["script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null"]
    cluster.clean()
    cluster.index.rate = WEIGHT // seconds if seconds else 0
    environment = {**os.environ, **ENVIRONMENT, "TERM": "xterm"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    text = done.stdout.decode().replace("\r\n", "\n")
    assert done.returncode == 0, text
    return text


def tasks_of_the_role(result: Result, name: str) -> list[str]:
    """Return the tasks of the role pytorch that ran on this node."""
    done = [event["event_data"] for event in result.events if event["event"] == "runner_on_ok"]
    return [data["task"].partition(" - ")[0] for data in done if (data["host"], data.get("role")) == (name, "pytorch")]
