"""The GPUs of a node: whether they are there, whether they answer, and who judges the rest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info import facts as gpu_facts
from ..verdict.entry import Entry
from ..verdict.finding import Finding, evidence
from ..verdict.words import few, plural
from . import fabric_manager, gpu_memory, gpu_settings, gpu_use, nvlink
from .gpu_node import GpuNode, not_looked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Drivers answer in a second when they are kept loaded; Primus and azurehpc-health-checks take a slow answer for that of
# a wedged one. Without persistence the first answer brings the GPUs up, which takes seconds for each.
SLOW = 10.0
LOG = "sudo dmesg | grep -iE 'nvrm|xid|pcie'"

FINDINGS = {
    "gpu.health": Entry(
        "every other check of the node's GPUs",
        "it passes when none of them found anything, and is not told otherwise",
        "",
    ),
    "gpu.lost": Entry(
        "the PCI bus in /sys, and the GPUs that nvidia-smi lists",
        "a GPU is on the bus and the driver does not list it, cannot read it, or the bus reads it as ones",
        "Power the node off and on (a warm start does not always do); if it is lost again, reseat or replace it",
    ),
    "gpu.driver.not_loaded": Entry(
        "/sys/module/nvidia and /proc/driver/nvidia",
        "cluster_gpus is not 0, and no driver is in the kernel",
        "Install it with --tags gpu_stack, or reboot where that asks for it",
    ),
    "gpu.driver.mismatch": Entry(
        "the versions of the module in the kernel, of libnvidia-ml and of the module on disk",
        "fails when the first two differ: nothing of CUDA starts; warns when only the module on disk differs, which "
        "the next boot will load",
        "Reboot the node",
    ),
    "gpu.smi.missing": Entry(
        "nvidia-smi",
        "the driver is loaded and the program is not there: unknown, since nothing can be asked",
        "Install it with --tags gpu_stack",
    ),
    "gpu.smi.hangs": Entry(
        "how long nvidia-smi takes",
        "it did not answer within 30 s, as with a GPU that has fallen off the bus or a wedged driver",
        "Look at the kernel log and reboot the node; a process that waits for the driver cannot be ended",
    ),
    "gpu.smi.slow": Entry(
        "how long nvidia-smi takes",
        "more than 10 s, with persistence on",
        "Look at the kernel log for Xid messages",
    ),
    "gpu.smi.failed": Entry(
        "the exit status of nvidia-smi, and what it printed",
        "it failed, or its answer cannot be read",
        "Run nvidia-smi on the node; what it says there is the cause",
    ),
}
ALSO = ("gpu.count.differs",)
# What can be told of GPUs that answer, only.
OF_LISTED = tuple(
    name for each in (gpu_memory, gpu_settings, gpu_use, nvlink, fabric_manager) for name in each.FINDINGS
)
RULES = (*gpu_memory.RULES, *gpu_settings.RULES, *gpu_use.RULES, *nvlink.RULES, *fabric_manager.RULES)
LOOKS = ("gpu",)


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    return gpu_facts.facts(looks["gpu"])


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[list[Finding], list[dict[str, str]]]:
    """Return every finding about the node's GPUs, and what was not looked at and why.

    facts["gpu"]: what gpu_info.facts.facts returns. request: {node, gpus, nproc} at least. One `pass` when nothing is
    wrong.
    """
    facts = facts["gpu"]
    node = GpuNode(facts, request)
    if not request["gpus"]:
        seen = len(facts["gpus"]) or len(facts["bus"])
        why = f"cluster_gpus is 0: its {plural(seen, 'GPU')} will not be used" if seen else "cluster_gpus is 0"
        return [], not_looked((*FINDINGS, *ALSO, *OF_LISTED), why)
    skipped = [{"id": what, "why": why} for what, why in facts["skipped"].items()]
    found = [finding for rule in (driver, lost, presence, mismatch_on_disk, speed) for finding in rule(node)]
    if node.gpus:
        found += [finding for rule in RULES for finding in rule(node)]
        skipped += [skip for look in (gpu_memory, nvlink, fabric_manager) for skip in look.skips(node)]
    else:
        skipped += not_looked(OF_LISTED, "no GPU answered")
    if not any(finding.status in ("fail", "warn", "unknown") for finding in found):
        names = few(sorted({str(gpu["name"]) for gpu in node.gpus}))
        found.append(node.finding("gpu.health", "pass", f"{plural(len(node.gpus), 'GPU')} ({names}) can compute"))
    return found, skipped


def driver(node: GpuNode) -> Iterator[Finding]:
    """Whether the driver answers at all."""
    smi, version = node.facts["smi"], node.facts["driver"]
    status = smi["status"]
    if status == "not_run" or (status == "no_driver" and not version["loaded"]):
        what = f"no driver is loaded, and cluster_gpus is {node.request['gpus']}"
        if version["on_disk"]:
            text, command = (
                f"{version['on_disk']} is installed: load it, and look why it was not",
                "sudo modprobe nvidia",
            )
        else:
            text, command = "Install it with", "ansible-playbook site.yml --tags gpu_stack"
        yield node.finding("gpu.driver.not_loaded", "fail", what, text, command, observed="", expected="a driver")
    elif status == "mismatch":
        library = f" and its library is {version['library']}" if version["library"] else ""
        yield node.finding(
            "gpu.driver.mismatch",
            "fail",
            f"the driver in the kernel is {version['loaded']}{library}: nothing of CUDA starts",
            "An update has changed the files of a driver in use: reboot the node",
            "sudo reboot",
            observed=version["loaded"],
            expected=version["library"],
            evidence=evidence("nvidia-smi", smi["notes"]),
        )
    elif status == "hangs":
        yield node.finding(
            "gpu.smi.hangs",
            "fail",
            f"{smi['why']}: the driver waits for a GPU",
            "Look for Xid messages, then reboot the node; see",
            LOG,
            observed=f"{smi['seconds']:.0f} s",
            expected="an answer",
            evidence=evidence("nvidia-smi -q -x", smi["why"]),
        )
    elif status == "missing":
        yield node.finding(
            "gpu.smi.missing",
            "unknown",
            f"its driver {version['loaded']} is loaded, and nvidia-smi is not there: its GPUs cannot be looked at",
            "Install it with",
            "ansible-playbook site.yml --tags gpu_stack",
        )
    elif status in ("failed", "unreadable", "no_driver") and not (smi["lost"] or smi["lost_slots"]):
        said = smi["notes"].splitlines()[0] if smi["notes"] else smi["why"]
        what = "nvidia-smi failed" if smi["why"] else "the answer of nvidia-smi cannot be read"
        yield node.finding(
            "gpu.smi.failed",
            "fail" if smi["why"] else "unknown",
            f"{what}: {said or 'it printed nothing'}",
            "Look at the kernel log with",
            LOG,
            evidence=evidence("nvidia-smi -q -x", smi["notes"] or smi["why"]),
        )


def lost(node: GpuNode) -> Iterator[Finding]:
    """GPUs that are there and cannot be used: by the bus, and by what the driver says."""
    facts = node.facts
    slots = dict.fromkeys([*(facts["missing"] or []), *facts["smi"]["lost_slots"]])
    slots.update(dict.fromkeys(gpu["slot"] for gpu in facts["gpus"] if gpu["lost"]))
    silent = [device["slot"] for device in facts["bus"] if device["answers"] is False]
    slots.update(dict.fromkeys(silent))
    said = facts["smi"]["lost"]
    for gone in ([slot for slot in slots if slot in silent], [slot for slot in slots if slot not in silent]):
        if gone:
            what = f"the GPU at {gone[0]} is" if len(gone) == 1 else f"the GPUs at {few(gone)} are"
            whom = "it" if len(gone) == 1 else "them"
            how = "no answer comes from the bus" if gone[0] in silent else f"the driver cannot reach {whom}"
            yield _lost(node, f"{what} lost: {how}", f"/sys/bus/pci/devices/{gone[0]}", how)
    if said and not slots:
        what = f"GPU {said[0]}" if len(said) == 1 else f"GPUs {few([str(number) for number in said])}"
        yield _lost(node, f"the driver has lost {what}", "nvidia-smi -q -x", facts["smi"]["notes"])


def _lost(node: GpuNode, what: str, source: str, seen: str) -> Finding:
    return node.finding(
        "gpu.lost",
        "fail",
        what,
        "Power the node off and on, and look at what the kernel says of it with",
        LOG,
        observed=f"{plural(len(node.gpus), 'GPU')} can be used" if node.gpus else "",
        expected=plural(int(node.request["gpus"]), "GPU"),
        evidence=evidence(source, seen),
    )


def presence(node: GpuNode) -> Iterator[Finding]:
    """Whether there are as many GPUs as the inventory says."""
    facts, wanted = node.facts, int(node.request["gpus"])
    listed = len(node.gpus)
    if facts["smi"]["status"] != "ok":
        return
    if listed < wanted and not any(lost(node)):
        on_bus = f", and {len(facts['bus'])} on the bus" if facts["bus"] else ""
        yield node.finding(
            "gpu.count.differs",
            "fail",
            f"the driver lists {plural(listed, 'GPU')}{on_bus}; cluster_gpus is {wanted}",
            "Correct cluster_gpus; if one is missing, look for it with",
            LOG,
            observed=str(listed),
            expected=str(wanted),
            evidence=evidence("nvidia-smi -q -x", few([gpu["slot"] for gpu in node.gpus])),
        )
    elif listed > wanted:
        yield node.finding(
            "gpu.count.differs",
            "warn",
            f"{plural(listed - wanted, 'GPU')} of its {listed} would stay idle: cluster_gpus is {wanted}",
            f"Set cluster_gpus to {listed} to train on all of them",
            observed=str(listed),
            expected=str(wanted),
        )


def mismatch_on_disk(node: GpuNode) -> Iterator[Finding]:
    version = node.facts["driver"]
    if node.facts["container"] or node.facts["smi"]["status"] != "ok":
        return
    others = {version["on_disk"], version["library"]} - {"", version["loaded"]}
    if version["loaded"] and others:
        yield node.finding(
            "gpu.driver.mismatch",
            "warn",
            f"the driver in the kernel is {version['loaded']}, and {few(sorted(others))} is installed",
            "Reboot the node, before something is started that needs the new one",
            "sudo reboot",
            observed=version["loaded"],
            expected=few(sorted(others)),
        )


def speed(node: GpuNode) -> Iterator[Finding]:
    smi = node.facts["smi"]
    kept = all(gpu["persistence"] for gpu in node.gpus)
    if smi["status"] == "ok" and kept and (smi["seconds"] or 0) > SLOW:
        yield node.finding(
            "gpu.smi.slow",
            "warn",
            f"nvidia-smi took {smi['seconds']:.0f} s, though the driver is kept loaded",
            "A GPU that answers slowly is often about to fail; look for Xid messages with",
            LOG,
            observed=f"{smi['seconds']:.0f} s",
            expected=f"{SLOW:.0f} s",
        )
