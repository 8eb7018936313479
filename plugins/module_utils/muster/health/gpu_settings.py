"""The settings of a node's GPUs: persistence, MIG, compute mode, clocks and power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verdict.check import Check
from ..verdict.commands import playbook
from ..verdict.finding import evidence
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .gpu_node import Gpu, GpuNode

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
    reads="application clocks and their defaults (before driver 590), and the clocks of a GPU under full load",
    fires="warn: an application clock is lower than its default, or a clock is below half of its maximum at 90 % "
    "utilization without a reason (typical of nvidia-smi -lgc). The clocks of an idle GPU show no lock",
    fix="Run sudo nvidia-smi -rgc, and with drivers before 590 sudo nvidia-smi -rac",
)
POWER_LOWERED = Check(
    "gpu.power.lowered",
    seen="recording",
    reads="the current power limit and its default",
    fires="warn: the current limit is more than 1 % below its default",
    fix="Restore the default with sudo nvidia-smi -pl WATTS (nvidia-smi -q -d POWER shows the default)",
)
INFOROM_CORRUPT = Check(
    "gpu.inforom.corrupt",
    seen="stand-in",
    reads="the warnings of nvidia-smi",
    fires="warn: nvidia-smi prints `infoROM is corrupted`, so the GPU's error and retirement records are unreliable",
    fix="Have the vendor inspect the GPU",
)
CHECKS = (
    *(PERSISTENCE_OFF, MIG_ON, MIG_PENDING, COMPUTE_MODE),
    *(CLOCKS_LOWERED, POWER_LOWERED, INFOROM_CORRUPT),
)
# Percent of time, and share of the maximum: estimates. Consumer GPUs compute with slightly lower memory clocks (P2).
FULL_LOAD, LOCKED = 90, 0.5
# The driver rounds limits to fixed steps.
TOLERANCE = 0.99


def persistence(node: GpuNode) -> Iterator[Said]:
    # A display keeps the driver loaded.
    for off in node.by(lambda gpu: gpu["persistence"] is False and not gpu["display"]).values():
        summary = f"persistence mode is off on {node.named(off)}, so each job waits until the driver is loaded"
        fix = f"Enable persistence mode permanently with {GPU_STACK}, or until the next boot with"
        command = node.only("sudo nvidia-smi -pm 1", off)
        yield PERSISTENCE_OFF.warn(node.name, summary, fix, command, observed="off", expected="on")


def mig(node: GpuNode) -> Iterator[Said]:
    for on in node.by(lambda gpu: gpu["mig"]).values():
        summary = f"{node.have(on)} MIG enabled: one rank gets one slice, and the other ranks find no GPU"
        fix = "While no process is using the GPUs, turn MIG off with", node.only("sudo nvidia-smi -mig 0", on)
        yield MIG_ON.fail(node.name, summary, *fix, observed="on", expected="off")
    for to, pending in node.by(_pending_mig).items():
        summary = f"the next reset will turn {to} MIG of {node.named(pending)}"
        fix = "While no process is using the GPUs, reset them with", node.reset(pending)
        yield MIG_PENDING.warn(node.name, summary, *fix)


def _pending_mig(gpu: Gpu) -> str:
    pending = gpu["mig_pending"]
    return "" if pending is None or pending is bool(gpu["mig"]) else "on" if pending else "off"


def compute_mode(node: GpuNode) -> Iterator[Said]:
    for mode, gpus in node.by(lambda gpu: "" if gpu["compute_mode"] == "Default" else gpu["compute_mode"]).items():
        nobody = "prohibited" in mode.lower()
        means = "compute processes cannot run" if nobody else "only one compute process can run on a GPU"
        summary = f"the compute mode of {node.named(gpus)} is {mode}: {means}"
        fix = "Restore the default with", node.only("sudo nvidia-smi -c 0", gpus)
        report = COMPUTE_MODE.fail if nobody else COMPUTE_MODE.warn
        yield report(node.name, summary, *fix, observed=mode, expected="Default")


def clocks(node: GpuNode) -> Iterator[Said]:
    for (now, usual), slow in node.by(lambda gpu: _lower(gpu, "set", "set_default", TOLERANCE)).items():
        summary = f"the application clock of {node.named(slow)} is {now} MHz, but the default is {usual} MHz"
        fix = "Restore the default with", node.only("sudo nvidia-smi -rac", slow)
        yield CLOCKS_LOWERED.warn(node.name, summary, *fix, observed=f"{now} MHz", expected=f"{usual} MHz")
    for (what, now, most), slow in node.by(_locked).items():
        summary = f"under full load, the {what} of {node.named(slow)} is {now} of {most} MHz, and the driver gives no "
        summary += "reason: the clocks are probably locked"
        unlock = " && ".join(node.only(f"sudo nvidia-smi {option}", slow) for option in ("-rgc", "-rmc"))
        seen = {"observed": f"{now} MHz", "expected": f"{most} MHz"}
        yield CLOCKS_LOWERED.warn(node.name, summary, "Unlock the clocks with", unlock, **seen)


def _lower(gpu: Gpu, name: str, most: str, share: float) -> tuple[int, int] | None:
    now, usual = gpu["clocks"][name], gpu["clocks"][most]
    return (now, usual) if now and usual and now < usual * share else None


def _locked(gpu: Gpu) -> tuple[str, int, int] | None:
    """Return (kind, clock, maximum) of a busy GPU with a low clock for which there is no reason. A lock
    (nvidia-smi -lgc, -lmc) is not printed."""
    if (gpu["utilization"] or 0) < FULL_LOAD or set(gpu["throttle"] or []) - {"applications_clocks_setting"}:
        return None
    low = [
        (what, _lower(gpu, name, f"{name}_max", LOCKED)) for what, name in (("clock", "sm"), ("memory clock", "memory"))
    ]
    return next(((what, *found) for what, found in low if found), None)


def power(node: GpuNode) -> Iterator[Said]:
    for (now, usual), low in node.by(low_limit).items():
        summary = f"the power limit of {node.named(low)} is {now:.0f} W, but the default is {usual:.0f} W"
        fix = "If the lower limit is not intentional, restore the default with"
        command = node.only(f"sudo nvidia-smi -pl {usual:.0f}", low)
        yield POWER_LOWERED.warn(node.name, summary, fix, command, observed=f"{now:.0f} W", expected=f"{usual:.0f} W")


def low_limit(gpu: Gpu) -> tuple[float, float] | None:
    now, usual = gpu["power"]["limit"], gpu["power"]["default"]
    return (now, usual) if now and usual and now < usual * TOLERANCE else None


def inforom(node: GpuNode) -> Iterator[Said]:
    said = [line for line in node.facts["smi"]["notes"].splitlines() if "infoROM is corrupted" in line]
    if said:
        where = few([line.rpartition("at gpu ")[2] for line in said if "at gpu " in line])
        summary = f"the infoROM of {where or 'a GPU'} is corrupt, so its error records are unreliable"
        yield INFOROM_CORRUPT.warn(node.name, summary, evidence=evidence("nvidia-smi", few(said)))


RULES = (persistence, mig, compute_mode, clocks, power, inforom)
