"""The real apt installs the packages of a resolved stack from stub repositories, without the known pitfalls."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from apt_repository import Apt
from muster.gpu_stack.model import StackNodeFacts, StackRequest
from muster.gpu_stack.resolve import resolve
from muster.gpu_stack.table import VersionsTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from apt_repository import Answer
    from muster.gpu_stack.model import NodeStack

TABLE = Path(__file__).parents[2] / "roles/gpu_stack/files/versions.yml"
TODAY = date(2026, 11, 21)
PLAIN = StackRequest("2.13.0")
H100 = ("10de:2330",) * 8
B200 = ("10de:2901",) * 8
# Packages with versions independent of the driver.
NOT_THE_DRIVERS = ("linux-", "nvlsm", "nvidia-container", "libnvidia-container")


@pytest.fixture
def apt(tmp_path: Path) -> Callable[..., Apt]:
    """Return a function that creates an apt with its own root and these stub repositories (default: all)."""
    made: list[Apt] = []

    def make(*repositories: str) -> Apt:
        made.append(Apt(tmp_path / str(len(made)), *([repositories] if repositories else [])))
        return made[-1]

    return make


def stack_of(gpus: tuple[str, ...], request: StackRequest = PLAIN, nvswitches: int = 0) -> NodeStack:
    """Resolve the stack of one Ubuntu 24.04 node."""
    node = StackNodeFacts("node1", system="ubuntu-24.04", gpus=gpus, nvswitches=nvswitches, secure_boot=False)
    table = VersionsTable(yaml.safe_load(TABLE.read_text()))
    stack = resolve(table, request, [node], TODAY)
    assert not stack.refusals
    return stack.nodes["node1"]


def installed(apt: Apt, node: NodeStack) -> Answer:
    for package in node.pins:
        assert apt.install(str(package)).installs, f"{package} is not available"
        apt.pin(str(package))
    return apt.install(*map(str, (*node.headers, *node.driver, *node.fabric)))


def driver_versions(answer: Answer) -> set[str]:
    """Return the versions of all driver packages without package revisions."""
    assert not answer.error, answer.error
    return {
        version.partition("-")[0]
        for name, version in answer.installs.items()
        if "nv" in name and not name.startswith(NOT_THE_DRIVERS)
    }


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (PLAIN, "580.178.04"),
        (StackRequest("2.13.0", driver="580.159.04"), "580.159.04"),
        (StackRequest("2.13.0", driver="595"), "595.91.07"),
        (StackRequest("2.13.0", driver="615"), "615.71.09"),
    ],
)
@pytest.mark.parametrize("gpus", [H100, B200], ids=["H100", "B200"])
def test_all_driver_packages_have_one_version(
    apt: Callable[..., Apt], gpus: tuple[str, ...], asked: StackRequest, version: str
) -> None:
    node = stack_of(gpus, asked, 4 if gpus is H100 else 0)
    answer = installed(apt(), node)
    assert driver_versions(answer) == {version}
    assert "nvidia-fabricmanager" in answer.installs
    assert "nvidia-persistenced" in answer.installs
    assert ("nvlsm" in answer.installs) == (gpus is B200)


def test_driver_branches_are_mixed_without_the_pin(apt: Callable[..., Apt]) -> None:
    node = stack_of(H100, nvswitches=4)
    answer = apt().install(*map(str, (*node.driver, *node.fabric)))
    assert driver_versions(answer) == {"580.178.04", "615.71.09"}


def test_signed_ubuntu_modules_do_not_need_dkms(apt: Callable[..., Apt]) -> None:
    node = stack_of(H100, StackRequest("2.13.0", source="ubuntu"), nvswitches=4)
    answer = installed(apt("ubuntu"), node)
    assert driver_versions(answer) == {"580.126.20"}
    assert "linux-modules-nvidia-580-server-open-6.8.0-90-generic" in answer.installs
    assert "dkms" not in answer.installs


def test_ubuntu_modules_are_built_with_dkms_on_request(apt: Callable[..., Apt]) -> None:
    answer = installed(apt("ubuntu"), stack_of(H100, StackRequest("2.13.0", source="ubuntu", build="dkms")))
    assert driver_versions(answer) == {"580.126.20"}
    assert "dkms" in answer.installs


def test_nvidia_repository_overrides_ubuntu_packages(apt: Callable[..., Apt]) -> None:
    # The reason why a node never gets a driver from two sources.
    assert apt("ubuntu").candidate("nvidia-utils-580") == "580.173.02-0ubuntu0.24.04.1"
    assert apt("ubuntu", "cuda").candidate("nvidia-utils-580") == "580.178.04-1ubuntu1"


def test_open_and_proprietary_modules_conflict(apt: Callable[..., Apt]) -> None:
    assert "unmet dependencies" in apt().install("nvidia-headless-580-server-open", "nvidia-utils-580").error


def test_container_toolkit_needs_all_four_packages(apt: Callable[..., Apt]) -> None:
    packages = [
        f"{package.name}=1.19.1-1"
        for package in stack_of(H100, StackRequest("2.13.0", container_toolkit=True)).containers
    ]
    assert "unmet dependencies" in apt().install(packages[0]).error
    assert set(apt().install(*packages).installs.values()) == {"1.19.1-1"}
    newest = apt().install(*map(str, stack_of(H100, StackRequest("2.13.0", container_toolkit=True)).containers))
    assert set(newest.installs.values()) == {"1.20.1-1"}


def test_fabric_manager_with_a_branch_suffix_cannot_be_pinned(apt: Callable[..., Apt]) -> None:
    assert "was not found" in apt().install("nvidia-fabricmanager-580=580.159.04-1").error


def test_nccl_needs_both_packages(apt: Callable[..., Apt]) -> None:
    library, headers = map(str, stack_of(H100, StackRequest("2.13.0", nccl=True)).nccl)
    assert "unmet dependencies" in apt().install(headers).error
    assert apt().install(library, headers).installs == {
        "libnccl2": "2.29.7-1+cuda13.2",
        "libnccl-dev": "2.29.7-1+cuda13.2",
    }
    # Without a version, apt installs the build for the newest CUDA, whatever the driver supports.
    assert apt().install("libnccl2").installs == {"libnccl2": "2.32.3-1+cuda13.4"}


def test_dcgm_needs_both_packages(apt: Callable[..., Apt]) -> None:
    assert "unmet dependencies" in apt().install("datacenter-gpu-manager-4-cuda13=1:4.5.2-1").error
    answer = apt().install(*map(str, stack_of(H100, StackRequest("2.13.0", dcgm=True)).dcgm))
    assert set(answer.installs.values()) == {"1:4.7.0-1"}


def test_nvlink5_meta_package_mixes_branches(apt: Callable[..., Apt]) -> None:
    assert driver_versions(apt().install("nvlink5-580")) >= {"580.178.04", "615.71.09"}


def test_pinning_packages_of_two_branches_conflict(apt: Callable[..., Apt]) -> None:
    assert "Conflicts" in apt().install("nvidia-driver-pinning-580", "nvidia-driver-pinning-595").error


def test_cuda_toolkit_does_not_install_a_driver(apt: Callable[..., Apt]) -> None:
    node = stack_of(H100, StackRequest("2.13.0", cuda_toolkits=("13.0",)))
    answer = apt().install(*map(str, node.cuda))
    assert not answer.error
    assert not [name for name in answer.installs if "nvidia" in name or "driver" in name]
