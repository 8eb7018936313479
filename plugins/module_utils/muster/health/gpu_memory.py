"""The memory of the GPUs, and the recovery actions that the driver requests (such as a GPU reset)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..gpu_info.values import address
from ..verdict.check import Check, skip_all
from ..verdict.commands import shell
from ..verdict.finding import evidence
from .gpu_node import have

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .gpu_node import GpuNode

# Azure/azurehpc-health-checks, check_gpu_ecc: above these counts the GPU is returned to the vendor.
MOST_SRAM_CORRECTED = 10_000
MOST_DRAM_CORRECTED = 20_000_000
# NVIDIA GPU Memory Error Management: a GPU has spare rows for 512 remappings.
MOST_REMAPPED = 512
# NVIDIA/DCGM, dcgm_gpu_hardware_limits.h.
MOST_RETIRED = 60
# nvidia-smi's manual, "GPU Recovery Action".
RECOVERY = {
    "reset": ("sudo nvidia-smi --gpu-reset", "End the processes on the GPU, and reset the GPU with"),
    "bus reset": ("sudo nvidia-smi -r bus", "End the processes on the GPU, and reset the GPU with"),
    "reboot": ("sudo reboot", "A GPU reset is not enough. Reboot the node with"),
    "system reboot": ("sudo reboot", "A GPU reset is not enough. Reboot the node with"),
    "drain p2p": ("nvidia-smi -q | grep -i 'recovery action'", "End the processes that copy between GPUs. Check with"),
    "drain and reset": ("sudo nvidia-smi --gpu-reset", "Let running work finish, start no new work, and reset with"),
    "recover imex domain": ("sudo systemctl restart nvidia-imex", "Restart IMEX on every node of the domain with"),
}

RESET_NEEDED = Check(
    "gpu.reset.needed",
    seen="recording",
    reads="gpu_recovery_action of nvidia-smi (before 570: gpu_reset_status)",
    fires="fail: the driver requests a reset or a reboot. warn: `drain and reset`, which can wait for running work",
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
    reads="the ECC mode of GPU models that have ECC on by default",
    fires="warn: ECC is off, so memory errors are not detected",
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
    for gpu in node.gpus:
        action = gpu["recovery"]
        # A pending row replacement has its own finding, with the same command.
        if action and not (action == "drain and reset" and gpu["remap"] and gpu["remap"]["pending"]):
            command, text = RECOVERY.get(action, ("nvidia-smi -q", "Show the details with"))
            one = f" -i {address(gpu['slot'])}" if command.startswith("sudo nvidia-smi") else ""
            yield (RESET_NEEDED.warn if action == "drain and reset" else RESET_NEEDED.fail)(
                node.name,
                f"{node.named([gpu])} has had a fault, and the driver requests: {action}",
                text,
                command + one,
                observed=action,
                expected="none",
                evidence=evidence("nvidia-smi -q -x", f"gpu_recovery_action {action}"),
            )


def ecc(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        now, ever = gpu["ecc"]["volatile"], gpu["ecc"]["aggregate"]
        errors = (now["sram_uncorrectable"] or 0) + (now["dram_uncorrectable"] or 0)
        if errors:
            yield ECC_UNCORRECTED.fail(
                node.name,
                f"{node.named([gpu])} has had {errors} uncorrectable memory errors since the driver was loaded",
                "If errors recur after a reset, have the GPU replaced. Reset the GPU with",
                shell("sudo nvidia-smi --gpu-reset -i {slot}", slot=address(gpu["slot"])),
                observed=_counts(now, "uncorrectable"),
                expected="0",
            )
        sram, dram = ever["sram_correctable"] or 0, ever["dram_correctable"] or 0
        if sram > MOST_SRAM_CORRECTED or dram > MOST_DRAM_CORRECTED:
            yield ECC_CORRECTED.warn(
                node.name,
                f"{node.named([gpu])} has had {sram} corrected errors in SRAM and {dram} in DRAM over its lifetime",
                "Have the GPU inspected at the next maintenance, and test it with",
                "sudo dcgmi diag -r 3",
                observed=_counts(ever, "correctable"),
                expected=f"at most {MOST_SRAM_CORRECTED} and {MOST_DRAM_CORRECTED}",
            )
        if gpu["ecc"]["sram_threshold"]:
            yield ECC_SRAM_THRESHOLD.fail(
                node.name,
                f"{node.named([gpu])} reports too many uncorrectable errors in SRAM",
                "Have the GPU replaced. Until then, exclude the GPU (cluster_gpus) or the node (cluster_quarantined)",
                observed=_counts(ever, "uncorrectable"),
            )


def ecc_mode(node: GpuNode) -> Iterator[Said]:
    off = []
    for gpu in node.gpus:
        model = model_of(gpu["name"])
        if gpu["ecc"]["on"] is False and model:
            off.append(gpu)
    if off:
        yield ECC_OFF.warn(
            node.name,
            f"{node.named(off)} {have(off)} ECC disabled, so memory errors are not detected",
            "A GPU reset is required after you enable ECC with",
            node.only("sudo nvidia-smi -e 1", off),
            observed="off",
            expected="on",
        )
    pending = [
        gpu for gpu in node.gpus if gpu["ecc"]["pending"] is not None and gpu["ecc"]["pending"] != gpu["ecc"]["on"]
    ]
    if pending:
        to = "on" if pending[0]["ecc"]["pending"] else "off"
        yield ECC_PENDING.warn(
            node.name,
            f"the next reset will turn {to} ECC of {node.named(pending)}",
            "While no process is using the GPUs, reset them with",
            node.only("sudo nvidia-smi --gpu-reset", pending),
            observed="off" if to == "on" else "on",
            expected=to,
        )


def remapping(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        remap = gpu["remap"]
        if remap is None:
            continue
        rows = f"replaced rows: {remap['correctable']} (correctable errors), {remap['uncorrectable']} (uncorrectable)"
        if remap["failed"]:
            yield REMAP_FAILED.fail(
                node.name,
                f"{node.named([gpu])} could not replace a faulty memory row",
                "Have the GPU replaced. Until then, exclude the GPU (cluster_gpus) or the node (cluster_quarantined)",
                observed=rows,
            )
        if remap["pending"]:
            model = model_of(gpu["name"])
            offlined = bool(model and model.offlines)
            until = "the driver does not use the page of this row" if offlined else "the driver uses the row"
            yield (REMAP_PENDING.warn if offlined else REMAP_PENDING.fail)(
                node.name,
                f"{node.named([gpu])} has a faulty memory row, which the next reset replaces; until then, {until}",
                "While no process is using the GPU, reset it with",
                shell("sudo nvidia-smi --gpu-reset -i {slot}", slot=address(gpu["slot"])),
                observed=rows,
                expected="nothing pending",
                evidence=evidence("nvidia-smi -q -x", "remapped_row_pending Yes"),
            )
        if (remap["uncorrectable"] or 0) >= MOST_REMAPPED or remap["banks_without"]:
            yield REMAP_MANY.warn(
                node.name,
                f"{node.named([gpu])} has no spare rows left in {remap['banks_without'] or 'some'} memory banks",
                "Have the GPU replaced before its next error",
                observed=rows,
                expected=f"fewer than {MOST_REMAPPED}",
            )


def retirement(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        retired = gpu["retired"]
        if retired is None:
            continue
        pages = (retired["single"] or 0) + (retired["double"] or 0)
        if retired["pending"]:
            yield RETIRED_PENDING.fail(
                node.name,
                f"{node.named([gpu])} has a faulty memory page, which remains in use until the next reset",
                "Reset the GPU with",
                shell("sudo nvidia-smi --gpu-reset -i {slot}", slot=address(gpu["slot"])),
                observed=f"{pages} retired",
            )
        if pages >= MOST_RETIRED:
            yield RETIRED_MANY.warn(
                node.name,
                f"{node.named([gpu])} has {pages} retired memory pages",
                "Have the GPU replaced",
                observed=str(pages),
                expected=f"fewer than {MOST_RETIRED}",
            )


def repair(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        waits = [name for name in ("channel", "tpc") if gpu["ecc"][f"{name}_repair"]]
        if gpu["ecc"]["unrepairable"]:
            yield MEMORY_UNREPAIRABLE.fail(
                node.name,
                f"{node.named([gpu])} has memory that cannot be repaired",
                "Have the GPU replaced. Until then, exclude the GPU (cluster_gpus) or the node (cluster_quarantined)",
            )
        elif waits:
            yield MEMORY_UNREPAIRABLE.warn(
                node.name,
                f"a repair of {node.named([gpu])} ({' and '.join(waits)}) is pending and requires a reset",
                "While no process is using the GPU, reset it with",
                shell("sudo nvidia-smi --gpu-reset -i {slot}", slot=address(gpu["slot"])),
            )


def _counts(counts: Mapping[str, Any], kind: str) -> str:
    return f"{counts[f'sram_{kind}'] or 0} in SRAM, {counts[f'dram_{kind}'] or 0} in DRAM"


RULES = (hidden, recovery, ecc, ecc_mode, remapping, retirement, repair)
