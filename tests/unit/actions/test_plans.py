"""What is concluded on the controller from the inventory and what was seen: GPU stack, driver, inspection, looks."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases import document_of
from muster.inspect.facts import facts
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from acting import World

LOOKED = document_of(ROOT / "tests/unit/inspect/recorded.yml")
HEALTHY = document_of(ROOT / "tests/unit/nvidia_driver/healthy.yml")
DECLARED = {"cluster_gpus": 8, "cluster_gpu_model": "H100", "gpu_stack_system": "ubuntu-24.04"}
NAMES = ("node1", "node2", "node3")
RUN = "20260101-120000-abcd"


def seen_facts(number: int = 1, **changes: Any) -> dict[str, Any]:
    looks = copy.deepcopy(LOOKED)
    looks["system"].update(
        virt="none", machine_id=f"id{number}", boot_id=f"b{number}", host_key=f"ssh-ed25519 A{number}"
    )
    seen = facts(looks)
    seen["network"]["interfaces"]["eth0"]["addresses"] = [f"10.0.0.{number}"]
    return {**seen, **changes}


def declare(world: World, **more: Any) -> None:
    for name in NAMES:
        for option, value in {**DECLARED, **more}.items():
            world.registered(name, option, value)


# ---------------------------------------------------------------- the GPU stack


def test_a_stack_is_resolved_from_what_the_inventory_declares(world: World) -> None:
    declare(world)
    found = world.run("gpu_stack_plan")
    assert (found["stack"]["torch"], found["stack"]["branch"], found["changed"]) == ("2.13.0", 580, False)
    assert found["parts"] == {name: ["nvidia_driver"] for name in NAMES}
    (repository,) = found["repositories"]["node2"]
    assert (repository["name"], len(repository["fingerprints"]), "/ubuntu2404/" in repository["uri"]) == (
        "nvidia",
        2,
        True,
    )
    assert (found["rdma"]["node1"]["why"], found["rdma"]["node1"]["refusals"]) == ("it has no RDMA adapter", [])
    assert found["msg"].splitlines()[0].split()[:2] == ["PyTorch", "2.13.0+cu130"]
    assert found["msg"].splitlines()[-1].startswith("warn  node1, node2, node3: nobody looked at them yet. ")
    drivers = world.run("gpu_stack_plan", shows="drivers")["msg"]
    assert (drivers != found["msg"], "node1" in drivers, "msg" in world.run("gpu_stack_plan", shows="nothing")) == (
        True,
        True,
        False,
    )
    other = world.run("gpu_stack_plan", instead={"cluster_torch_version": "2.9.1+cu126", "gpu_stack_driver": ""})
    assert (other["stack"]["torch"], other["stack"]["variant"]) == ("2.9.1", "cu126")
    # Who was not looked at and says nothing of its GPUs is not reckoned with, where somebody looked.
    declare(world, cluster_gpu_model="")
    assert list(world.run("gpu_stack_plan", looks="look")["parts"]) == []


def test_what_a_look_saw_counts_before_what_is_declared(world: World) -> None:
    declare(world, cluster_gpu_model="")
    gpus = {**seen_facts()["gpus"], "devices": [{"id": "10de:2330", "slot": "0000:18:00.0", "driver": ""}]}
    world.registered("node1", "look", {"facts": seen_facts(gpus=gpus)})
    found = world.run("gpu_stack_plan", looks="look")
    assert (found["parts"]["node1"], found["stack"]["nodes"]["node1"]["source"]) == (["nvidia_driver"], "nvidia")
    container = seen_facts(gpus=gpus)
    container["system"]["container"] = True
    world.registered("node1", "look", {"facts": container})
    assert world.fails("gpu_stack_plan", looks="look").splitlines()[1:] == [
        "- node1: it is a container, and its host has no driver. Install one on the host."
    ]


def test_a_stack_that_cannot_be_is_refused(world: World, tmp_path: Path) -> None:
    declare(world, gpu_stack_driver="470")
    assert "470" in world.fails("gpu_stack_plan")
    declare(world, gpu_stack_driver="", gpu_stack_repository_keys={"nvidia": str(tmp_path / "none"), "other": "x"})
    said = "gpu_stack_repository_keys: "
    assert world.fails("gpu_stack_plan").splitlines() == [
        f"{said}{tmp_path}/none cannot be read: No such file or directory.",
        f"{said}there is no repository other. Write nvidia or container_toolkit.",
    ]
    (tmp_path / "key").write_text("no key")
    declare(world, gpu_stack_repository_keys={"nvidia": str(tmp_path / "key")})
    assert world.fails("gpu_stack_plan").startswith(f"{said}{tmp_path}/key ")
    declare(world, gpu_stack_repository_keys={}, cluster_gpus="many")
    assert world.fails("gpu_stack_plan").startswith("node1: cluster_gpus ")


def test_without_the_internet_repositories_are_a_folder(world: World) -> None:
    declare(world, cluster_offline_dir="/srv/offline")
    assert world.run("gpu_stack_plan")["repositories"] == {name: [] for name in NAMES}
