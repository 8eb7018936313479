"""The memory of the GPUs, and the recovery actions that the driver requests (such as a GPU reset)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gpu_info.models import model_of
from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence
from .gpu_node import its
from .xids import DRAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..verdict.check import Said
    from .gpu_node import Gpu, GpuNode

# Azure/azurehpc-health-checks, check_gpu_ecc: above these counts the GPU is returned to the vendor.
MOST_SRAM_CORRECTED = 10_000
MOST_DRAM_CORRECTED = 20_000_000
# NVIDIA GPU Memory Error Management: a GPU has spare rows for 512 remappings.
MOST_REMAPPED = 512
# NVIDIA/DCGM, dcgm_gpu_hardware_limits.h.
MOST_RETIRED = 60
# Brands of data center GPUs (product_brand), which have ECC on by default, except the M60 and M6 (NVIDIA's vGPU guide).
# Workstation and consumer GPUs have other brands: Quadro, NVIDIA RTX, GeForce, TITAN.
SERVERS = ("NVIDIA", "Tesla")
WITHOUT_ECC = ("Tesla M60", "Tesla M6")
OFFLINED = "the driver does not use the page of this row"
COUNTS = "{} in SRAM, {} in DRAM"
IDLE = "While no process is using the GPU, reset it with"
REPLACE = "Have the GPU replaced. Until then, exclude the GPU (cluster_gpus) or the node (cluster_quarantined)"
# nvidia-smi's manual, "GPU Recovery Action".
RESET = "sudo nvidia-smi --gpu-reset"
RECOVERY = {
    "reset": (RESET, "End the processes on the GPU, and reset the GPU with"),
    "bus reset": ("sudo nvidia-smi -r bus", "End the processes on the GPU, and reset the GPU with"),
    "reboot": ("sudo reboot", "A GPU reset is not enough. Reboot the node with"),
    "system reboot": ("sudo reboot", "A GPU reset is not enough. Reboot the node with"),
    "drain p2p": ("nvidia-smi -q | grep -i 'recovery action'", "End the processes that copy between GPUs. Check with"),
    "drain and reset": (RESET, DRAIN),
    "recover imex domain": ("sudo systemctl restart nvidia-imex", "Restart IMEX on every node of the domain with"),
}

RESET_NEEDED = Check(
    "gpu.reset.needed",
    seen="recording",
    reads="gpu_recovery_action of nvidia-smi (before 570: gpu_reset_status)",
    fires="fail: the driver requests a reset or a reboot. warn: `drain and reset`, which can wait for running work. "
    "unknown: it requests an unknown action",
    fix="Reset the GPU or reboot the node, as requested",
)
ECC_UNCORRECTED = Check(
    "gpu.ecc.uncorrected",
    seen="recording",
    reads="uncorrectable ECC errors since the driver was loaded",
    fires="fail: at least one error occurred, so results may be wrong or a process was killed",
    fix="Reset the GPU. If errors recur, run dcgmi diag -r 3 and have the GPU replaced",
)
ECC_CORRECTED = Check(
    "gpu.ecc.corrected",
    seen="recording",
    reads="corrected ECC errors over the GPU's lifetime",
    fires=f"warn: over {MOST_SRAM_CORRECTED} errors in SRAM or {MOST_DRAM_CORRECTED} in DRAM (azurehpc-health-checks)",
    fix="Have the GPU inspected at the next maintenance",
)
ECC_SRAM_THRESHOLD = Check(
    "gpu.ecc.sram_threshold",
    seen="recording",
    reads="sram_threshold_exceeded of nvidia-smi",
    fires="fail: the GPU reports too many uncorrectable errors in SRAM",
    fix="Have the GPU replaced",
)
ECC_OFF = Check(
    "gpu.ecc.off",
    seen="recording",
    reads="the ECC mode",
    fires="warn: ECC is off on a data center GPU, which has ECC on by default, or on one of several equal GPUs. "
    "Workstation and consumer GPUs have ECC off by default",
    fix="Run sudo nvidia-smi -e 1, then reset the GPU",
)
ECC_PENDING = Check(
    "gpu.ecc.pending",
    seen="recording",
    reads="the current ECC mode, and the mode after the next reset",
    fires="warn: the modes differ, so ECC changes at the next reset",
    fix="Reset the GPU, or revert the change with nvidia-smi -e",
)
REMAP_PENDING = Check(
    "gpu.remap.pending",
    seen="recording",
    reads="remapped_rows of nvidia-smi (Ampere and newer)",
    fires="a faulty memory row is replaced only at the next GPU reset. fail: the driver uses the row until the reset. "
    "warn: the driver has stopped using the row, which reduces the memory size (A100, Hopper and Blackwell)",
    fix="Reset the GPU",
)
REMAP_FAILED = Check(
    "gpu.remap.failed",
    seen="recording",
    reads="remapped_rows of nvidia-smi",
    fires="fail: a faulty memory row could not be replaced",
    fix="Have the GPU replaced",
)
REMAP_MANY = Check(
    "gpu.remap.many",
    seen="recording",
    reads="remapped_rows of nvidia-smi",
    fires=f"warn: all {MOST_REMAPPED} spare rows are used, or a memory bank has no spare row left",
    fix="Have the GPU replaced before its next error",
)
RETIRED_PENDING = Check(
    "gpu.retired.pending",
    seen="recording",
    reads="retired_pages of nvidia-smi (before Ampere)",
    fires="fail: a faulty memory page remains in use until the driver is reloaded",
    fix="Reset the GPU, or reboot the node",
)
RETIRED_MANY = Check(
    "gpu.retired.many",
    seen="recording",
    reads="retired_pages of nvidia-smi",
    fires=f"warn: {MOST_RETIRED} or more pages are retired (DCGM's limit)",
    fix="Have the GPU replaced",
)
MEMORY_UNREPAIRABLE = Check(
    "gpu.memory.unrepairable",
    seen="recording",
    reads="unrepairable_memory, channel_repair_pending and tpc_repair_pending of nvidia-smi (580 and newer)",
    fires="fail: memory cannot be repaired. warn: a repair is pending until the next reset",
    fix="Reset the GPU to complete a pending repair. If memory cannot be repaired, have the GPU replaced",
)
REMAPPED_ROWS = (REMAP_PENDING, REMAP_FAILED, REMAP_MANY)
OF_ECC = (ECC_UNCORRECTED, ECC_CORRECTED, ECC_SRAM_THRESHOLD, ECC_OFF, ECC_PENDING)
CHECKS = (RESET_NEEDED, *OF_ECC, *REMAPPED_ROWS, RETIRED_PENDING, RETIRED_MANY, MEMORY_UNREPAIRABLE)


def hidden(node: GpuNode) -> Iterator[Said]:
    """Yield a skip for each check that these GPUs do not support."""
    if all(gpu["mig"] for gpu in node.gpus):
        yield from skip_all(REMAPPED_ROWS, "with MIG on, the driver does not report remapped rows")
    elif not any(gpu["ecc"]["on"] is not None for gpu in node.gpus):
        yield from skip_all(OF_ECC, "these GPUs have no ECC")


def recovery(node: GpuNode) -> Iterator[Said]:
    for action, gpus in node.by(_requested).items():
        command, text = RECOVERY.get(action, ("nvidia-smi -q", "Show the details with"))
        if "nvidia-smi" in command:
            command = node.reset(gpus) if command == RESET else node.only(command, gpus)
        report = RESET_NEEDED.warn if action == "drain and reset" else RESET_NEEDED.fail
        said = evidence("nvidia-smi -q -x", f"gpu_recovery_action {action}")
        summary = f"{node.have(gpus)} had a fault, and the driver requests: {action}"
        report = report if action in RECOVERY else RESET_NEEDED.unknown
        yield report(node.name, summary, text, command, observed=action, expected="none", evidence=said)


def _requested(gpu: Gpu) -> str:
    """Return the requested action. A pending row replacement has its own finding, with the same command."""
    replaced = gpu["recovery"] == "drain and reset" and gpu["remap"] and gpu["remap"]["pending"]
    return "" if replaced else gpu["recovery"] or ""


def ecc(node: GpuNode) -> Iterator[Said]:
    for gpus in node.by(lambda gpu: any(_sums([gpu], "uncorrectable", "volatile"))).values():
        counts = _sums(gpus, "uncorrectable", "volatile")
        summary = f"{node.have(gpus)} had {sum(counts)} uncorrectable memory errors since the driver was loaded"
        fix = "If errors recur after a reset, have the GPU replaced. Reset the GPU with", node.reset(gpus)
        yield ECC_UNCORRECTED.fail(node.name, summary, *fix, observed=COUNTS.format(*counts), expected="0")
    for gpus in node.by(_many).values():
        counts = _sums(gpus, "correctable", "volatile", "aggregate")
        summary = "{} had {} corrected errors in SRAM and {} in DRAM over {} lifetime"
        summary = summary.format(node.have(gpus), *counts, its(gpus))
        fix = "Have the GPU inspected at the next maintenance, and test it with", "sudo dcgmi diag -r 3"
        most = f"at most {MOST_SRAM_CORRECTED} and {MOST_DRAM_CORRECTED} on each"
        yield ECC_CORRECTED.warn(node.name, summary, *fix, observed=COUNTS.format(*counts), expected=most)
    for gpus in node.by(lambda gpu: gpu["ecc"]["sram_threshold"]).values():
        summary = f"{node.have(gpus)} reported too many uncorrectable errors in SRAM"
        seen = COUNTS.format(*_sums(gpus, "uncorrectable", "aggregate"))
        yield ECC_SRAM_THRESHOLD.fail(node.name, summary, REPLACE, observed=seen)


def _many(gpu: Gpu) -> bool:
    sram, dram = _sums([gpu], "correctable", "volatile", "aggregate")
    return sram > MOST_SRAM_CORRECTED or dram > MOST_DRAM_CORRECTED


def _sums(gpus: Sequence[Gpu], kind: str, *times: str) -> tuple[int, int]:
    """Return the errors in SRAM and in DRAM: of several times the larger count, because one can be missing."""
    sram, dram = (
        sum(max(gpu["ecc"][when][f"{memory}_{kind}"] or 0 for when in times) for gpu in gpus)
        for memory in ("sram", "dram")
    )
    return sram, dram


def ecc_mode(node: GpuNode) -> Iterator[Said]:
    servers = {gpu["name"] for gpu in node.gpus if gpu["brand"] in SERVERS or model_of(gpu["name"])} - set(WITHOUT_ECC)
    usual = servers | {gpu["name"] for gpu in node.gpus if gpu["ecc"]["on"]}
    for off in node.by(lambda gpu: gpu["ecc"]["on"] is False and gpu["name"] in usual).values():
        summary = f"{node.have(off)} ECC disabled, so memory errors are not detected"
        fix = "A GPU reset is required after you enable ECC with", node.only("sudo nvidia-smi -e 1", off)
        yield ECC_OFF.warn(node.name, summary, *fix, observed="off", expected="on")
    for to, pending in node.by(_pending_ecc).items():
        summary = f"the next reset will turn {to} ECC of {node.named(pending)}"
        now = "off" if to == "on" else "on"
        yield ECC_PENDING.warn(node.name, summary, IDLE, node.reset(pending), observed=now, expected=to)


def _pending_ecc(gpu: Gpu) -> str:
    pending = gpu["ecc"]["pending"]
    return "" if pending in (None, gpu["ecc"]["on"]) else "on" if pending else "off"


def remapping(node: GpuNode) -> Iterator[Said]:
    for gpus in node.by(lambda gpu: gpu["remap"] and gpu["remap"]["failed"]).values():
        summary = f"{node.named(gpus)} could not replace a faulty memory row"
        yield REMAP_FAILED.fail(node.name, summary, REPLACE, observed=_rows(gpus))
    for until, gpus in node.by(_until_replaced).items():
        report = REMAP_PENDING.warn if until == OFFLINED else REMAP_PENDING.fail
        summary = f"{node.have(gpus)} a faulty memory row, which the next reset replaces; until then, {until}"
        seen = {"observed": _rows(gpus), "expected": "nothing pending"}
        yield report(node.name, summary, IDLE, node.reset(gpus), **seen)
    for gpus in node.by(_used_up).values():
        banks = sum(gpu["remap"]["banks_without"] or 0 for gpu in gpus)
        summary = f"{node.have(gpus)} no spare rows left in {banks or 'some'} memory banks"
        yield REMAP_MANY.warn(node.name, summary, observed=_rows(gpus), expected=f"fewer than {MOST_REMAPPED}")


def _until_replaced(gpu: Gpu) -> str:
    if not (gpu["remap"] and gpu["remap"]["pending"]):
        return ""
    model = model_of(gpu["name"])
    return OFFLINED if model and model.offlines else "the driver uses the row"


def _used_up(gpu: Gpu) -> bool:
    remap = gpu["remap"] or {"uncorrectable": 0, "banks_without": 0}
    return bool((remap["uncorrectable"] or 0) >= MOST_REMAPPED or remap["banks_without"])


def _rows(gpus: Sequence[Gpu]) -> str:
    counts = (sum(gpu["remap"][kind] or 0 for gpu in gpus) for kind in ("correctable", "uncorrectable"))
    return "replaced rows: {} (correctable errors), {} (uncorrectable)".format(*counts)


def retirement(node: GpuNode) -> Iterator[Said]:
    for gpus in node.by(lambda gpu: gpu["retired"] and gpu["retired"]["pending"]).values():
        summary = f"{node.have(gpus)} a faulty memory page, which remains in use until the next reset"
        seen = f"{sum(map(_pages, gpus))} retired"
        yield RETIRED_PENDING.fail(node.name, summary, "Reset the GPU with", node.reset(gpus), observed=seen)
    for gpus in node.by(lambda gpu: _pages(gpu) >= MOST_RETIRED).values():
        count = str(sum(map(_pages, gpus)))
        summary = f"{node.have(gpus)} {count} retired memory pages"
        yield RETIRED_MANY.warn(node.name, summary, observed=count, expected=f"fewer than {MOST_RETIRED} on each")


def _pages(gpu: Gpu) -> int:
    retired = gpu["retired"] or {"single": 0, "double": 0}
    return (retired["single"] or 0) + (retired["double"] or 0)


def repair(node: GpuNode) -> Iterator[Said]:
    for gpus in node.by(lambda gpu: gpu["ecc"]["unrepairable"]).values():
        summary = f"{node.have(gpus)} memory that cannot be repaired"
        yield MEMORY_UNREPAIRABLE.fail(node.name, summary, REPLACE)
    for what, gpus in node.by(_waits).items():
        summary = f"a repair of {node.named(gpus)} ({what}) is pending and requires a reset"
        yield MEMORY_UNREPAIRABLE.warn(node.name, summary, IDLE, node.reset(gpus))


def _waits(gpu: Gpu) -> str:
    waits = [name for name in ("channel", "tpc") if gpu["ecc"][f"{name}_repair"]]
    return "" if gpu["ecc"]["unrepairable"] else " and ".join(waits)


RULES = (hidden, recovery, ecc, ecc_mode, remapping, retirement, repair)
