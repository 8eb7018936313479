"""Kernel security fixes of a node: packages, checks before and after the reboot, and rollback."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases import cases, document_of
from muster.inspect.boot_menu import entry
from muster.nvidia_driver.apt import AptSimulation
from muster.nvidia_driver.next_boot import next_boot
from muster.upgrade import kernel, kernel_seen, say
from muster.upgrade.model import Order

if TYPE_CHECKING:
    from muster.nvidia_driver.facts import BootFacts, KernelFacts

NODES: dict[str, Any] = document_of(Path(__file__).with_name("nodes.yml"))


def seen_of(given: dict[str, Any]) -> kernel_seen.Kernels:
    """Return the kernels of a node. packages: [version, dependencies...] by name. security: versions in the security
    pocket, newest first. known: all versions that apt knows."""
    packages = {
        name: kernel_seen.KernelPackage(rest[0], False, tuple(rest[1:]))
        for name, rest in given.get("packages", {}).items()
    }
    packages |= {
        name: kernel_seen.KernelPackage(packages[name].version, True, packages[name].depends)
        for name in given.get("held", [])
    }
    offered = {name: tuple(those) for name, those in given.get("security", {}).items()}
    known = {
        name: tuple(given.get("known", {}).get(name, (*those, packages[name].version)))
        for name, those in offered.items()
    }
    kernels = {release: kernel_of(of) for release, of in given.get("kernels", {}).items()}
    bootable = tuple(given.get("bootable", ()))
    rest = {name: given[name] for name in ("loaded", "free", "menu", "runs") if name in given}
    return kernel_seen.Kernels(
        given["running"],
        bootable,
        kernels,
        packages=packages,
        offered=offered,
        known=known,
        pocket=given.get("pocket", True),
        **rest,
    )


def kernel_of(given: dict[str, Any]) -> KernelFacts:
    """Return an installed kernel. module: version and path."""
    version, path = given.get("module", ("", ""))
    return {
        "module": version,
        "module_path": path,
        "headers": given.get("headers", False),
        "has_initramfs": given.get("initramfs", False),
        "initramfs_old": False,
        "since_boot": False,
        "module_why": "",
        "built_for": "",
        "signer": "",
        "license": "",
    }


def boot_of(seen: kernel_seen.Kernels, boots: str) -> BootFacts:
    """Return the facts from which the next boot is evaluated. boots: the kernel in the boot menu."""
    return {
        "loaded": seen.loaded,
        "running": seen.running,
        "bootable": seen.bootable,
        "kernels": {name: seen.kernels.get(name, kernel_of({})) for name in seen.bootable},
        "boots": boots,
        "boots_why": "" if boots else "there is no boot menu",
    }


def answer_of(given: dict[str, Any]) -> AptSimulation:
    return AptSimulation(given.get("installs", {}), tuple(given.get("removes", ())), (), tuple(given.get("errors", ())))


@cases(__file__, "kernel")
def test_kernel_fix_of_a_node_matches_the_case(case: dict[str, Any]) -> None:
    seen = seen_of({**NODES.get(case.get("like", ""), {}), **case.get("seen", {})})
    assert list(kernel.unfit(seen)) == case.get("unfit", [])
    if "unfit" in case:
        return
    words = kernel.wanted(seen)
    assert words == case.get("words", [])
    answer = answer_of(case.get("apt", {}))
    more = kernel.missing(seen, answer)
    assert more == case.get("missing", [])
    fix = kernel.decide("node1", seen, [*words, *more], answer_of(case.get("apt_again", case.get("apt", {}))))
    assert list(fix.refusals) == case.get("refusals", [])
    assert fix.start == case["start"]
    assert [str(change) for change in fix.changes] == case.get("changes", [])
    assert list(fix.back) == case.get("back", [])
    shown = [*say.kernel_packages({"node1": fix}, Order((("node1",),)))]
    assert shown == case.get("shown", [])
    assert kernel.fix_of(asdict(fix)) == fix


@cases(__file__, "kernel_after")
def test_kernel_is_checked_before_and_after_the_reboot(case: dict[str, Any]) -> None:
    fix = kernel.KernelFix(start=case["start"])
    seen = seen_of(case["seen"])
    assert kernel.unready(seen, fix, next_boot(boot_of(seen, case.get("boots", "")))) == case.get("unready", "")
    assert kernel.wrong_after(seen, fix, case.get("loaded_before", "")) == case.get("wrong_after", "")


@cases(__file__, "boot_menu")
def test_boot_menu_entry_of_a_kernel_is_found(case: dict[str, Any]) -> None:
    assert entry(case["menu"], case["release"]) == case.get("entry", "")


STACK: dict[str, Any] = {
    "running": "6.1.0-40-amd64",
    "bootable": ["6.1.0-9-amd64", "6.1.0-40-amd64"],
    "kernels": {
        "6.1.0-40-amd64": {
            **dict.fromkeys(("module", "module_path", "signer", "license"), ""),
            **dict.fromkeys(("headers", "has_initramfs", "initramfs_old", "since_boot"), False),
        }
    },
    "loaded": "",
}
ANSWER: dict[str, Any] = {
    **dict.fromkeys(("packages", "files", "policy", "menu", "machine", "version"), ""),
    "boot_free": 1,
}


def read_of(stack: dict[str, Any], answer: Any) -> kernel_seen.Kernels:
    facts: Any = {**STACK, **stack}
    return kernel_seen.read(facts, answer)


@cases(__file__, "kernel_seen")
def test_kernel_facts_are_read_from_a_report(case: dict[str, Any]) -> None:
    seen = read_of({}, {**ANSWER, **case})
    found = {
        "flavour": seen.flavour,
        "newest": seen.newest,
        "pocket": seen.pocket,
        "runs": seen.runs,
        "leading": kernel.leading(seen),
    }
    assert {**found, "words": kernel.wanted(seen)} == case["found"]


@pytest.mark.parametrize("answer", [None, {}, "no", {"packages": ""}])
def test_invalid_report_is_rejected(answer: Any) -> None:
    with pytest.raises(kernel_seen.UselessError):
        read_of({}, answer)


def test_invalid_kernel_name_is_rejected() -> None:
    with pytest.raises(kernel_seen.UselessError):
        read_of({"running": "6.1.0; reboot"}, ANSWER)


@pytest.mark.parametrize(
    ("release", "of"),
    [
        ("6.8.0-90-generic", "generic"),
        ("6.8.0-1021-nvidia-64k", "nvidia-64k"),
        ("6.1.0-30-cloud-amd64", "cloud-amd64"),
        ("6.12.48+deb13-amd64", "amd64"),
        ("6.12.48+deb13+1-cloud-amd64", "cloud-amd64"),
        ("6.10.11+bpo-amd64", "amd64"),
        ("6.1.0-0.deb11.22-amd64", "amd64"),
        ("6.18.44-fc-v657", "fc-v657"),
        ("6.18.44", ""),
    ],
)
def test_kernel_flavour_is_derived_from_the_release(release: str, of: str) -> None:
    assert kernel_seen.flavour(release) == of


def test_commands_for_a_manual_upgrade_of_the_controller_are_shown() -> None:
    said = kernel.by_hand(kernel.KernelFix(words=("linux-image-generic=6.8.0-94.96",)))
    assert said.endswith("Run on it: sudo apt-get install linux-image-generic=6.8.0-94.96, then sudo systemctl reboot")
