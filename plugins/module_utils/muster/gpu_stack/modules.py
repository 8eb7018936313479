"""Choose the source of a node's driver, the flavour of its kernel modules, and where they are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import Refusal, StackChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .nodes import StackCase, StackNode

ENROL = {
    "ubuntu": (
        "On the node, enroll the signing key of dkms in the firmware: sudo update-secureboot-policy --new-key; "
        "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der; reboot, and confirm the key at the console; "
        "or set gpu_stack_source to ubuntu and gpu_stack_build to auto to use signed modules"
    ),
    # dkms on Debian creates a separate key.
    "debian": (
        "On the node, enroll the signing key of dkms in the firmware: sudo dkms generate_mok; "
        "sudo mokutil --import /var/lib/dkms/mok.pub; reboot, and confirm the key at the console"
    ),
}


def modules_of(case: StackCase, node: StackNode) -> str:
    """Return the kernel module flavour, open or proprietary. The default is open."""
    if case.request.modules != "auto":
        return case.request.modules
    return "proprietary" if node.only_proprietary else "open"


def source_of(case: StackCase, node: StackNode) -> str:
    """Return the source of the driver. All nodes of a distribution use the same source, and so get the same version."""
    if case.request.source != "auto":
        return case.request.source
    return "ubuntu" if node.distribution == "ubuntu" and _who_needs_signed(case) else "nvidia"


def build_of(case: StackCase, node: StackNode) -> str:
    """Return "dkms" (built on the node) or "precompiled" (built and signed by Ubuntu)."""
    if case.request.build != "auto":
        return case.request.build
    return "precompiled" if source_of(case, node) == "ubuntu" else "dkms"


def _who_needs_signed(case: StackCase) -> StackNode | None:
    """Return a node that requires signed modules, if signed modules are available and dkms is not requested."""
    if case.request.build == "dkms":
        return None
    return next((node for node in case.managed if node.distribution == "ubuntu" and node.locked), None)


def module_refusals(case: StackCase, node: StackNode) -> Iterator[Refusal]:
    """Yield the reasons why the requested kernel modules or their source cannot be used."""
    new, old, requested = node.only_open, node.only_proprietary, case.request.modules
    if new and old:
        why = f"{node.gpu(old)} requires proprietary kernel modules, but {node.gpu(new)} requires open kernel modules"
        yield Refusal(node.name, why, "Install these GPUs in different machines")
    elif new and requested == "proprietary":
        why = f"{node.gpu(new)} requires open kernel modules"
        yield Refusal(node.name, why, "Set gpu_stack_modules to open, or to auto")
    elif old and requested == "open":
        why = f"{node.gpu(old)} requires proprietary kernel modules"
        yield Refusal(node.name, why, "Set gpu_stack_modules to proprietary, or to auto")
    source = source_of(case, node)
    if source not in node.system.branches:
        there = " or ".join(node.system.branches)
        why = f"{source} has no driver for {node.system.name}"
        yield Refusal(node.name, why, f"Set gpu_stack_source to {there}, or to auto")
    elif source != "ubuntu" and case.request.build == "precompiled":
        why = f"gpu_stack_build is precompiled, but {source} has no precompiled modules for {node.system.name}"
        ubuntu = node.distribution == "ubuntu"
        yield Refusal(node.name, why, "Set gpu_stack_source to ubuntu" if ubuntu else "Set gpu_stack_build to dkms")
    elif node.locked and build_of(case, node) == "dkms":
        why = "Secure Boot is enabled, and the signing key of dkms is not enrolled, so the driver would not load"
        yield Refusal(node.name, why, ENROL[node.distribution])


def module_choices(case: StackCase, node: StackNode) -> Iterator[StackChoice]:
    """Yield the choices for a node with their reasons."""
    source, modules, build = source_of(case, node), modules_of(case, node), build_of(case, node)
    yield StackChoice("source", source, _why_source(case, node, source))
    yield StackChoice("kernel modules", f"{modules}, {build}", _why_modules(case, node))
    if node.has_fabric:
        switches = node.seen.nvswitches
        found = f"{switches} NVSwitches on the bus" if switches else "the board has NVSwitches"
        yield StackChoice("fabric manager", "same version", f"{found}; CUDA requires its version to match the driver's")


def _why_source(case: StackCase, node: StackNode, source: str) -> str:
    if case.request.source != "auto":
        return "requested by gpu_stack_source"
    locked = _who_needs_signed(case)
    if source == "ubuntu" and locked:
        where = "" if locked is node else f" on {locked.name}"
        return f"Secure Boot is enabled{where} and the dkms key is not enrolled; Ubuntu's modules are signed"
    return "offers the branch and a package that pins all driver packages to one version"


def _why_modules(case: StackCase, node: StackNode) -> str:
    if case.request.modules != "auto":
        return "requested by gpu_stack_modules"
    deciding = node.only_open or node.only_proprietary
    if deciding:
        return f"required by {node.gpu(deciding)}"
    return "recommended by NVIDIA for Turing and newer GPUs"
