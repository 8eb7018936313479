"""The driver upgrade of a node: changes, kept packages and rollback. Each file contains one case."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cases import cases
from muster.nvidia_driver.model import DriverState
from muster.upgrade import say
from muster.upgrade.driver import by_hand, going_back, turn_from, turn_of
from muster.upgrade.model import Order, UpgradeNode, UpgradeRequest

DEVICE = {"slot": "0000:18:00.0", "id": "10de:2330", "name": "", "driver": "nvidia"}


def seen_of(given: dict[str, Any]) -> DriverState:
    """Return a driver state. packages: version or [version, dpkg state] by name. runfile: unpackaged libraries."""
    rows = {
        name: row if isinstance(row, list) else [row, "installed"] for name, row in given.get("packages", {}).items()
    }
    packages = {name: {"version": version, "held": False, "state": state} for name, (version, state) in rows.items()}
    runfile = {"programs": [], "libraries": given.get("runfile", []), "log": False}
    stack: Any = {"packages": packages, "loaded": given.get("loaded", ""), "runfile": runfile}
    gpus: Any = {"devices": [DEVICE] if given.get("gpus", True) else [], "nvswitches": 0, "driver_version": ""}
    return DriverState(stack, gpus)


@cases(__file__, "driver")
def test_driver_upgrade_of_a_node_matches_the_case(case: dict[str, Any]) -> None:
    stack = {"branch": 595, "driver": case.get("exact", ""), "nodes": {"node1": {"source": "nvidia"}}}
    options = {"mode": "manage", "reboots": True, **case.get("options", {})}
    turn = turn_of("node1", stack, seen_of(case["seen"]), **options)
    assert [str(change) for change in turn.changes] == case.get("changes", [])
    assert list(turn.keep) == case.get("keep", [])
    assert list(turn.refusals) == case.get("refusals", [])
    assert turn.goes_back == case.get("goes_back", False)
    assert turn_from(asdict(turn)) == turn


def test_rollback_commands_reinstall_the_previous_driver() -> None:
    turn = turn_of(
        "node1",
        {"branch": 595, "driver": "", "nodes": {"node1": {"source": "nvidia"}}},
        seen_of({"loaded": "580.95.05", "packages": {"libnvidia-compute": "580.95.05-1"}}),
        mode="manage",
        reboots=True,
    )
    there = ["libnvidia-compute", "libnvidia-gpucomp", "cuda-toolkit-13-0"]
    text = say.ended_red(
        UpgradeRequest(driver="595"), {"node1": "its GPUs do not answer"}, ["node2"], going_back("node1", turn, there)
    )
    install = "apt-get install --yes --allow-downgrades --allow-change-held-packages --no-install-recommends"
    lines = text.splitlines()
    assert lines[1] == "The upgrade stops: node2 and the inventory are unchanged."
    assert lines[2] == "To roll back to the previous driver from its kept packages:"
    assert f"{install} /var/lib/muster/driver_before/*.deb libnvidia-gpucomp-" in lines[3]
    assert lines[3].startswith("  ansible node1 --become -m ansible.builtin.command -a ")
    assert lines[-1] == "To try again: ansible-playbook playbooks/upgrade.yml -e driver=595."


def test_messages_before_and_after_the_upgrade_are_shown() -> None:
    request, nodes = UpgradeRequest(driver="595"), [UpgradeNode("node1")]
    assert say.planned(nodes, Order(proved=("node1",)), request, launches=True) == (
        "changes  none: every node that responds is up to date"
    )
    assert say.complete(request, ["node1", "node2"], {}) == "2 nodes have the driver 595."


def test_command_for_a_manual_upgrade_of_the_controller_is_shown() -> None:
    assert by_hand("595", "node1").endswith("playbooks/gpu_stack.yml -e gpu_stack_driver=595 --limit node1")
