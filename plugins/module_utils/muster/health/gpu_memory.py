"""The memory of the GPUs, and what the driver asks for after a fault in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..verdict.entry import Entry
from ..verdict.finding import evidence
from .gpu_node import have, not_looked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.finding import Finding
    from .gpu_node import GpuNode

# Azure/azurehpc-health-checks, check_gpu_ecc: above them the card is sent back.
MOST_SRAM_CORRECTED = 10_000
MOST_DRAM_CORRECTED = 20_000_000
# NVIDIA GPU Memory Error Management: a GPU has spare rows for 512 remappings.
MOST_REMAPPED = 512
# NVIDIA/DCGM, dcgm_gpu_hardware_limits.h.
MOST_RETIRED = 60
# nvidia-smi's manual, "GPU Recovery Action".
RECOVERY = {
    "reset": ("sudo nvidia-smi --gpu-reset", "End what runs on it, and reset it with"),
    "bus reset": ("sudo nvidia-smi -r bus", "End what runs on it, and reset it with"),
    "reboot": ("sudo reboot", "Reboot the node: a reset does not do"),
    "system reboot": ("sudo reboot", "Reboot the node: a reset does not do"),
    "drain p2p": ("nvidia-smi -q | grep -i 'recovery action'", "End every process that copies between GPUs, and ask"),
    "drain and reset": ("sudo nvidia-smi --gpu-reset", "Start nothing new; when its work has ended, reset it with"),
    "recover imex domain": ("sudo systemctl restart nvidia-imex", "Start IMEX anew on every node of its domain with"),
}

FINDINGS = {
    "gpu.reset.needed": Entry(
        "gpu_recovery_action of nvidia-smi, before 570 gpu_reset_status",
        "the driver asks for a reset or a reboot; warns for `drain and reset`, which running work may wait for",
        "Reset the GPU or reboot the node, whichever it asks for",
    ),
    "gpu.ecc.uncorrected": Entry(
        "uncorrectable ECC errors since the driver was loaded",
        "one or more: something was computed with it, or was ended by it",
        "Reset the GPU; if it comes again, run dcgmi diag -r 3 and have the GPU replaced",
    ),
    "gpu.ecc.corrected": Entry(
        "corrected ECC errors, of all its life",
        f"more than {MOST_SRAM_CORRECTED} in SRAM or {MOST_DRAM_CORRECTED} in DRAM (azurehpc-health-checks)",
        "Have the GPU looked at when there is time for it",
    ),
    "gpu.ecc.sram_threshold": Entry(
        "sram_threshold_exceeded of nvidia-smi",
        "the GPU says that it has had too many uncorrectable errors in SRAM",
        "Have the GPU replaced",
    ),
    "gpu.ecc.off": Entry(
        "the ECC mode, on models that come with it on",
        "it is off, so an error in memory is not noticed",
        "sudo nvidia-smi -e 1, then reset the GPU",
    ),
    "gpu.ecc.pending": Entry(
        "the ECC mode now and after the next reset",
        "they differ, so that the node changes with its next boot",
        "Reset the GPU, or take the change back with nvidia-smi -e",
    ),
    "gpu.remap.pending": Entry(
        "remapped_rows of nvidia-smi (Ampere and newer)",
        "a row waits to be replaced until the GPU is reset. Fails where the driver goes on using the row until then; "
        "warns on A100, Hopper and Blackwell, where the page has been taken out of use and memory is merely smaller",
        "Reset the GPU",
    ),
    "gpu.remap.failed": Entry(
        "remapped_rows of nvidia-smi",
        "a row could not be replaced",
        "Have the GPU replaced",
    ),
    "gpu.remap.many": Entry(
        "remapped_rows of nvidia-smi",
        f"{MOST_REMAPPED} rows were replaced, which is all the spare ones, or a bank has none left",
        "Have the GPU replaced before its next error",
    ),
    "gpu.retired.pending": Entry(
        "retired_pages of nvidia-smi (before Ampere)",
        "a page waits to be taken out of use until the driver is loaded anew",
        "Reset the GPU, or reboot the node",
    ),
    "gpu.retired.many": Entry(
        "retired_pages of nvidia-smi",
        f"{MOST_RETIRED} pages or more (DCGM's limit)",
        "Have the GPU replaced",
    ),
    "gpu.memory.unrepairable": Entry(
        "unrepairable_memory, channel_repair_pending and tpc_repair_pending of nvidia-smi (580 and newer)",
        "fails when memory cannot be repaired; warns when a repair waits for a reset",
        "Reset the GPU for a repair that waits; have it replaced when there is none",
    ),
}


def skips(node: GpuNode) -> list[dict[str, str]]:
    if all(gpu["mig"] for gpu in node.gpus):
        rows = [name for name in FINDINGS if name.startswith("gpu.remap.")]
        return not_looked(rows, "with MIG on, the driver does not tell of remapped rows")
    if not any(gpu["ecc"]["on"] is not None for gpu in node.gpus):
        return not_looked([name for name in FINDINGS if name.startswith("gpu.ecc.")], "these GPUs have no ECC")
    return []


def recovery(node: GpuNode) -> Iterator[Finding]:
    for gpu in node.gpus:
        action = gpu["recovery"]
        # A row that waits to be replaced is told by itself, with the same command.
        if action and not (action == "drain and reset" and gpu["remap"] and gpu["remap"]["pending"]):
            command, text = RECOVERY.get(action, ("nvidia-smi -q", "See"))
            one = f" -i {gpu['index']}" if command.startswith("sudo nvidia-smi") else ""
            yield node.finding(
                "gpu.reset.needed",
                "warn" if action == "drain and reset" else "fail",
                f"{node.named([gpu])} has had a fault, and its driver asks for: {action}",
                text,
                command + one,
                observed=action,
                expected="none",
                evidence=evidence("nvidia-smi -q -x", f"gpu_recovery_action {action}"),
            )


def ecc(node: GpuNode) -> Iterator[Finding]:
    for gpu in node.gpus:
        now, ever = gpu["ecc"]["volatile"], gpu["ecc"]["aggregate"]
        errors = (now["sram_uncorrectable"] or 0) + (now["dram_uncorrectable"] or 0)
        if errors:
            yield node.finding(
                "gpu.ecc.uncorrected",
                "fail",
                f"{node.named([gpu])} has had {errors} uncorrectable memory errors since its driver was loaded",
                "Reset it; if they come again, have it replaced",
                f"sudo nvidia-smi --gpu-reset -i {gpu['index']}",
                observed=_counts(now, "uncorrectable"),
                expected="0",
            )
        sram, dram = ever["sram_correctable"] or 0, ever["dram_correctable"] or 0
        if sram > MOST_SRAM_CORRECTED or dram > MOST_DRAM_CORRECTED:
            yield node.finding(
                "gpu.ecc.corrected",
                "warn",
                f"{node.named([gpu])} has had {sram} corrected errors in SRAM and {dram} in DRAM in its life",
                "Have it looked at when there is time for it",
                "sudo dcgmi diag -r 3",
                observed=_counts(ever, "correctable"),
                expected=f"at most {MOST_SRAM_CORRECTED} and {MOST_DRAM_CORRECTED}",
            )
        if gpu["ecc"]["sram_threshold"]:
            yield node.finding(
                "gpu.ecc.sram_threshold",
                "fail",
                f"{node.named([gpu])} has had too many uncorrectable errors in SRAM, by its own count",
                "Have it replaced, and leave it out until then: cluster_gpus, or cluster_quarantined for the node",
                observed=_counts(ever, "uncorrectable"),
            )


def ecc_mode(node: GpuNode) -> Iterator[Finding]:
    off = []
    for gpu in node.gpus:
        model = model_of(gpu["name"])
        if gpu["ecc"]["on"] is False and model:
            off.append(gpu)
    if off:
        yield node.finding(
            "gpu.ecc.off",
            "warn",
            f"{node.named(off)} {have(off)} ECC off: an error in memory would not be noticed",
            "Turn it on, and reset",
            f"sudo nvidia-smi -e 1{node.only(off)}",
            observed="off",
            expected="on",
        )
    pending = [
        gpu for gpu in node.gpus if gpu["ecc"]["pending"] is not None and gpu["ecc"]["pending"] != gpu["ecc"]["on"]
    ]
    if pending:
        to = "on" if pending[0]["ecc"]["pending"] else "off"
        yield node.finding(
            "gpu.ecc.pending",
            "warn",
            f"ECC of {node.named(pending)} will be {to} after the next reset, and is not now",
            "Reset now, while nothing runs",
            f"sudo nvidia-smi --gpu-reset{node.only(pending)}",
            observed="off" if to == "on" else "on",
            expected=to,
        )


def remapping(node: GpuNode) -> Iterator[Finding]:
    for gpu in node.gpus:
        remap = gpu["remap"]
        if remap is None:
            continue
        rows = f"{remap['correctable']} rows replaced for corrected errors, {remap['uncorrectable']} for others"
        if remap["failed"]:
            yield node.finding(
                "gpu.remap.failed",
                "fail",
                f"{node.named([gpu])} could not replace a broken row of its memory",
                "Have it replaced, and leave it out until then: cluster_gpus, or cluster_quarantined for the node",
                observed=rows,
            )
        if remap["pending"]:
            model = model_of(gpu["name"])
            offlined = bool(model and model.offlines)
            until = "its page is out of use until then" if offlined else "it stays in use until then"
            yield node.finding(
                "gpu.remap.pending",
                "warn" if offlined else "fail",
                f"{node.named([gpu])} has a broken row of memory that is replaced at its next reset; {until}",
                "When nothing runs on it, reset it with",
                f"sudo nvidia-smi --gpu-reset -i {gpu['index']}",
                observed=rows,
                expected="nothing pending",
                evidence=evidence("nvidia-smi -q -x", "remapped_row_pending Yes"),
            )
        if (remap["uncorrectable"] or 0) >= MOST_REMAPPED or remap["banks_without"]:
            yield node.finding(
                "gpu.remap.many",
                "warn",
                f"{node.named([gpu])} has no spare rows left in {remap['banks_without'] or 'some'} banks of memory",
                "Have it replaced before its next error",
                observed=rows,
                expected=f"fewer than {MOST_REMAPPED}",
            )


def retirement(node: GpuNode) -> Iterator[Finding]:
    for gpu in node.gpus:
        retired = gpu["retired"]
        if retired is None:
            continue
        pages = (retired["single"] or 0) + (retired["double"] or 0)
        if retired["pending"]:
            yield node.finding(
                "gpu.retired.pending",
                "fail",
                f"{node.named([gpu])} has a broken page of memory that stays in use until its next reset",
                "Reset it with",
                f"sudo nvidia-smi --gpu-reset -i {gpu['index']}",
                observed=f"{pages} retired",
            )
        if pages >= MOST_RETIRED:
            yield node.finding(
                "gpu.retired.many",
                "warn",
                f"{node.named([gpu])} has {pages} broken pages of memory",
                "Have it replaced",
                observed=str(pages),
                expected=f"fewer than {MOST_RETIRED}",
            )


def repair(node: GpuNode) -> Iterator[Finding]:
    for gpu in node.gpus:
        waits = [name for name in ("channel", "tpc") if gpu["ecc"][f"{name}_repair"]]
        if gpu["ecc"]["unrepairable"]:
            yield node.finding(
                "gpu.memory.unrepairable",
                "fail",
                f"{node.named([gpu])} has memory that cannot be repaired",
                "Have it replaced, and leave it out until then: cluster_gpus, or cluster_quarantined for the node",
            )
        elif waits:
            yield node.finding(
                "gpu.memory.unrepairable",
                "warn",
                f"a repair of {node.named([gpu])} ({' and '.join(waits)}) waits for its next reset",
                "When nothing runs on it, reset it with",
                f"sudo nvidia-smi --gpu-reset -i {gpu['index']}",
            )


def _counts(counts: Mapping[str, Any], kind: str) -> str:
    return f"{counts[f'sram_{kind}'] or 0} in SRAM, {counts[f'dram_{kind}'] or 0} in DRAM"


RULES = (recovery, ecc, ecc_mode, remapping, retirement, repair)
