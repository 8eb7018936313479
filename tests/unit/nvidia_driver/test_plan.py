"""Every file in cases/ describes one node by its differences from healthy.yml, and the expected plan at one stage.

plan: only the given parts are compared. wrong: reasons to stop the run on this node; none by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from cases import cases, document_of
from muster.nvidia_driver import persistence
from muster.nvidia_driver.model import DriverFile, DriverRequest, DriverState
from muster.nvidia_driver.next_boot import findings, next_boot
from muster.nvidia_driver.plan import make_plan, settle
from muster.verdict.check import collect

if TYPE_CHECKING:
    from muster.nvidia_driver.facts import BootFacts, KernelFacts

HERE = Path(__file__).parent
RUNFILE = {"packages!": {}, "runfile": {"libraries": ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"]}}
FILES = (
    DriverFile("/etc/modprobe.d/muster-nvidia.conf", "blacklist nouveau\n"),
    DriverFile("/etc/apt/preferences.d/muster-nvidia-driver", "Package: nvidia-*\n", ("ubuntu", "debian")),
)


def laid_over(base: Any, changes: Any) -> Any:
    """Return a tree with changes applied: null removes a key, and a key that ends with ! replaces the whole value."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    result = dict(base)
    for key, value in changes.items():
        if key.endswith("!"):
            result[key[:-1]] = value
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = laid_over(base.get(key), value)
    return result


def seen_of(given: dict[str, Any]) -> DriverState:
    stack = given["stack"]
    plain = {"held": False, "state": "installed"}
    stack["packages"] = {
        name: {**plain, **(package if isinstance(package, dict) else {"version": package})}
        for name, package in stack["packages"].items()
    }
    stack["kernels"] = {
        name: {"module_why": "", "built_for": "", "module_path": "/lib/modules/x/updates/dkms/nvidia.ko", **kernel}
        for name, kernel in stack["kernels"].items()
    }
    # By default, the drop-in matches the unit of the node.
    unit = stack["files"].get(persistence.UNIT_FILE)
    if unit:
        whole = {"text": persistence.drop_in(unit["text"]), "mode": "0644", "owner": "root", "changed": 100.0}
        stack["files"].setdefault(persistence.DROP_IN, whole)
        if stack["files"][persistence.DROP_IN] == "missing":
            del stack["files"][persistence.DROP_IN]
    return DriverState(stack, given["gpus"], given["secure_boot"], given.get("key_enrolled"))


def tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}


@cases(__file__, "plan")
def test_driver_plan_matches_the_case(case: dict[str, Any]) -> None:
    base = document_of(HERE / "healthy.yml")
    given = laid_over(base, {"request": case.get("request", {}), "seen": case.get("seen", {})})
    request = DriverRequest(files=FILES, **tuples(given["request"]))
    plan = make_plan(request, seen_of(given["seen"]))
    wrong = settle(plan, request, case.get("stage", "look"))
    assert wrong == case.get("wrong", [])
    assert [each.sentence for each in plan.differences if each.sentence] == case.get("differences", [])
    assert plan.remarks == case.get("remarks", [])
    said: dict[str, Any] = {
        **vars(plan),
        "files": [file.path for file in plan.files],
        "units": [" ".join([unit["name"], *(key for key in ("restart", "start") if unit[key])]) for unit in plan.units],
    }
    for key, value in case.get("plan", {}).items():
        assert said[key] == value, key
    unsaid = {"uninstall", "configure", "unhold", "files", "unwanted", "apt", "build", "initramfs", "units", "reboot"}
    assert {key: said[key] for key in unsaid - case.get("plan", {}).keys() if said[key]} == {}
    for line in case.get("diff", []):
        assert line in [f"{each.what}: {each.before} -> {each.after}" for each in plan.differences]


@cases(__file__, "next_boot")
def test_next_boot_is_evaluated(case: dict[str, Any]) -> None:
    """Every case describes what differs on a node with an old running kernel and a new kernel that is booted next."""
    kernel: dict[str, Any] = {
        **dict.fromkeys(("module_why", "built_for", "license"), ""),
        "module": "580.159.04",
        "module_path": "/lib/modules/x/updates/dkms/nvidia.ko",
        "signer": "node1 key",
        "headers": True,
        "has_initramfs": True,
        "initramfs_old": False,
        "since_boot": False,
    }
    seen: BootFacts = {
        "loaded": case.get("loaded", "580.159.04"),
        "running": "6.8.0-90-generic",
        "bootable": case.get("bootable", ["6.8.0-90-generic", "6.8.0-100-generic"]),
        "kernels": {
            "6.8.0-90-generic": cast("KernelFacts", {**kernel, **case.get("running", {})}),
            "6.8.0-100-generic": cast("KernelFacts", {**kernel, **case.get("kernel", {})}),
        },
        "boots": (boots := case.get("boots", "6.8.0-100-generic")),
        "boots_why": "" if boots else "/boot/grub/grub.cfg: No such file or directory",
    }
    boot = next_boot(seen, case.get("installed", "580.159.04"), case.get("secure_boot"), case.get("key_enrolled"))
    assert boot.against_reboot == case["says"]
    judged = collect(findings("node1", boot))
    said = [*(one.status for one in judged.findings), *("skipped" for _ in judged.skipped)]
    assert said == ([case["finding"]] if "finding" in case else [])


@pytest.mark.parametrize(
    ("changes", "works"),
    [
        ({}, True),
        ({"stack": RUNFILE}, True),
        (
            {"stack": {"nvidia_smi": {"why": "ended with 255"}}},
            True,
        ),  # a problem of a GPU, which another driver does not fix
        ({"stack": {"loaded": "580.178.04"}}, False),
        ({"stack": {"loaded": ""}}, False),
        ({"stack": {"packages!": {}}}, False),
        (
            {"stack": {"packages": {"nvidia-dkms-580-open": {"version": "580.159.04-1", "state": "half-configured"}}}},
            False,
        ),
        ({"gpus": {"devices": [{"slot": "0000:18:00.0", "driver": "nouveau"}]}}, False),
    ],
)
def test_driver_works_only_if_the_installed_version_is_loaded(changes: dict[str, Any], works: bool) -> None:
    healthy = document_of(HERE / "healthy.yml")["seen"]
    assert seen_of(laid_over(healthy, changes)).works is works
