"""The nvidia-smi values that each GPU check requires. A check is skipped if nvidia-smi reports the value for no GPU. A
value that is missing for some GPUs of a model only is a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..verdict.check import Check
from ..verdict.words import few
from . import gpu_memory as memory
from . import gpu_peers as peers
from . import gpu_settings as settings
from . import gpu_use as use

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Skipped
    from .gpu_node import GpuNode

UNREADABLE = Check(
    "gpu.unreadable",
    seen="recording",
    reads="every value of nvidia-smi that a check of GPUs uses",
    fires="unknown: nvidia-smi prints an error (Unknown Error) instead of a value, or reports a value for other GPUs "
    "of the model only. GPUs with MIG are not compared",
    fix="Check the kernel log. Show all values with",
    command="nvidia-smi -q",
)
CHECKS = (UNREADABLE,)

# On these kinds of GPU some checks mean nothing, whatever the values are.
WSL = "under WSL, Windows manages the GPU and its driver"
VIRTUAL = "the GPU is virtual: the host manages the physical GPU, its memory and its processes"
# NVML says "generation 1, 1 lane" of a GB10 (Syllo/nvtop, pull request 499), and has no memory of its own for it.
ON_CHIP = "the GPU is integrated with the processor and has no PCIe slot"
NO_VALUE = "nvidia-smi reports N/A instead of the required value"
# Values that are used, but that no check requires.
OTHERS = ("fabric", "temperature/gpu", "power/draw", "clocks/sm", "clocks/memory", "utilization", "performance")
WITH_ECC = ("ecc/", "remap", "retired")
# The facts of query.gpu that each check requires; of several, one is enough.
READINGS = {
    use.THROTTLED: ("throttle",),
    use.HOT: ("temperature/margin", "temperature/memory_max", "temperature/memory"),
    use.PCIE_NARROW: ("link/width",),
    use.PCIE_SLOW: ("link/generation",),
    use.PCIE_ERRORS: ("link/replays",),
    use.MEMORY_HELD: ("memory/used",),
    settings.PERSISTENCE_OFF: ("persistence",),
    settings.MIG_ON: ("mig",),
    settings.MIG_PENDING: ("mig_pending",),
    settings.COMPUTE_MODE: ("compute_mode",),
    settings.CLOCKS_LOWERED: ("clocks/set",),
    settings.POWER_LOWERED: ("power/limit",),
    peers.VBIOS_MIXED: ("vbios",),
    peers.VALUES_MIXED: ("memory/total", "inforom"),
    memory.RESET_NEEDED: ("recovery",),
    memory.ECC_UNCORRECTED: ("ecc/volatile/dram_uncorrectable", "ecc/volatile/sram_uncorrectable"),
    memory.ECC_CORRECTED: ("ecc/aggregate/dram_correctable", "ecc/aggregate/sram_correctable"),
    memory.ECC_SRAM_THRESHOLD: ("ecc/sram_threshold",),
    memory.ECC_OFF: ("ecc/on",),
    memory.ECC_PENDING: ("ecc/pending",),
    memory.REMAP_PENDING: ("remap",),
    memory.REMAP_FAILED: ("remap",),
    memory.REMAP_MANY: ("remap",),
    memory.RETIRED_PENDING: ("retired",),
    memory.RETIRED_MANY: ("retired",),
    memory.MEMORY_UNREPAIRABLE: ("ecc/unrepairable", "ecc/channel_repair", "ecc/tpc_repair"),
}


def apart(node: GpuNode) -> dict[str, str]:
    """Return the checks that do not apply to this kind of GPU, and why."""
    kinds = {
        WSL: (node.under_windows, (settings.PERSISTENCE_OFF, use.MEMORY_HELD, use.PCIE_NARROW, use.PCIE_SLOW)),
        VIRTUAL: (
            any(gpu["virtualization"] == "VGPU" for gpu in node.gpus),
            (
                use.MEMORY_HELD,
                use.PCIE_NARROW,
                use.PCIE_SLOW,
                use.PCIE_ERRORS,
                settings.POWER_LOWERED,
                settings.CLOCKS_LOWERED,
            ),
        ),
        ON_CHIP: (
            any(gpu["memory"]["total"] is None for gpu in node.gpus),
            (use.PCIE_NARROW, use.PCIE_SLOW, use.PCIE_ERRORS),
        ),
    }
    return {check.id: why for why, (are, checks) in kinds.items() if are for check in checks}


def unread(node: GpuNode) -> Iterator[Skipped]:
    if not node.gpus:
        return
    for check, paths in READINGS.items():
        if all(_at(gpu, path) is None for gpu in node.gpus for path in paths):
            yield check.skip(NO_VALUE)


def unreadable(node: GpuNode) -> Iterator[Said]:
    """Report values that cannot be read on some GPUs of a model."""
    paths = dict.fromkeys([*OTHERS, *(path for paths in READINGS.values() for path in paths)])

    def missing(gpu: Mapping[str, Any]) -> tuple[str, ...]:
        if gpu["mig"] or gpu["recovery"] or gpu["unreadable"]:
            return () if gpu["recovery"] else tuple(gpu["unreadable"])
        alike = [other for other in node.gpus if other["name"] == gpu["name"] and not other["mig"]]
        # Without ECC, the driver does not report what ECC has found.
        known = [path for path in paths if gpu["ecc"]["on"] is not False or not path.startswith(WITH_ECC)]
        # A value that most GPUs lack may be new.
        return tuple(
            path
            for path in known
            if _at(gpu, path) is None and sum(_at(each, path) is not None for each in alike) * 2 >= len(alike)
        )

    for names, gpus in node.by(missing).items():
        shown = few([name.replace("/", " ").replace("_", " ") for name in names])
        summary = f"values of {node.named(gpus)} cannot be read: {shown}"
        fix = "Check the kernel log. Show all values with", node.only("nvidia-smi -q", gpus)
        yield UNREADABLE.unknown(node.name, summary, *fix, observed=shown)


RULES = (unreadable,)


def _at(gpu: Mapping[str, Any], path: str) -> Any:
    value: Any = gpu
    for name in path.split("/"):
        value = value[name]
    return value
