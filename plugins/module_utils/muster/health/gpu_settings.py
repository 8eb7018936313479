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
    fires="warn: persistence is off on a GPU without a display: the driver is unloaded between jobs, ECC counts are "
    "lost, and every job start waits for the driver",
    fix=f"Run {GPU_STACK}; until the next boot, sudo nvidia-smi -pm 1. Enabling nvidia-persistenced alone does nothing "
    "if its unit has --no-persistence-mode, as on Ubuntu",
)
MIG_ON = Check(
    "gpu.mig.on",
    seen="recording",
    reads="MIG mode",
    fires="fail: MIG is on: CUDA gives a process one slice of one GPU, so all ranks except the first find no GPU",
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
    fires="fail: Prohibited; warn: Exclusive, where a rank that opens a second GPU, or a leftover process, blocks "
    "other ranks",
    fix="Run sudo nvidia-smi -c 0",
)
CLOCKS_LOWERED = Check(
    "gpu.clocks.lowered",
    seen="recording",
    reads="application clocks and their default",
    fires="warn: the clocks are set below their default",
    fix="Run sudo nvidia-smi -rac",
)
POWER_LOWERED = Check(
    "gpu.power.lowered",
    seen="recording",
    reads="the power limit in force and its default",
    fires="warn: the limit is set more than 1 % below its default",
    fix="Reset it with sudo nvidia-smi -pl WATTS, using the default from nvidia-smi -q -d POWER",
)
MODEL_MIXED = Check(
    "gpu.model.mixed",
    seen="recording",
    reads="the models of the node's GPUs",
    fires="warn: the models differ: every step waits for the slowest GPU, and the smallest memory limits the job",
    fix="Use GPUs of one model (cluster_gpus, CUDA_VISIBLE_DEVICES), or accept the speed of the slowest",
)
VBIOS_MIXED = Check(
    "gpu.vbios.mixed",
    seen="recording",
    reads="the VBIOS of GPUs of one model",
    fires="warn: the versions differ, such as after a replacement",
    fix="Install one version with the vendor's tool",
)
INFOROM_CORRUPT = Check(
    "gpu.inforom.corrupt",
    seen="stand-in",
    reads="the warnings of nvidia-smi",
    fires="warn: `infoROM is corrupted`: the GPU's records of errors and retired memory are unreliable",
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
            f"persistence is off on {node.named(off)}: each job start waits for the driver to load",
            f"Enable it permanently with {GPU_STACK}, or until the next boot with",
            node.only("sudo nvidia-smi -pm 1", off),
            observed="off",
            expected="on",
        )


def mig(node: GpuNode) -> Iterator[Said]:
    on = [gpu for gpu in node.gpus if gpu["mig"]]
    if on:
        yield MIG_ON.fail(
            node.name,
            f"{node.named(on)} {have(on)} MIG on: one rank gets one slice, and the other ranks find no GPU",
            "While nothing runs on the GPUs, turn MIG off with",
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
            f"MIG of {node.named(pending)} will be {'on' if pending[0]['mig_pending'] else 'off'} after the next reset",
            "While nothing runs, reset with",
            node.only("sudo nvidia-smi --gpu-reset", pending),
        )


def compute_mode(node: GpuNode) -> Iterator[Said]:
    by_mode = defaultdict(list)
    for gpu in node.gpus:
        if gpu["compute_mode"] and gpu["compute_mode"] != "Default":
            by_mode[gpu["compute_mode"]].append(gpu)
    for mode, gpus in by_mode.items():
        nobody = "prohibited" in mode.lower()
        means = "no process may compute" if nobody else "one process at a time may compute on each"
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
            f"the clock of {node.named(slow)} is set to {now} MHz; the default is {usual} MHz",
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
            f"the power limit of {node.named(low)} is {now:.0f} W; the default is {usual:.0f} W",
            "If the limit is not intended, restore the default with",
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
                f"the VBIOS of {node.named(odd)} is {few(sorted({str(gpu['vbios']) for gpu in odd}))}; the other "
                f"{name} GPUs have {usual}",
                observed=few(sorted(versions)),
                expected="one version",
            )


def inforom(node: GpuNode) -> Iterator[Said]:
    said = [line for line in node.facts["smi"]["notes"].splitlines() if "infoROM is corrupted" in line]
    if said:
        where = few([line.rpartition("at gpu ")[2] for line in said if "at gpu " in line])
        yield INFOROM_CORRUPT.warn(
            node.name,
            f"the infoROM of {where or 'a GPU'} is corrupt: its error records are unreliable",
            evidence=evidence("nvidia-smi", few(said)),
        )


RULES = (persistence, mig, compute_mode, clocks, power, mixed, inforom)
