"""Compare the GPUs on the PCI bus of a node with the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.finding import evidence
from ..verdict.words import few, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..verdict.finding import Finding
    from .facts import InspectedNode

COUNT_DIFFERS = Check(
    "gpu.count.differs",
    seen="recording",
    reads="/sys/bus/pci/devices; before a launch, the driver's list of GPUs",
    fires="the node has fewer GPUs than cluster_gpus (fail), or more GPUs, which stay idle (warn)",
    fix="Correct cluster_gpus, or check dmesg for errors of the missing GPU",
)
VENDOR_OTHER = Check(
    "gpu.vendor.other",
    seen="stand-in",
    reads="the vendors of display controllers and accelerators on the PCI bus",
    fires="cluster_gpus is not 0, but the node has AMD GPUs and no NVIDIA GPUs (fail); Muster supports only NVIDIA"
    " GPUs",
    fix="Set cluster_gpus to 0 to train on the CPU, or remove the node from the inventory",
)
DRIVER_OTHER = Check(
    "gpu.driver.other",
    seen="recording",
    reads="/sys/bus/pci/devices/*/driver",
    fires="a GPU is bound to nouveau or vfio-pci (warn)",
    fix="Reboot the node: NVIDIA's driver then replaces nouveau",
)

UNSET = "cluster_gpus_unset"  # whether cluster_gpus is missing in the inventory; an explicit 0 counts as set


def gpus(node: InspectedNode) -> Iterator[Finding]:
    if "gpus" in node.seen["skipped"]:
        return
    devices = node.seen["gpus"]["devices"]
    wanted = int(node.request["cluster_gpus"])
    amd = node.seen["gpus"]["amd"]
    if wanted and amd and not devices:
        yield VENDOR_OTHER.fail(
            node.name,
            f"{plural(amd, 'AMD GPU')} and no NVIDIA GPU, but cluster_gpus is {wanted}; Muster supports only NVIDIA"
            " GPUs",
            observed="AMD",
            expected="NVIDIA",
            evidence=evidence("/sys/bus/pci/devices", f"{amd} of vendor 0x1002"),
        )
    elif len(devices) < wanted:
        yield COUNT_DIFFERS.fail(
            node.name,
            f"{plural(len(devices), 'GPU')} on the PCI bus, but cluster_gpus is {wanted}",
            "Correct cluster_gpus; if a GPU is missing, check the kernel log with",
            "sudo dmesg | grep -iE 'nvrm|pcie'",
            observed=str(len(devices)),
            expected=str(wanted),
            evidence=evidence("/sys/bus/pci/devices", ", ".join(device["slot"] for device in devices)),
        )
    elif unused_gpus(node):
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(len(devices), 'GPU')} on the PCI bus, but cluster_gpus is not set, so training would use the CPU",
            f"Add '{line_to_add(unused_gpus(node))}' under {node.name} in the inventory's hosts.yml",
            observed=str(len(devices)),
            expected="cluster_gpus",
        )
    elif len(devices) > wanted:
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{len(devices) - wanted} of {plural(len(devices), 'GPU')} would stay idle: cluster_gpus is {wanted}",
            f"Set cluster_gpus to {len(devices)} to use all GPUs",
            observed=str(len(devices)),
            expected=str(wanted),
        )
    for driver, what in (("nouveau", "does not support CUDA"), ("vfio-pci", "passes GPUs to virtual machines")):
        bound = [device["slot"] for device in devices if device["driver"] == driver]
        if bound and wanted:
            yield DRIVER_OTHER.warn(
                node.name,
                f"{plural(len(bound), 'GPU')} bound to the driver {driver}, which {what}",
                "Reboot the node: NVIDIA's driver then replaces nouveau"
                if driver == "nouveau"
                else "Remove the GPUs from the vfio-pci settings, and reboot the node",
                observed=driver,
                expected="nvidia",
                evidence=evidence("/sys/bus/pci/devices", ", ".join(bound)),
            )


def unused_gpus(node: InspectedNode) -> int:
    """Return the number of usable GPUs if cluster_gpus is not set.

    GPUs that are passed through to virtual machines are not counted.
    """
    if node.facts is None or not node.request.get(UNSET) or "gpus" in node.seen["skipped"]:
        return 0
    return sum(device["driver"] != "vfio-pci" for device in node.seen["gpus"]["devices"])


def line_to_add(count: int) -> str:
    return f"cluster_gpus: {count}"


def reminder(nodes: Iterable[InspectedNode]) -> str:
    """Return a clause for the end of a run, with the inventory lines to add; "" if all GPUs are declared."""
    counts: dict[int, list[str]] = {}
    for node in nodes:
        count = unused_gpus(node)
        if count:
            counts.setdefault(count, []).append(node.name)
    if not counts:
        return ""
    lines = " and ".join(f"'{line_to_add(count)}' to {few(names)}" for count, names in counts.items())
    total = sum(count * len(names) for count, names in counts.items())
    are = "is" if total == 1 else "are"
    return f"{plural(total, 'GPU')} {are} not used, because hosts.yml does not set cluster_gpus: add {lines}"
