"""GPU findings of playbooks/health.yml on simulated GPU nodes, with one fault on one of two nodes at a time.

The node's own tools confirm each fault first. With --nodes=node1,node2 the nodes are tested in their current state:
molecule uses this file to check nodes that it has converged.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpu_cluster import FOLDER, versions
from gpu_node import put_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu_cluster import GpuCluster
    from machines import Machine

OF_GPUS = ("gpu.", "nvlink.", "fabric_manager.")
SLOT = "/sys/bus/pci/devices/0000:1d:00.0"
# The real nvidia-smi prints this before its answer in this case.
CORRUPT = "WARNING: infoROM is corrupted at gpu 0000:18:00.0\n"
# This line has no meaning.
WARNING = "WARNING: a line before the answer\n"
# The fault, the command that shows it on the node and its output, and the expected findings.
FAULTS: dict[str, tuple[dict[str, Any], str, str, set[str]]] = {
    "a GPU is lost": (
        {"lost": [5]},
        f"nvidia-smi -L | grep -c ^GPU; od -An -tx1 -N4 {SLOT}/config",
        "7\n ff ff ff ff\n",
        {"gpu.lost"},
    ),
    "an NVLink is inactive": (
        {"inactive_links": {"2": [7]}},
        "nvidia-smi nvlink -s | grep -c inactive",
        "1\n",
        {"nvlink.inactive"},
    ),
    "a row remap is pending": (
        {"remap_pending": [3]},
        "nvidia-smi -q -x | grep -c '<remapped_row_pending>Yes'",
        "1\n",
        {"gpu.remap.pending"},
    ),
    "nvidia-smi warns of an infoROM": (
        {"says_first": CORRUPT},
        "nvidia-smi -q -x | head -1",
        CORRUPT,
        {"gpu.inforom.corrupt"},
    ),
    "nvidia-smi hangs": (
        {"hangs": True},
        "timeout 1 nvidia-smi -L; echo $?",
        "124\n",
        {"gpu.smi.hangs"},
    ),
}


@pytest.fixture(scope="module")
def nodes(gpu_cluster: GpuCluster) -> Iterator[list[Machine]]:
    yield gpu_cluster.nodes
    for node in gpu_cluster.nodes:
        put_scenario(node.container)


@pytest.fixture(scope="module")
def check_gpus(gpu_cluster: GpuCluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, set[str]]]:
    """Return a function that checks the nodes' health and returns the GPU findings of each node."""
    folder = tmp_path_factory.mktemp("artifacts")

    def look() -> dict[str, set[str]]:
        requested = {"health_gate": "warn", "cluster_artifacts_dir": str(folder)}
        result = gpu_cluster.play("playbooks/health.yml", extravars=requested)
        assert result.rc == 0, result.stdout
        return {node.name: of_gpus(folder / FOLDER.name / "latest", node.name) for node in gpu_cluster.nodes}

    return look


def of_gpus(run: Path, name: str) -> set[str]:
    """Return the GPU findings of a node that did not pass."""
    found: list[dict[str, Any]] = json.loads((run / f"health/{name}.json").read_text())["findings"]
    return {entry["id"] for entry in found if entry["id"].startswith(OF_GPUS) and entry["status"] != "pass"}


@contextmanager
def faulty(node: Machine, **scenario: Any) -> Iterator[None]:
    put_scenario(node.container, **scenario)
    try:
        yield
    finally:
        put_scenario(node.container)


def shown(node: Machine, command: str) -> str:
    return node.inside("sh", "-c", command, check=False).stdout


@pytest.mark.pipeline_gpu
def test_healthy_gpus_have_no_findings(nodes: list[Machine], check_gpus: Callable[[], dict[str, set[str]]]) -> None:
    for node in nodes:
        assert shown(node, "nvidia-smi -L | grep -c H100") == "8\n"
    assert check_gpus() == {"node1": set(), "node2": set()}


@pytest.mark.parametrize(
    "fault", [pytest.param(one, marks=pytest.mark.pipeline_gpu if one == "a GPU is lost" else ()) for one in FAULTS]
)
def test_fault_is_reported_on_its_node(
    fault: str, nodes: list[Machine], check_gpus: Callable[[], dict[str, set[str]]]
) -> None:
    scenario, command, answer, expected = FAULTS[fault]
    assert shown(nodes[1], command) != answer
    with faulty(nodes[1], **scenario):
        assert shown(nodes[1], command) == answer
        found = check_gpus()
    assert found["node1"] == set()
    assert expected <= found["node2"]


def test_warning_of_nvidia_smi_is_ignored(nodes: list[Machine], check_gpus: Callable[[], dict[str, set[str]]]) -> None:
    with faulty(nodes[1], says_first=WARNING):
        assert shown(nodes[1], "nvidia-smi -q -x | head -1") == WARNING
        assert check_gpus() == {"node1": set(), "node2": set()}


def test_wrong_fabric_manager_is_reported(nodes: list[Machine], check_gpus: Callable[[], dict[str, set[str]]]) -> None:
    package = "nvidia-fabricmanager"
    driver = versions(nodes[1])[package]
    listed = shown(nodes[1], f"apt-cache madison {package}").splitlines()
    other = next(version for line in listed if (version := line.split("|")[1].strip()) != driver)
    install(nodes[1], package, other)
    try:
        assert versions(nodes[1])[package] == other
        assert shown(nodes[1], "systemctl is-active nvidia-fabricmanager") == "failed\n"
        found = check_gpus()
    finally:
        install(nodes[1], package, driver)
    assert found["node1"] == set()
    assert "fabric_manager.version" in found["node2"]


def test_repaired_gpus_have_no_findings(nodes: list[Machine], check_gpus: Callable[[], dict[str, set[str]]]) -> None:
    assert shown(nodes[1], "systemctl is-active nvidia-fabricmanager") == "active\n"
    assert check_gpus() == {"node1": set(), "node2": set()}


def install(node: Machine, package: str, version: str) -> None:
    """Install the package alone, like an administrator who ignores the rest of the stack."""
    options = "-qq -y --allow-downgrades --allow-change-held-packages --no-install-recommends"
    command = f"DEBIAN_FRONTEND=noninteractive apt-get {options} install {package}={version}"
    node.inside("sh", "-c", f"{command} && systemctl restart {package}; true")
