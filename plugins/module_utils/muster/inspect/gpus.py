"""The GPUs on a node's bus against what the inventory says; those that it does not mention would go unnoticed."""

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
    reads="/sys/bus/pci/devices, and before a launch what the driver lists",
    fires="there are fewer GPUs than cluster_gpus (fail), or more, which stay idle (warn)",
    fix="Correct cluster_gpus, or look for the missing one in dmesg",
)
VENDOR_OTHER = Check(
    "gpu.vendor.other",
    seen="stand-in",
    reads="the vendors of display controllers and accelerators on the bus",
    fires="cluster_gpus is not 0, and the node has GPUs of AMD and none of NVIDIA (fail): Muster provides NVIDIA's"
    " stack only",
    fix="Set cluster_gpus to 0 to train on the processors, or take the node out of the inventory",
)
DRIVER_OTHER = Check(
    "gpu.driver.other",
    seen="recording",
    reads="/sys/bus/pci/devices/*/driver",
    fires="nouveau or vfio-pci holds a GPU (warn)",
    fix="Restart the node: NVIDIA's driver takes over from nouveau then",
)

UNSET = "cluster_gpus_unset"  # of a request: whether the inventory says nothing. A 0 that is written is an answer


def gpus(node: InspectedNode) -> Iterator[Finding]:
    if "gpus" in node.seen["skipped"]:
        return
    devices = node.seen["gpus"]["devices"]
    wanted = int(node.request["cluster_gpus"])
    amd = node.seen["gpus"]["amd"]
    if wanted and amd and not devices:
        yield VENDOR_OTHER.fail(
            node.name,
            f"it has {plural(amd, 'GPU')} of AMD and none of NVIDIA, and cluster_gpus is {wanted}: Muster provides"
            " NVIDIA's stack only",
            observed="AMD",
            expected="NVIDIA",
            evidence=evidence("/sys/bus/pci/devices", f"{amd} of vendor 0x1002"),
        )
    elif len(devices) < wanted:
        yield COUNT_DIFFERS.fail(
            node.name,
            f"it has {plural(len(devices), 'GPU')} on the bus, and cluster_gpus is {wanted}",
            "Correct cluster_gpus; if one is missing, look for it with",
            "sudo dmesg | grep -iE 'nvrm|pcie'",
            observed=str(len(devices)),
            expected=str(wanted),
            evidence=evidence("/sys/bus/pci/devices", ", ".join(device["slot"] for device in devices)),
        )
    elif unused_gpus(node):
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(len(devices), 'GPU')} on its bus, and no cluster_gpus in the inventory: it trains on its CPU",
            f"Write '{line_to_add(unused_gpus(node))}' under {node.name} in the inventory's hosts.yml",
            observed=str(len(devices)),
            expected="cluster_gpus",
        )
    elif len(devices) > wanted:
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(len(devices) - wanted, 'GPU')} of its {len(devices)} would stay idle: cluster_gpus is {wanted}",
            f"Set cluster_gpus to {len(devices)} to train on all of them",
            observed=str(len(devices)),
            expected=str(wanted),
        )
    for driver, what in (("nouveau", "cannot compute"), ("vfio-pci", "gives them to virtual machines")):
        bound = [device["slot"] for device in devices if device["driver"] == driver]
        if bound and wanted:
            yield DRIVER_OTHER.warn(
                node.name,
                f"{plural(len(bound), 'GPU')} held by the driver {driver}, which {what}",
                "Restart the node: NVIDIA's driver takes them over then"
                if driver == "nouveau"
                else "Take them back in its settings, and restart the node",
                observed=driver,
                expected="nvidia",
                evidence=evidence("/sys/bus/pci/devices", ", ".join(bound)),
            )


def unused_gpus(node: InspectedNode) -> int:
    """Return how many GPUs of a node could train and are not mentioned. Those of virtual machines are not its own."""
    if node.facts is None or not node.request.get(UNSET) or "gpus" in node.seen["skipped"]:
        return 0
    return sum(device["driver"] != "vfio-pci" for device in node.seen["gpus"]["devices"])


def line_to_add(count: int) -> str:
    return f"cluster_gpus: {count}"


def reminder(nodes: Iterable[InspectedNode]) -> str:
    """Return one clause for the end of a run, with the lines to add; "" where every GPU is accounted for."""
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
    return f"{plural(total, 'GPU')} {are} not used, because the inventory's hosts.yml does not name them: add {lines}"
