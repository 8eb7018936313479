"""The wheels of PyTorch: written down once, downloaded once, and the same on every node, whenever it joins.

They come from a stand-in of an index that counts what it sends, and torch is a stand-in of 20 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from package_index import PackageIndex
from standin_wheels import torch_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play, Result

ROOT = "/opt/muster-test-wheels"
PIP_CONF = "~/.config/pip/pip.conf"
WEIGHT = 20_000_000
LOOK = "Look at PyTorch"
TASK = "Provide PyTorch (half a minute for a new environment, some minutes with CUDA)"


class Cluster:
    """Nodes that take PyTorch from a counting index, and the lock beside their inventory."""

    def __init__(self, play: Play, machines: list[Machine], index: PackageIndex, folder: Path) -> None:
        self.play = play
        self.machines = machines
        self.index = index
        self.lock = folder / "pytorch.lock.txt"

    def provide(self, *names: str, version: str = "2.0.0", **wishes: Any) -> tuple[Result, int]:
        """Run the step on these nodes, or on all; return how it ended, and the bytes of wheels that the index sent."""
        self.index.take_count()
        extravars = {
            "cluster_torch_version": version,
            "pytorch_root": ROOT,
            "pytorch_index_url": self.index.url,
            "pytorch_find_links": [],
            "pytorch_extra_ca": "",
            "pytorch_packages": [],
            "pytorch_lock": str(self.lock),
            **wishes,
        }
        limit = ",".join(names or [machine.name for machine in self.machines])
        result = self.play("playbooks/pytorch.yml", extravars=extravars, limit=limit)
        return result, self.index.take_count()

    def clean(self) -> None:
        for machine in self.machines:
            machine.inside("rm", "-rf", ROOT)

    def sources(self, result: Result) -> dict[str, list[str]]:
        """Where each node that built an environment has its wheels from."""
        return {name: done["wheels"]["came_from"] for name, done in result.results(TASK).items() if "wheels" in done}

    def torch(self, machine: Machine) -> str:
        """The version of torch that a user of the node imports, and of what came with it."""
        command = f"{ROOT}/current/bin/python -c 'import torch, tiny; print(torch.__version__, tiny.VERSION)'"
        return machine.ssh(command).stdout.strip()

    def wheelhouses(self) -> dict[str, list[str]]:
        """The wheels that each node keeps for others."""
        find = f"cd {ROOT} && find wheels -type f 2>/dev/null || true"
        kept = {machine.name: machine.inside("sh", "-c", find).stdout.split() for machine in self.machines}
        return {name: files for name, files in kept.items() if files}


def make_tiny(folder: Path, version: str) -> None:
    wheel(folder, "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})


@pytest.fixture(scope="module")
def cluster(
    ground: list[Machine], play: Play, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("index")
    make_tiny(folder, "1.0")
    for version in ("2.0.0+cpu", "2.1.0+cpu"):
        torch_wheel(folder, version, requires="tiny>=1.0", weight=WEIGHT)
    trust = f"mkdir -p $(dirname {PIP_CONF}) && printf '[global]\\ntrusted-host = {gateway}\\n' >{PIP_CONF}"
    for machine in ground:
        machine.inside("sh", "-ec", trust)
    index = PackageIndex(folder, gateway)
    index.start()
    cluster = Cluster(play, ground, index, tmp_path_factory.mktemp("inventory"))
    cluster.clean()
    yield cluster
    index.stop()
    cluster.clean()
    for machine in ground:
        machine.inside("sh", "-c", f"rm {PIP_CONF}")


@pytest.fixture(scope="module")
def gateway(ground: list[Machine]) -> str:
    """This machine's address in the sandbox's network."""
    return ground[0].address.rpartition(".")[0] + ".1"


@pytest.fixture(scope="module")
def one(cluster: Cluster) -> int:
    """The first node is alone, and the first resolution is written down; return the bytes that this took."""
    result, sent = cluster.provide("node1")
    assert result.rc == 0, result.stdout
    assert sent > WEIGHT
    return sent


def test_the_first_resolution_is_written_down(cluster: Cluster, one: int) -> None:
    text = cluster.lock.read_text()
    assert "# asked for: torch==2.0.0+cpu\n" in text
    assert "\ntiny==1.0 --hash=sha256:" in text
    assert "\ntorch==2.0.0+cpu --hash=sha256:" in text
    assert "://" not in text
    assert len(cluster.wheelhouses()["node1"]) == 2


def test_a_node_that_joins_later_gets_the_same_from_its_peer(cluster: Cluster, one: int) -> None:
    written = cluster.lock.read_bytes()
    make_tiny(cluster.index.folder, "1.1")  # whoever resolves anew takes this one
    result, sent = cluster.provide("node2")
    assert result.rc == 0, result.stdout
    assert sent == 0
    assert cluster.sources(result) == {"node2": ["node1"]}
    assert cluster.torch(cluster.machines[1]) == "2.0.0+cpu 1.0"
    assert cluster.lock.read_bytes() == written
    assert list(cluster.wheelhouses()) == ["node1"], "the wheels lie on the node as often as nobody needs"

    again, sent = cluster.provide("node1", "node2")
    assert (again.rc, again.changed, sent) == (0, [], 0), again.stdout
    assert tasks_of_the_role(again, "node2") == ["Validating arguments against arg spec 'main'", LOOK]


def test_without_the_mesh_every_node_downloads(cluster: Cluster, one: int) -> None:
    cluster.clean()
    result, sent = cluster.provide(cluster_user="nobody")
    assert result.rc == 0, result.stdout
    assert sent > 0.9 * one * len(cluster.machines)
    assert cluster.sources(result)["node2"] == ["index"]
    assert "node2 downloaded its wheels itself" in result.stdout
    assert {cluster.torch(machine) for machine in cluster.machines} == {"2.0.0+cpu 1.0"}


def test_all_nodes_together_download_once(cluster: Cluster, one: int) -> None:
    cluster.clean()
    cluster.lock.unlink()
    result, sent = cluster.provide()
    assert result.rc == 0, result.stdout
    assert sent < 1.1 * one
    first, *others = (machine.name for machine in cluster.machines)
    assert cluster.sources(result) == {first: ["index"], **{name: [first] for name in others}}
    assert {cluster.torch(machine) for machine in cluster.machines} == {"2.0.0+cpu 1.1"}
    assert list(cluster.wheelhouses()) == [first]
    assert cluster.lock.read_text().count("# environment:") == 1


def test_with_a_dead_head_node_the_next_one_downloads_what_is_wished_now(cluster: Cluster, one: int) -> None:
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

    done = result.results(TASK)["node2"]
    assert [line.partition(": ")[2] for line in done["locked"]] == ["torch 2.0.0+cpu -> 2.1.0+cpu"]
    assert done["diff"]["after"] == cluster.lock.read_text()
    assert cluster.lock.read_text().count("# environment:") == 1, "nobody asks for the other one"


def test_an_edited_lock_is_refused(cluster: Cluster, one: int) -> None:
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
