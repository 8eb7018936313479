"""Actions that make plans from the inventory and node inspections: GPU stack, driver, inspection, role probes."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from acting import Modules, World
from cases import document_of
from firewall_looks import LOOKS
from muster.inspect.facts import facts
from muster_controller.road.looks_kept import KeptLooks
from muster_controller.road.role_looks import RoleDecisions, RoleLooks
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

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


def test_stack_is_resolved_from_inventory(world: World) -> None:
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
    assert (found["rdma"]["node1"]["why"], found["rdma"]["node1"]["refusals"]) == ("the node has no RDMA adapter", [])
    assert found["msg"].splitlines()[0].split()[:2] == ["PyTorch", "2.13.0+cu130"]
    assert found["msg"].splitlines()[-1].startswith("warn  node1, node2, node3: not inspected yet. ")
    drivers = world.run("gpu_stack_plan", shows="drivers")["msg"]
    assert (drivers != found["msg"], "node1" in drivers, "msg" in world.run("gpu_stack_plan", shows="nothing")) == (
        True,
        True,
        False,
    )
    other = world.run("gpu_stack_plan", instead={"cluster_torch_version": "2.9.1+cu126", "gpu_stack_driver": ""})
    assert (other["stack"]["torch"], other["stack"]["variant"]) == ("2.9.1", "cu126")
    # Nodes without an inspection and without declared GPUs are not planned.
    declare(world, cluster_gpu_model="")
    assert list(world.run("gpu_stack_plan", looks="look")["parts"]) == []


def test_inspection_takes_precedence_over_inventory(world: World) -> None:
    declare(world, cluster_gpu_model="")
    gpus = {**seen_facts()["gpus"], "devices": [{"id": "10de:2330", "slot": "0000:18:00.0", "driver": ""}]}
    world.registered("node1", "look", {"facts": seen_facts(gpus=gpus)})
    found = world.run("gpu_stack_plan", looks="look")
    assert (found["parts"]["node1"], found["stack"]["nodes"]["node1"]["source"]) == (["nvidia_driver"], "nvidia")
    container = seen_facts(gpus=gpus)
    container["system"]["container"] = True
    world.registered("node1", "look", {"facts": container})
    assert world.fails("gpu_stack_plan", looks="look").splitlines()[1:] == [
        "- node1: the node is a container, and its host has no driver. Install a driver on the host."
    ]


def test_impossible_stack_is_rejected(world: World, tmp_path: Path) -> None:
    declare(world, gpu_stack_driver="470")
    assert "470" in world.fails("gpu_stack_plan")
    declare(world, gpu_stack_driver="", gpu_stack_repository_keys={"nvidia": str(tmp_path / "none"), "other": "x"})
    said = "gpu_stack_repository_keys: "
    assert world.fails("gpu_stack_plan").splitlines() == [
        f"{said}{tmp_path}/none cannot be read: No such file or directory.",
        f"{said}unknown repository other. Use nvidia or container_toolkit.",
    ]
    (tmp_path / "key").write_text("no key")
    declare(world, gpu_stack_repository_keys={"nvidia": str(tmp_path / "key")})
    assert world.fails("gpu_stack_plan").startswith(f"{said}{tmp_path}/key ")
    declare(world, gpu_stack_repository_keys={}, cluster_gpus="many")
    assert world.fails("gpu_stack_plan").startswith("node1: cluster_gpus ")


def test_only_parts_with_their_own_mode_are_managed_in_verify_mode(world: World) -> None:
    declare(world, cluster_mode="verify", dcgm_install=True, nvidia_driver_mode="manage")
    found = world.run("gpu_stack_plan")
    assert (found["parts"]["node1"], found["managed"]["node1"]) == (["nvidia_driver", "dcgm"], ["nvidia_driver"])


def test_offline_stack_requires_no_repositories(world: World) -> None:
    declare(world, cluster_offline_dir="/srv/offline")
    assert world.run("gpu_stack_plan")["repositories"] == {name: [] for name in NAMES}


# ---------------------------------------------------------------- a driver


def driver(world: World, *, check: bool = False, stack: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    seen = copy.deepcopy(HEALTHY["seen"])
    packages = seen["stack"]["packages"]
    seen["stack"]["packages"] = {
        one: {"version": of, "held": False, "state": "installed"} for one, of in packages.items()
    }
    for kernel in seen["stack"]["kernels"].values():
        kernel |= {"module_why": "", "built_for": "", "module_path": "/lib/modules/x/updates/dkms/nvidia.ko"}
    seen["stack"] |= stack or {}
    world.vars["look"] = {"facts": {**seen, "key_enrolled": None, "identity": {"machine": "x"}}}
    request = HEALTHY["request"]
    node = {kind: [{"name": one} for one in request[kind]] for kind in ("pins", "driver", "fabric", "headers")}
    resolved = {
        "branch": 580,
        "driver": "",
        "nodes": {"node1": {**node, "source": "nvidia", "build": "dkms", "keeps": False}},
    }
    file = {"path": "/etc/modprobe.d/muster-nvidia.conf", "content": "blacklist nouveau\n"}
    given = {"look": "look", "stack": resolved, "mode": "manage", "files": [file], **options}
    return world.run("nvidia_driver_plan", check=check, **given)


def test_driver_plan_installs_the_resolved_stack(world: World) -> None:
    # This machine is never rebooted. The drop-in of its unit differs.
    found = driver(world, check=True)
    assert (found["changed"], found["needed"], driver(world)["changed"]) == (True, True, False)
    (short,) = [one for one in found["diff"] if "before_header" not in one] or [None]
    headers = [one["before_header"] for one in found["diff"] if "before_header" in one]
    assert all(path.startswith("/etc/") for path in headers)
    older = driver(world, files=[{"path": "/etc/modprobe.d/muster-nvidia.conf", "content": "other\n"}])
    (changed,) = [one for one in older["diff"] if one.get("after_header") == "/etc/modprobe.d/muster-nvidia.conf"]
    assert (changed["before"], changed["after"]) == ("blacklist nouveau\n", "other\n")
    assert short is None or short["before"] != short["after"]
    interrupted = driver(world, stack={"packages": {}})
    assert (interrupted["needed"], interrupted["plan"]["packages"]) == (True, True)
    runfile = {"runfile": {"programs": [], "libraries": ["/usr/lib64/libcuda.so.1"], "log": False}}
    with pytest.raises(Exception, match=r"^node1: a driver was installed without packages \(/usr/lib64/libcuda"):
        driver(world, stack=runfile)


# ---------------------------------------------------------------- the inspection


def test_inspection_is_planned_and_evaluated(world: World, tmp_path: Path) -> None:
    world.registered("node2", "cluster_environments", {"old": {"prefix": "/opt/envs/old"}})
    world.registered("node2", "cluster_gpus", 0)
    plan = world.run("inspect_plan")
    assert (plan["peers"], plan["prefixes"]["node2"]) == (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["/opt/envs/old"])
    assert plan["writes"]["node1"] == ["/opt/muster/pytorch", "/var/lib/muster/launches"]
    assert [plan["requests"][name]["cluster_gpus_unset"] for name in NAMES] == [True, False, True]
    for number, name in enumerate(NAMES[:2], 1):
        world.registered(name, "look", {"facts": seen_facts(number)})
    found = world.run("inspect_verdict", plan=plan, looks="look")
    kept = json.loads((tmp_path / "artifacts/rack/inspect.json").read_text())
    assert (kept["run"], list(kept["nodes"]), kept["status"]) == (RUN, ["node1", "node2"], found["status"])
    assert (found["artifacts"], found["outcome"]) == (str(tmp_path / "artifacts/rack"), "")
    assert kept["findings"] == found["findings"]
    world.registered("node2", "look", {"failed": True, "msg": "Task failed: no route to host: "})
    found = world.run("inspect_verdict", plan=plan, looks="look")
    assert "????  node2: the node was not inspected: no route to host. " in found["msg"]
    assert (found["status"], found["refusals"]) == ("unknown", {})
    world.registered("node1", "cluster_interface", "eth7")
    found = world.run("inspect_verdict", plan=world.run("inspect_plan"), looks="look")
    assert list(found["refusals"]) == ["node1"]
    assert found["refusals"]["node1"].startswith("node1: no interface eth7")
    assert found["refusals"]["node1"].endswith(".")
    world.registered("node1", "cluster_gpus", "many")
    assert world.fails("inspect_plan").startswith("node1: cluster_gpus ")


class Looks:
    """Simulated node probes of a run. asked: nodes, their steps, and the request to each node."""

    def __init__(self, patch: pytest.MonkeyPatch, kept: dict[str, Any]) -> None:
        self.asked: list[Any] = []
        self.kept, self.wrote, self.forgotten = kept, 0, list[str]()
        self.answers: dict[str, Any] = {}

        def ask(_: Any, _action: Any, names: list[str], steps: Any, request: Any, _shift: int, *inspects: Any) -> Any:
            self.asked.append((names, steps, request, *inspects))
            return {name: self.answers.get(name, {"inspect": {"facts": {"of": name}}}) for name in names}

        patch.setattr(RoleLooks, "ask", ask)
        patch.setattr(KeptLooks, "__init__", lambda _: None)
        patch.setattr(KeptLooks, "of", lambda _, _step, name: self.kept.get(name))
        patch.setattr(KeptLooks, "keep", lambda _, _steps, answers: self.kept.update(answers))
        patch.setattr(KeptLooks, "forget", lambda _, names: self.forgotten.extend(names))
        patch.setattr(KeptLooks, "write", lambda _: setattr(self, "wrote", self.wrote + 1))


def test_all_nodes_are_inspected_together_once_per_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, {})
    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    plan = world.run("inspect_plan")
    looks.answers["node3"] = {"inspect": {"failed": True}}
    found = world.run("inspect_look", plan=plan)
    none = {"changed": False, "cut_off": [], "stop": ""}
    assert found == {**none, "nodes": {"node1": {"facts": {"of": "node1"}}}}
    ((names, _, request, inspects),) = looks.asked
    assert (names, request) == (["node1", "node3"], {"remembers": True, "full": False})
    assert inspects["node1"] == {
        "only": [],
        "user": "muster",
        "peers": plan["peers"],
        "paths": plan["writes"]["node1"],
        "prefixes": [],
    }
    assert (looks.wrote, list(looks.kept)) == (1, ["node1", "node3"])
    # A look at selected subjects uses the full one. Nodes without a full one are inspected.
    del looks.kept["node3"], looks.answers["node3"]
    found = world.run("inspect_look", check=True, only=["gpus"])
    assert list(found["nodes"]) == ["node1", "node3"]
    assert looks.asked[1][0] == ["node3"]
    assert looks.asked[1][2:] == (
        {"remembers": False, "full": False},
        {"node3": {"only": ["gpus"], "user": "", "peers": [], "paths": [], "prefixes": []}},
    )
    assert looks.wrote == 1
    world.vars["ansible_play_hosts"] = []
    assert world.run("inspect_look", plan=plan) == {**none, "nodes": {}}


@pytest.mark.parametrize(("check", "alone"), [(False, False), (True, False), (False, True)])
def test_run_stops_before_the_firewall_blocks_a_service(
    world: World, monkeypatch: pytest.MonkeyPatch, check: bool, alone: bool
) -> None:
    looks = Looks(monkeypatch, {})
    raw = copy.deepcopy(LOOKS["bare"])
    raw["said"]["listeners"]["out"] += 'tcp LISTEN 0 5 0.0.0.0:6818 0.0.0.0:* users:(("slurmd",pid=90,fd=3))\n'
    raw |= {"units": {"90": "slurmd.service"}, "connected": {"6818": ["10.9.0.1"]}}
    for number in (1, 2, 3):  # as in the recorded firewall
        world.registered(f"node{number}", "cluster_address", f"10.0.0.1{number}")
        own = json.loads(json.dumps(raw).replace("10.0.0.11", f"10.0.0.1{number}"))
        looks.answers[f"node{number}"] = {"inspect": {"facts": {}}, "firewall": {"look": own}}
    world.vars |= {"cluster_validated": not alone, "ansible_play_hosts": ["node1", "node2", "node3"]}
    plan = world.run("inspect_plan")
    found = world.run("inspect_look", plan=plan, check=check)
    service = "Slurm (slurmd in slurmd.service), port 6818/tcp (connected now: 10.9.0.1)"
    assert [one["summary"].rpartition("hosts: ")[2] for one in found["cut_off"]] == [service] * 3
    assert f"- node1, node2, node3: {service}\n" in found["stop"] or ((check or alone) and not found["stop"])
    step = world.run("role_looks", step="network", check=check)
    assert step.get("msg", "") == ("" if check else found["stop"] or step["msg"])
    assert bool(step.get("failed")) is not check
    for number in (1, 2, 3):
        world.registered(f"node{number}", "firewall_cut", ["slurm"])
    assert world.run("inspect_look", plan=plan, check=check)["stop"] == ""
    assert not world.run("role_looks", step="network", check=check).get("failed")


def test_roles_run_only_on_nodes_that_differ_from_the_inventory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, {"node1": {}})
    monkeypatch.setattr(
        RoleLooks, "judge", lambda *_: RoleDecisions({"cluster_hosts": {"node2": ["it lacks a name"]}}, ["x"])
    )
    found = world.run("role_looks", step="network")
    assert (found["content"], found["looked_at"], found["warnings"]) == (["node1", "node3"], ["node2", "node3"], ["x"])
    assert (found["needed"]["cluster_hosts"], looks.forgotten, looks.wrote) == (["node2"], ["node2"], 1)
    assert {tuple(nodes) for role, nodes in found["needed"].items() if role != "cluster_hosts"} == {()}
    assert found["why"] == {"cluster_hosts": {"node2": ["it lacks a name"]}}
    declare(world, cluster_full=True)
    found = world.run("role_looks", step="network")
    assert (found["content"], found["looked_at"], looks.forgotten[1:]) == ([], list(NAMES), list(NAMES))
    assert set(map(tuple, found["needed"].values())) == {NAMES}
    assert looks.asked[1][2] == {"remembers": True, "full": True}


GOOD = {"name": "a_1_all.deb", "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "hostile",
    [
        {"debs": 5},
        {"debs": [{**GOOD, "sha256": []}]},
        {"debs": [{"name": "a"}]},
        {"nodes": 5},
        {"nodes": {"node2": [1]}},
    ],
)
def test_packages_are_shared_in_spite_of_a_hostile_node(
    world: World, monkeypatch: pytest.MonkeyPatch, hostile: dict[str, Any]
) -> None:
    modules = Modules(monkeypatch)
    world.registered("node1", "look", {"debs": [GOOD, {**GOOD, "sha256": "1" * 64}]})
    world.registered("node2", "look", hostile)
    world.registered("node3", "look", {"debs": [{**GOOD, "more": 1}]})
    world.run("shared_debs", step="download", looks="look")
    assert modules.ran[0][1]["files"] == [GOOD, {**GOOD, "sha256": "1" * 64}]
