"""The settings of a node's GPUs: persistence, MIG, compute mode, clocks, power, models and VBIOS."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import evidence
from ..verdict.words import few
from .gpu_node import have

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .gpu_node import GpuNode

GPU_STACK = playbook("site.yml", tags="gpu_stack")

PERSISTENCE_OFF = Check(
    "gpu.persistence.off",
    seen="recording",
    reads="persistence mode",
    fires="warn: persistence mode is off on a GPU without a display, so the driver is unloaded between jobs, ECC "
    "counts are lost, and every job waits until the driver is loaded",
    fix=f"Run {GPU_STACK}. Until the next boot, sudo nvidia-smi -pm 1 is enough. Enabling nvidia-persistenced has no "
    "effect if its unit sets --no-persistence-mode, as on Ubuntu",
)
MIG_ON = Check(
    "gpu.mig.on",
    seen="recording",
    reads="MIG mode",
    fires="fail: MIG is on. CUDA gives a process one slice of one GPU, so all ranks except the first find no GPU",
    fix="Run sudo nvidia-smi -mig 0, or remove the node from the inventory",
)
MIG_PENDING = Check(
    "gpu.mig.pending",
    seen="recording",
    reads="the current MIG mode, and the mode after the next reset",
    fires="warn: the modes differ",
    fix="Reset the GPU, or revert the change with nvidia-smi -mig",
)
COMPUTE_MODE = Check(
    "gpu.compute_mode",
    seen="recording",
    reads="compute mode",
    fires="fail: the mode is Prohibited. warn: the mode is Exclusive, so a rank that opens a second GPU, or a leftover "
    "process, blocks other ranks",
    fix="Run sudo nvidia-smi -c 0",
)
CLOCKS_LOWERED = Check(
    "gpu.clocks.lowered",
    seen="recording",
    reads="application clocks and their defaults",
    fires="warn: an application clock is lower than its default",
    fix="Run sudo nvidia-smi -rac",
)
POWER_LOWERED = Check(
    "gpu.power.lowered",
    seen="recording",
    reads="the current power limit and its default",
    fires="warn: the current limit is more than 1 % below its default",
    fix="Restore the default with sudo nvidia-smi -pl WATTS (nvidia-smi -q -d POWER shows the default)",
)
MODEL_MIXED = Check(
    "gpu.model.mixed",
    seen="recording",
    reads="the models of the node's GPUs",
    fires="warn: the models differ, so every step waits for the slowest GPU, and the smallest memory limits the job",
    fix="Use GPUs of the same model (cluster_gpus, CUDA_VISIBLE_DEVICES), or accept the speed of the slowest GPU",
)
VBIOS_MIXED = Check(
    "gpu.vbios.mixed",
    seen="recording",
    reads="the VBIOS versions of GPUs of the same model",
    fires="warn: the versions differ, for example after a GPU was replaced",
    fix="Install one VBIOS version with the vendor's tool",
)
INFOROM_CORRUPT = Check(
    "gpu.inforom.corrupt",
    seen="stand-in",
    reads="the warnings of nvidia-smi",
    fires="warn: nvidia-smi prints `infoROM is corrupted`, so the GPU's error and retirement records are unreliable",
    fix="Have the vendor inspect the GPU",
)
CHECKS = (
    PERSISTENCE_OFF,
    MIG_ON,
    MIG_PENDING,
    COMPUTE_MODE,
    CLOCKS_LOWERED,
    POWER_LOWERED,
    MODEL_MIXED,
    VBIOS_MIXED,
    INFOROM_CORRUPT,
)
# The driver rounds limits to fixed steps.
TOLERANCE = 0.99


def persistence(node: GpuNode) -> Iterator[Said]:
    # A display keeps the driver loaded.
    off = [gpu for gpu in node.gpus if gpu["persistence"] is False and not gpu["display"]]
    if off:
        yield PERSISTENCE_OFF.warn(
            node.name,
            f"persistence mode is off on {node.named(off)}, so each job waits until the driver is loaded",
            f"Enable persistence mode permanently with {GPU_STACK}, or until the next boot with",
            node.only("sudo nvidia-smi -pm 1", off),
            observed="off",
            expected="on",
        )


def mig(node: GpuNode) -> Iterator[Said]:
    on = [gpu for gpu in node.gpus if gpu["mig"]]
    if on:
        yield MIG_ON.fail(
            node.name,
            f"{node.named(on)} {have(on)} MIG enabled: one rank gets one slice, and the other ranks find no GPU",
            "While no process is using the GPUs, turn MIG off with",
            node.only("sudo nvidia-smi -mig 0", on),
            observed="on",
            expected="off",
        )
    pending = [
        gpu for gpu in node.gpus if gpu["mig_pending"] is not None and gpu["mig_pending"] is not bool(gpu["mig"])
    ]
    if pending:
        yield MIG_PENDING.warn(
            node.name,
            f"the next reset will turn {'on' if pending[0]['mig_pending'] else 'off'} MIG of {node.named(pending)}",
            "While no process is using the GPUs, reset them with",
            node.only("sudo nvidia-smi --gpu-reset", pending),
        )


def compute_mode(node: GpuNode) -> Iterator[Said]:
    by_mode = defaultdict(list)
    for gpu in node.gpus:
        if gpu["compute_mode"] and gpu["compute_mode"] != "Default":
            by_mode[gpu["compute_mode"]].append(gpu)
    for mode, gpus in by_mode.items():
        nobody = "prohibited" in mode.lower()
        means = "compute processes cannot run" if nobody else "only one compute process can run on a GPU"
        yield (COMPUTE_MODE.fail if nobody else COMPUTE_MODE.warn)(
            node.name,
            f"the compute mode of {node.named(gpus)} is {mode}: {means}",
            "Restore the default with",
            node.only("sudo nvidia-smi -c 0", gpus),
            observed=mode,
            expected="Default",
        )


def clocks(node: GpuNode) -> Iterator[Said]:
    slow = [gpu for gpu in node.gpus if _below(gpu["clocks"]["set"], gpu["clocks"]["set_default"])]
    if slow:
        now, usual = slow[0]["clocks"]["set"], slow[0]["clocks"]["set_default"]
        yield CLOCKS_LOWERED.warn(
            node.name,
            f"the application clock of {node.named(slow)} is {now} MHz, but the default is {usual} MHz",
            "Restore the default with",
            node.only("sudo nvidia-smi -rac", slow),
            observed=f"{now} MHz",
            expected=f"{usual} MHz",
        )


def power(node: GpuNode) -> Iterator[Said]:
    low = [gpu for gpu in node.gpus if _below(gpu["power"]["limit"], gpu["power"]["default"])]
    if low:
        now, usual = low[0]["power"]["limit"], low[0]["power"]["default"]
        yield POWER_LOWERED.warn(
            node.name,
            f"the power limit of {node.named(low)} is {now:.0f} W, but the default is {usual:.0f} W",
            "If the lower limit is not intentional, restore the default with",
            node.only(f"sudo nvidia-smi -pl {usual:.0f}", low),
            observed=f"{now:.0f} W",
            expected=f"{usual:.0f} W",
        )


def _below(now: float | None, usual: float | None) -> bool:
    return bool(now and usual and now < usual * TOLERANCE)


def mixed(node: GpuNode) -> Iterator[Said]:
    by_name: dict[str, list[dict[str, object]]] = defaultdict(list)
    for gpu in node.gpus:
        by_name[gpu["name"] or "an unknown model"].append(gpu)
    if len(by_name) > 1:
        kinds = "; ".join(f"{name} as {node.named(gpus)}" for name, gpus in sorted(by_name.items()))
        yield MODEL_MIXED.warn(
            node.name,
            f"the GPUs are of different models: {kinds}",
            observed=few(sorted(by_name)),
            expected="one model",
        )
    for name, gpus in by_name.items():
        versions = defaultdict(list)
        for gpu in gpus:
            if gpu["vbios"]:
                versions[str(gpu["vbios"])].append(gpu)
        if len(versions) > 1:
            usual = max(versions, key=lambda version: len(versions[version]))
            odd = [gpu for version, others in versions.items() if version != usual for gpu in others]
            yield VBIOS_MIXED.warn(
                node.name,
                f"the VBIOS version of {node.named(odd)} is {few(sorted({str(gpu['vbios']) for gpu in odd}))}, but the "
                f"other {name} GPUs have {usual}",
                observed=few(sorted(versions)),
                expected="one version",
            )


def inforom(node: GpuNode) -> Iterator[Said]:
    said = [line for line in node.facts["smi"]["notes"].splitlines() if "infoROM is corrupted" in line]
    if said:
        where = few([line.rpartition("at gpu ")[2] for line in said if "at gpu " in line])
        yield INFOROM_CORRUPT.warn(
            node.name,
            f"the infoROM of {where or 'a GPU'} is corrupt, so its error records are unreliable",
            evidence=evidence("nvidia-smi", few(said)),
        )


RULES = (persistence, mig, compute_mode, clocks, power, mixed, inforom)
