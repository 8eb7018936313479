"""Steps of the upgrade playbook. Nodes are idle unless a test sets another answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.collections import ImmutableDict

from acting import World
from muster_controller.nodes.asking import NodeAnswer
from muster_controller.upgrade import kernels, upgrading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOSTS = """
gpu_nodes:
  vars:
    ansible_connection: local
    cluster_torch_version: "2.8.0"
    pytorch_root: /nonexistent
  hosts:
    node1:
    node2:
    node3:
"""
NAMES = ("node1", "node2", "node3")
AGAIN = "ansible-playbook playbooks/upgrade.yml -e torch_version=2.9.1."
ENV = "2.8.0-cpu-py3.12-1f0c2a7b"
OLD = "2.7.1-cpu-py3.12-1f0c2a7b"


class Upgrade:
    """The steps of one upgrade, with the results that the playbook passes between them."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "rack", HOSTS)
        self.look: dict[str, Any] = {}
        self.plan: dict[str, Any] = {}
        self.gets: dict[str, Any] = {}

    def step(self, step: str, **options: Any) -> dict[str, Any]:
        given = {"look": self.look, "plan": self.plan, "torch_looks": "torch", "looks": "node", "gets": self.gets}
        found = self.world.run("upgrade", step=step, **{**given, **options})
        assert found.pop("changed") is False
        return found

    def fails(self, step: str, **options: Any) -> str:
        with pytest.raises(AnsibleActionFail) as failed:
            self.step(step, **options)
        return str(failed.value)

    def planned(self, **options: Any) -> dict[str, Any]:
        """Plan PyTorch 2.9.1 for all nodes."""
        self.look = self.step("look", torch_version="2.9.1", **options)
        for name in NAMES:
            built = {"build": "2.9.1-cpu-py3.12-00000000", "switch": True, "reasons": ["torch is another one"]}
            self.world.registered(name, "torch", {"plan": built})
        self.plan = self.step("plan")
        return self.plan

    def turn(self, number: int) -> dict[str, Any]:
        self.world.vars["ansible_play_batch"] = self.plan["batches"][number]
        return self.step("turn")

    def complete_batch(self, number: int) -> None:
        launches = self.step("trials")["launches"]
        for name in self.plan["batches"][number]:
            self.world.registered(name, "__upgrade_good", self.step("good"))
        self.world.registered(self.plan["batches"][number][0], "__upgrade_trials", {"launches": launches})


def idle(link: str = "", *others: str, why: str = "") -> NodeAnswer:
    return NodeAnswer({"why": why, "link": f"envs/{link}" if link else "", "environments": [*others], "processes": []})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[NodeAnswer]]:
    """Return the answers of each node, in turn; the last one is repeated."""
    found = {name: [idle()] for name in NAMES}

    def ask(_action: object, _program: object, _verb: str, payloads: Mapping[str, Any], *_seconds: float) -> Any:
        return {name: found[name].pop(0) if len(found[name]) > 1 else found[name][0] for name in payloads}

    for module in (upgrading, kernels):
        monkeypatch.setattr(module, "ask_nodes", ask)
    return found


@pytest.fixture
def upgrade(tmp_path: Path, answers: object, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=[str(tmp_path / "rack")]))
    return Upgrade(tmp_path)


def test_batches_are_upgraded_in_turn_before_the_inventory_is_changed(upgrade: Upgrade) -> None:
    plan = upgrade.planned()
    assert upgrade.look["silent"] == {}
    assert upgrade.look["busy"] == {"node1": [], "node2": [], "node3": []}
    assert (plan["batches"], plan["sizes"]) == ([["node3"], ["node1"], ["node2"]], [1, 1, 1])
    assert plan["order"] == ["node3", "node1", "node2"]
    assert plan["msg"].splitlines()[0] == "changes  node1, node2, node3: PyTorch none -> 2.9.1"
    for number, launches in enumerate([[["node3"]], [["node1", "node3"]], [["node2", "node1"]]]):
        assert upgrade.turn(number) == {"go": plan["batches"][number], "left": {}, "red": ""}
        assert sorted(map(sorted, upgrade.step("trials")["launches"])) == sorted(map(sorted, launches))
        upgrade.complete_batch(number)
    rest = upgrade.step("rest")
    assert rest["launches"] == [["node1", "node2", "node3"]]
    assert rest["state"] == {"done": ["node1", "node2", "node3"], "red": {}, "left": {}, "untouched": [], "silent": {}}

    before = (upgrade.world.folder / "hosts.yml").read_text()
    with_check = upgrade.world.run(
        "upgrade", check=True, step="end", look=upgrade.look, plan=upgrade.plan, torch_looks="torch"
    )
    assert with_check["changed"] is True
    assert (upgrade.world.folder / "hosts.yml").read_text() == before
    written = upgrade.world.run("upgrade", step="end", look=upgrade.look, plan=upgrade.plan, torch_looks="torch")
    assert written["changed"] is True
    assert (upgrade.world.folder / "hosts.yml").read_text() == before.replace("2.8.0", "2.9.1")


def test_successful_trial_launch_of_all_nodes_is_not_repeated(upgrade: Upgrade) -> None:
    upgrade.planned()
    for number in range(3):
        upgrade.turn(number)
        upgrade.complete_batch(number)
    upgrade.world.registered("node1", "__upgrade_trials", {"launches": [["node3", "node2", "node1"]]})
    assert upgrade.step("rest")["launches"] == []
    assert upgrade.step("rest", smoke="none")["launches"] == []
    upgrade.world.registered("node1", "__upgrade_trials", {})
    assert upgrade.step("rest", smoke="none")["launches"] == []
    assert upgrade.step("trials", smoke="none")["launches"] == []


def test_failed_batch_stops_the_upgrade(upgrade: Upgrade) -> None:
    upgrade.planned()
    upgrade.world.vars["inventory_hostname"] = "node3"
    assert upgrade.step("red", why=" node3: its launch failed\n") == {"red": "its launch failed"}
    upgrade.world.registered("node3", "__upgrade_red", {"red": "its launch failed"})
    assert upgrade.turn(1) == {"go": [], "left": {}, "red": "its launch failed"}
    state = upgrade.step("rest")
    assert state["launches"] == []
    assert state["state"]["untouched"] == ["node1", "node2"]
    assert upgrade.fails("end") == (
        "node3: its launch failed.\n"
        "The upgrade stops: node1, node2 and the inventory are unchanged.\n"
        "To roll back in seconds: ansible-playbook playbooks/upgrade.yml -e rollback=true.\n"
        f"To try again: {AGAIN}"
    )


def test_batch_fails_if_one_of_its_nodes_is_lost(upgrade: Upgrade) -> None:
    upgrade.planned()
    assert upgrade.turn(1)["red"] == "connection lost during the upgrade"
    assert upgrade.step("rest")["state"]["red"] == {"node3": "connection lost during the upgrade"}


def test_failure_of_the_final_trial_launch_is_reported(upgrade: Upgrade) -> None:
    upgrade.planned()
    for number in range(3):
        upgrade.turn(number)
        upgrade.complete_batch(number)
    assert upgrade.fails("end", why="the last launch failed").startswith(
        "node1, node2, node3: the last launch failed.\nThe upgrade stops"
    )


def test_busy_node_is_postponed(
    upgrade: Upgrade, answers: dict[str, list[NodeAnswer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "AGAIN", 0.01)
    upgrade.planned()
    answers["node3"] = [idle(why="a process could not be looked at")]
    assert upgrade.turn(0) == {
        "go": [],
        "left": {"node3": "a process could not be looked at"},
        "red": "",
        "msg": "node3 is postponed: a process could not be looked at.",
    }
    upgrade.world.registered("node3", "__upgrade_turn", upgrade.step("turn"))
    assert upgrade.turn(1)["go"] == ["node1"]
    for number in (1, 2):
        upgrade.turn(number)
        upgrade.complete_batch(number)
    assert upgrade.step("rest")["state"]["left"] == {"node3": "a process could not be looked at"}
    assert upgrade.step("rest")["launches"] == []
    assert upgrade.fails("end") == (
        "node3 is postponed: a process could not be looked at.\nnode1, node2 are upgraded. The inventory remains"
        f" unchanged until all nodes are upgraded. To upgrade the postponed nodes later: {AGAIN}"
    )


def test_upgrade_waits_for_busy_nodes_if_requested(
    upgrade: Upgrade, answers: dict[str, list[NodeAnswer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "AGAIN", 0.01)
    upgrade.planned(wait=60)
    answers["node3"] = [idle(why="somebody works"), idle(why="somebody works"), idle()]
    assert upgrade.turn(0)["go"] == ["node3"]
    # The upgrade does not wait for a silent node, which may never respond.
    answers["node3"] = [NodeAnswer(error="no route to host"), idle()]
    assert upgrade.turn(0)["left"] == {"node3": "no route to host"}


def test_rollback_uses_the_retained_environment(upgrade: Upgrade, answers: dict[str, list[NodeAnswer]]) -> None:
    answers.update({name: [idle(ENV, ENV, OLD)] for name in NAMES})
    upgrade.look = upgrade.step("look", rollback=True)
    assert (upgrade.look["torch"], upgrade.look["request"]["rollback"]) == ("2.7.1", True)
    assert upgrade.look["releases"] == dict.fromkeys(NAMES, "2.8.0")
    for name in ("node1", "node2"):
        upgrade.world.registered(name, "torch", {"plan": {"build": "", "switch": True, "reasons": []}})
    upgrade.world.registered("node3", "torch", {"plan": {"build": OLD, "switch": True, "reasons": []}})
    assert upgrade.fails("plan") == (
        "node3: the kept environment with PyTorch 2.7.1 does not match the inventory. To build one,"
        " set -e torch_version=2.7.1 without rollback=true."
    )
    upgrade.world.registered("node3", "torch", {"plan": {"build": "", "switch": False, "reasons": []}})
    upgrade.plan = upgrade.step("plan")
    assert upgrade.plan["order"] == ["node1", "node2"]
    assert upgrade.plan["proved"] == ["node3"]
    upgrade.turn(0)
    assert upgrade.step("trials")["launches"] == []


def test_rollback_is_rejected_if_no_node_is_reachable(upgrade: Upgrade, answers: dict[str, list[NodeAnswer]]) -> None:
    answers.update({name: [NodeAnswer(error="no route to host")] for name in NAMES})
    assert upgrade.fails("look", rollback=True) == (
        "No rollback is possible. No node responds, so the installed releases are unknown."
    )


def test_invalid_options_are_reported_before_any_contact(upgrade: Upgrade) -> None:
    said = upgrade.fails("look", torch_version="new", kernel="all", batch=-1)
    assert (
        said.splitlines()[0] == "kernel is all. The only supported value is -e kernel=security (newest security fixes)."
    )
    assert "torch_version and kernel cannot be upgraded in one run." in said
    assert "batch is -1, but must be 0 or greater." in said
    assert said.splitlines()[-1].startswith("torch_version: 'new' is not an exact version.")


def test_node_that_cannot_be_inspected_is_skipped(upgrade: Upgrade, answers: dict[str, list[NodeAnswer]]) -> None:
    answers["node2"] = [NodeAnswer(error="no route to host")]
    upgrade.world.vars["ansible_play_hosts_all"] = ["node1", "node2"]
    upgrade.look = upgrade.step("look", torch_version="2.9.1")
    assert upgrade.look["silent"] == {"node2": "no route to host", "node3": "excluded by --limit"}
    upgrade.world.registered("node1", "torch", {"failed": True, "msg": "node1: its disk is full"})
    upgrade.plan = upgrade.step("plan")
    assert upgrade.plan["batches"] == []
    assert upgrade.plan["sizes"] == [1]
    assert upgrade.plan["silent"] == {**upgrade.look["silent"], "node1": "its disk is full"}


# ---------------------------------------------------------------- kernels

KERNEL = {
    "module": "580.95.05",
    "module_path": "/lib/modules/6.8.0-90-generic/updates/dkms/nvidia.ko",
    **dict.fromkeys(("module_why", "built_for", "signer", "license"), ""),
    **dict.fromkeys(("headers", "has_initramfs"), True),
    **dict.fromkeys(("initramfs_old", "since_boot"), False),
}
STACK = {
    "packages": {},
    "runfile": {"libraries": []},
    "running": "6.8.0-90-generic",
    "bootable": ["6.8.0-90-generic"],
    "boots": "6.8.0-90-generic",
    "boots_why": "",
    "kernels": {"6.8.0-90-generic": KERNEL},
    "loaded": "580.95.05",
}
FIX = {
    "before": "6.8.0-89-generic",
    "start": "6.8.0-90-generic",
    "reboot": True,
    "words": [],
    "installs": {},
    "stays": [],
    "back": ["sudo grub-reboot 1"],
    "refusals": [],
}


NOT_IN_BOOT = "is not in /boot, which has no kernels (as in a container)"


def node_look(**stack: Any) -> dict[str, Any]:
    return {"facts": {"stack": {**STACK, **stack}, "gpus": {}, "secure_boot": False, "key_enrolled": None}}


def plan_kernel_fix(upgrade: Upgrade) -> None:
    look = {"request": {"torch": "", "kernel": "security"}, "kind": "kernel", "silent": {}, "busy": {}, "releases": {}}
    upgrade.look = look
    gets = {"nodes": {"node1": FIX}, "loaded": {"node1": "580.95.05"}, "silent": {}}
    upgrade.plan = {"gets": gets, "batches": [["node1"]], "proved": [], "silent": {}, "nodes": []}


def test_node_is_rebooted_only_if_the_expected_kernel_will_boot(upgrade: Upgrade) -> None:
    plan_kernel_fix(upgrade)
    upgrade.world.registered("node1", "node", node_look())
    assert upgrade.step("ready") == {}
    assert upgrade.step("started") == {}
    upgrade.world.registered("node1", "node", node_look(bootable=["6.8.0-90-generic", "6.8.0-91-generic"]))
    assert upgrade.fails("ready") == (
        "node1 is not rebooted: the newest kernel is 6.8.0-91-generic instead of 6.8.0-90-generic"
    )
    without = {**KERNEL, "module": ""}
    upgrade.world.registered("node1", "node", node_look(kernels={"6.8.0-90-generic": without}))
    assert upgrade.fails("ready") == (
        "node1 is not rebooted: the next boot starts the kernel 6.8.0-90-generic, and it has no module of driver "
        "580.95.05. Run on the node: sudo dkms autoinstall -k 6.8.0-90-generic"
    )
    upgrade.world.registered("node1", "node", node_look(loaded=""))
    assert upgrade.fails("started") == (
        "node1: the node runs 6.8.0-90-generic, but the driver is not loaded (before: 580.95.05)"
    )


def test_failed_node_is_reported_with_instructions_to_boot_its_old_kernel(upgrade: Upgrade) -> None:
    plan_kernel_fix(upgrade)
    assert "sudo grub-reboot 1" in upgrade.fails("end")


def test_node_without_a_valid_kernel_report_is_skipped(upgrade: Upgrade, answers: dict[str, list[NodeAnswer]]) -> None:
    upgrade.look = {"request": {"torch": "", "kernel": "security"}, "silent": {}}
    answers.update(
        node1=[
            NodeAnswer(
                {**dict.fromkeys(("packages", "files", "policy", "menu", "machine", "version"), ""), "boot_free": 1}
            )
        ],
        node2=[NodeAnswer({"packages": ""})],
    )
    upgrade.world.registered("node1", "node", node_look(bootable=[]))
    upgrade.world.registered("node2", "node", node_look())
    found = upgrade.step("kernels")
    assert found["nodes"]["node1"]["refusals"] == (f"node1: the running kernel 6.8.0-90-generic {NOT_IN_BOOT}",)
    assert list(found["nodes"]) == ["node1"]
    assert found["loaded"] == {"node1": "580.95.05"}
    assert found["silent"] == {
        "node2": "the node's report of its kernels is invalid",
        "node3": "could not be inspected",
    }


@pytest.mark.parametrize("data", [None, {"code": "0", "out": "", "err": ""}, {"code": 0, "out": 1, "err": ""}])
def test_invalid_apt_report_is_an_error(data: Any) -> None:
    assert kernels._answer(data).errors == ("the node's report of its kernels is invalid",)


def test_unknown_package_of_apt_is_an_error() -> None:
    said = {"code": 100, "out": "", "err": "E: Unable to locate package linux-image-generic\n"}
    assert kernels._answer(said).errors == ("Unable to locate package linux-image-generic",)
