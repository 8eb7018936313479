"""Where a node's driver comes from, with which kernel modules, and who builds those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Refusal, StackChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .nodes import StackCase, StackNode

ENROL = {
    "ubuntu": (
        "On the node, let the firmware know the key that dkms signs with: sudo update-secureboot-policy --new-key; "
        "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der; reboot, and confirm it at the console; "
        "or set gpu_stack_source to ubuntu and gpu_stack_build to auto, whose modules are signed already"
    ),
    # Debian's dkms makes a key of its own.
    "debian": (
        "On the node, let the firmware know the key that dkms signs with: sudo dkms generate_mok; "
        "sudo mokutil --import /var/lib/dkms/mok.pub; reboot, and confirm it at the console"
    ),
}


def modules_of(case: StackCase, node: StackNode) -> str:
    """Return open or proprietary; where nothing decides, open."""
    if case.request.modules != "auto":
        return case.request.modules
    return "proprietary" if node.only_proprietary else "open"


def source_of(case: StackCase, node: StackNode) -> str:
    """Return the source; all nodes of a distribution have the same one, and with it the same version."""
    if case.request.source != "auto":
        return case.request.source
    return "ubuntu" if node.distribution == "ubuntu" and _who_needs_signed(case) else "nvidia"


def build_of(case: StackCase, node: StackNode) -> str:
    """Return dkms (built on the node) or precompiled (built and signed by Ubuntu)."""
    if case.request.build != "auto":
        return case.request.build
    return "precompiled" if source_of(case, node) == "ubuntu" else "dkms"


def _who_needs_signed(case: StackCase) -> StackNode | None:
    """Return a node that only signed modules help, where such are to be had and dkms is not asked for."""
    if case.request.build == "dkms":
        return None
    return next((node for node in case.managed if node.distribution == "ubuntu" and node.locked), None)


def module_refusals(case: StackCase, node: StackNode) -> Iterator[Refusal]:
    """Say what of the request for kernel modules and their source this node cannot have."""
    new, old, requested = node.only_open, node.only_proprietary, case.request.modules
    if new and old:
        why = f"{node.gpu(old)} needs proprietary kernel modules and {node.gpu(new)} open ones, so no driver runs both"
        yield Refusal(node.name, why, "Put them into different machines")
    elif new and requested == "proprietary":
        why = f"{node.gpu(new)} works with open kernel modules alone"
        yield Refusal(node.name, why, "Set gpu_stack_modules to open, or to auto")
    elif old and requested == "open":
        why = f"{node.gpu(old)} works with proprietary kernel modules alone"
        yield Refusal(node.name, why, "Set gpu_stack_modules to proprietary, or to auto")
    source = source_of(case, node)
    if source not in node.system.branches:
        there = " or ".join(node.system.branches)
        why = f"{source} has no driver for {node.system.name}"
        yield Refusal(node.name, why, f"Set gpu_stack_source to {there}, or to auto")
    elif source != "ubuntu" and case.request.build == "precompiled":
        why = f"gpu_stack_build is precompiled, and {source} has no such modules for {node.system.name}"
        ubuntu = node.distribution == "ubuntu"
        yield Refusal(node.name, why, "Set gpu_stack_source to ubuntu" if ubuntu else "Set gpu_stack_build to dkms")
    elif node.locked and build_of(case, node) == "dkms":
        why = "Secure Boot is on, and the key that dkms signs with is not enrolled: the driver would not load"
        yield Refusal(node.name, why, ENROL[node.distribution])


def module_choices(case: StackCase, node: StackNode) -> Iterator[StackChoice]:
    """Give the reasons of what was chosen for a node."""
    source, modules, build = source_of(case, node), modules_of(case, node), build_of(case, node)
    yield StackChoice("source", source, _why_source(case, node, source))
    yield StackChoice("kernel modules", f"{modules}, {build}", _why_modules(case, node))
    if node.has_fabric:
        switches = node.seen.nvswitches
        found = f"{switches} NVSwitches are on its bus" if switches else "its board has NVSwitches"
        yield StackChoice("fabric manager", "same version", f"{found}; CUDA needs it, and it the version of the driver")


def _why_source(case: StackCase, node: StackNode, source: str) -> str:
    if case.request.source != "auto":
        return "gpu_stack_source asks for it"
    locked = _who_needs_signed(case)
    if source == "ubuntu" and locked:
        whose = "its" if locked is node else f"{locked.name}'s"
        return f"{whose} Secure Boot is on and the key of dkms is not enrolled: Ubuntu's modules are signed already"
    return "it has the branch, and a package that keeps every part of it at one version"


def _why_modules(case: StackCase, node: StackNode) -> str:
    if case.request.modules != "auto":
        return "gpu_stack_modules asks for them"
    deciding = node.only_open or node.only_proprietary
    if deciding:
        return f"{node.gpu(deciding)} works with them alone"
    return "NVIDIA recommends them since Turing"
