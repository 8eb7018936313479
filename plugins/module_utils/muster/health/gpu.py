"""The GPUs of a node: whether they are there, whether they answer, and who judges the rest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info import facts as gpu_facts
from ..inspect.gpus import COUNT_DIFFERS
from ..verdict.check import Check, CheckResults, collect, skip_all
from ..verdict.commands import playbook
from ..verdict.families import family
from ..verdict.finding import Finding, Skipped, evidence
from ..verdict.words import few, plural
from . import fabric_manager, gpu_memory, gpu_settings, gpu_use, nvlink
from .gpu_node import GpuNode
from .gpu_readings import apart, unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said

# Drivers answer in a second when they are kept loaded; Primus and azurehpc-health-checks take a slow answer for that of
# a wedged one. Without persistence the first answer brings the GPUs up, which takes seconds for each.
SLOW = 10.0
GPU_STACK = playbook("site.yml", tags="gpu_stack")
LOG = "sudo dmesg | grep -iE 'nvrm|xid|pcie'"
# nvidia-smi's manual, "Return Value": what its exit status means, and what to do. What is not here is explained by the
# kernel's log at best, 255 (another error) among it.
EXITS = {
    3: ("this GPU or driver cannot be asked so", "Look which driver the GPU needs, and install it with", GPU_STACK),
    4: ("it may not do that", "Look who may open the devices with", "ls -l /dev/nvidia*"),
    8: ("a GPU's power cables are not attached", "Power the node off, and look at the cables; see", LOG),
    9: ("no driver answers, though one is loaded", "Look at the kernel log, and reboot the node; see", LOG),
    10: ("the kernel has an interrupt problem with a GPU", "Look at the kernel log, and reboot the node; see", LOG),
    12: ("the driver's library is not there", "Install it with", GPU_STACK),
    13: ("the driver's library is too old for it", "Bring both to one version with", GPU_STACK),
    14: ("the infoROM of a GPU is corrupt", "Have the GPU looked at; see", LOG),
    15: ("a GPU has fallen off the bus", "Power the node off and on, and look at what the kernel says with", LOG),
}

HEALTH = Check(
    "gpu.health",
    seen="recording",
    reads="every other check of the node's GPUs, its NVLinks and its fabric manager",
    fires="it passes when none of them found anything, and is not there otherwise",
)
LOST = Check(
    "gpu.lost",
    seen="recording",
    reads="the PCI bus in /sys, and the GPUs that nvidia-smi lists",
    fires="a GPU is on the bus and the driver does not list it, cannot read it, or the bus reads it as ones",
    fix="Power the node off and on, and look at what the kernel says of it with",
    command=LOG,
)
DRIVER_NOT_LOADED = Check(
    "gpu.driver.not_loaded",
    seen="stand-in",
    reads="/sys/module/nvidia and /proc/driver/nvidia",
    fires="cluster_gpus is not 0, and no driver is in the kernel; under WSL, Windows has given none",
    fix=f"Install it with {GPU_STACK}, or reboot where that asks for it; under WSL, install it on Windows",
)
DRIVER_MISMATCH = Check(
    "gpu.driver.mismatch",
    seen="stand-in",
    reads="the versions of the module in the kernel, of libnvidia-ml and of the module on disk",
    fires="fails when the first two differ: nothing of CUDA starts; warns when only the module on disk differs, which "
    "the next boot will load",
    fix="Reboot the node",
)
SMI_MISSING = Check(
    "gpu.smi.missing",
    seen="stand-in",
    reads="nvidia-smi",
    fires="the driver is loaded and the program is not there: unknown, since nothing can be asked",
    fix="Install it with",
    command=GPU_STACK,
)
SMI_HANGS = Check(
    "gpu.smi.hangs",
    seen="stand-in",
    reads="how long nvidia-smi takes",
    fires="it did not answer within 30 s, as with a GPU that has fallen off the bus or a driver that is stuck",
    fix="Look for Xid messages, then reboot the node; see",
    command=LOG,
)
SMI_SLOW = Check(
    "gpu.smi.slow",
    seen="stand-in",
    reads="how long nvidia-smi takes",
    fires="more than 10 s, with persistence on",
    fix="A GPU that answers slowly is often about to fail; look for Xid messages with",
    command=LOG,
)
SMI_FAILED = Check(
    "gpu.smi.failed",
    seen="stand-in",
    reads="the exit status of nvidia-smi, and what it printed",
    fires="it failed, or its answer cannot be read",
    fix="Run nvidia-smi on the node; what it says there is the cause",
)
# What can be seen of GPUs that answer, only.
PARTS = (gpu_memory, gpu_settings, gpu_use, nvlink, fabric_manager)
OF_LISTED = tuple(check for part in PARTS for check in part.CHECKS)
CHECKS = (
    *(HEALTH, LOST, COUNT_DIFFERS),
    *(DRIVER_NOT_LOADED, DRIVER_MISMATCH, SMI_MISSING, SMI_HANGS, SMI_SLOW, SMI_FAILED),
    *OF_LISTED,
)
LOOKS = ("gpu",)
# What `gpu.health` is concluded from.
FAMILIES = ("gpu", "nvlink", "fabric_manager")


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    return gpu_facts.facts(looks["gpu"])


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    """Yield every finding about the node's GPUs, and what was not looked at and why.

    facts["gpu"]: what gpu_info.facts.facts returns. request: {node, gpus, nproc} at least.
    """
    facts = facts["gpu"]
    node = GpuNode(facts, request)
    if not request["gpus"]:
        seen = len(facts["gpus"]) or len(facts["bus"])
        why = f"cluster_gpus is 0: its {plural(seen, 'GPU')} will not be used" if seen else "cluster_gpus is 0"
        yield from skip_all(CHECKS, why)
        return
    rules = [driver, lost, presence, mismatch_on_disk, speed]
    if node.gpus:
        rules += [rule for part in PARTS for rule in part.RULES]
    else:
        yield from skip_all(OF_LISTED, "no GPU answered")
    said = collect(one for rule in rules for one in rule(node))
    others = apart(node)
    findings = [one for one in said.findings if one.id not in others]
    yield from findings
    yield from (Skipped(id=name, why=why) for name, why in others.items())
    found, skipped = {one.id for one in findings}, {one["id"] for one in said.skipped} | set(others)
    yield from (one for one in said.skipped if one["id"] not in others)
    yield from (skip for skip in unread(node) if skip["id"] not in found | skipped | set(facts["skipped"]))
    for what, why in facts["skipped"].items():
        names = [check.id for check in nvlink.JUDGED_FROM.get(what, ())] or [what]
        yield from (Skipped(id=name, why=why) for name in names if name not in found | skipped)


def conclude(judged: CheckResults, facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    """Yield the one `pass` when nothing of the GPUs was found by whatever subject: the kernel's log knows of some."""
    if "gpu" not in facts or HEALTH.id in {one["id"] for one in judged.skipped}:
        return
    against = [one for one in judged.findings if one.status != "pass" and family(one.id) in FAMILIES]
    gpus = GpuNode(facts["gpu"], request).gpus
    if gpus and not against:
        names = few(sorted({str(gpu["name"]) for gpu in gpus}))
        yield HEALTH.passed(request["node"], f"{plural(len(gpus), 'GPU')} ({names}) can compute")


def driver(node: GpuNode) -> Iterator[Said]:
    """Whether the driver answers at all."""
    smi, version = node.facts["smi"], node.facts["driver"]
    status = smi["status"]
    if status == "not_run" or (status == "no_driver" and not version["loaded"]):
        yield _no_driver(node)
    elif status == "mismatch":
        library = f" and its library is {version['library']}" if version["library"] else ""
        yield DRIVER_MISMATCH.fail(
            node.name,
            f"the driver in the kernel is {version['loaded']}{library}: nothing of CUDA starts",
            "An update has changed the files of a driver in use: reboot the node",
            "sudo reboot",
            observed=version["loaded"],
            expected=version["library"],
            evidence=evidence("nvidia-smi", smi["notes"]),
        )
    elif status == "hangs":
        yield SMI_HANGS.fail(
            node.name,
            f"{smi['why']}: the driver waits for a GPU",
            observed=f"{smi['seconds']:.0f} s",
            expected="an answer",
            evidence=evidence("nvidia-smi -q -x", smi["why"]),
        )
    elif status == "missing":
        summary = f"its driver {version['loaded']} is loaded, and nvidia-smi is not there: its GPUs cannot be looked at"
        yield SMI_MISSING.unknown(
            node.name,
            summary,
        )
    elif status in ("failed", "unreadable", "no_driver") and not (smi["lost"] or smi["lost_slots"]):
        yield _smi_failed(node.name, smi)


def _no_driver(node: GpuNode) -> Finding:
    installed = node.facts["driver"]["on_disk"]
    fix, command = "Install it with", GPU_STACK
    if node.under_windows:
        fix, command = "Install NVIDIA's driver on Windows, then end this machine there with wsl --shutdown", ""
    elif installed:
        fix, command = f"{installed} is installed: load it, and look why it was not", "sudo modprobe nvidia"
    where = "Windows has given this machine (WSL) no driver" if node.under_windows else "no driver is loaded"
    summary = f"{where}, and cluster_gpus is {node.request['gpus']}"
    return DRIVER_NOT_LOADED.fail(node.name, summary, fix, command, observed="", expected="a driver")


def _smi_failed(node: str, smi: Mapping[str, Any]) -> Finding:
    said = smi["notes"].splitlines()[0][:200] if smi["notes"] else ""
    means, fix, command = EXITS.get(smi["code"], ("", "Look at the kernel log with", LOG))
    if means:
        what = f"nvidia-smi says that {means} (it ended with {smi['code']}){f': {said}' if said else ''}"
    elif smi["why"]:
        what = f"nvidia-smi failed: {said or smi['why']}"
    elif smi["cut"] is not None:
        what = f"the answer of nvidia-smi ends in the middle, after {smi['cut']} characters"
    else:
        what = f"the answer of nvidia-smi cannot be read: {said or 'it printed nothing that a person could read'}"
    return (SMI_FAILED.fail if smi["why"] else SMI_FAILED.unknown)(
        node,
        what,
        fix,
        command,
        evidence=evidence("nvidia-smi -q -x", smi["notes"] or smi["why"]),
    )


def lost(node: GpuNode) -> Iterator[Said]:
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
    return LOST.fail(
        node.name,
        what,
        observed=f"{plural(len(node.gpus), 'GPU')} can be used" if node.gpus else "",
        expected=plural(int(node.request["gpus"]), "GPU"),
        evidence=evidence(source, seen),
    )


def presence(node: GpuNode) -> Iterator[Said]:
    """Whether there are as many GPUs as the inventory says."""
    facts, wanted = node.facts, int(node.request["gpus"])
    listed = len(node.gpus)
    if facts["smi"]["status"] != "ok":
        return
    if listed < wanted and not any(lost(node)):
        on_bus = f", and {len(facts['bus'])} on the bus" if facts["bus"] else ""
        yield COUNT_DIFFERS.fail(
            node.name,
            f"the driver lists {plural(listed, 'GPU')}{on_bus}; cluster_gpus is {wanted}",
            "Correct cluster_gpus; if one is missing, look for it with",
            LOG,
            observed=str(listed),
            expected=str(wanted),
            evidence=evidence("nvidia-smi -q -x", few([gpu["slot"] for gpu in node.gpus])),
        )
    elif listed > wanted:
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(listed - wanted, 'GPU')} of its {listed} would stay idle: cluster_gpus is {wanted}",
            f"Set cluster_gpus to {listed} to train on all of them",
            observed=str(listed),
            expected=str(wanted),
        )


def mismatch_on_disk(node: GpuNode) -> Iterator[Said]:
    version = node.facts["driver"]
    if node.facts["container"] or node.facts["smi"]["status"] != "ok":
        return
    others = {version["on_disk"], version["library"]} - {"", version["loaded"]}
    if version["loaded"] and others:
        yield DRIVER_MISMATCH.warn(
            node.name,
            f"the driver in the kernel is {version['loaded']}, and {few(sorted(others))} is installed",
            "Reboot the node, before something is started that needs the new one",
            "sudo reboot",
            observed=version["loaded"],
            expected=few(sorted(others)),
        )


def speed(node: GpuNode) -> Iterator[Said]:
    smi = node.facts["smi"]
    kept = all(gpu["persistence"] for gpu in node.gpus)
    if smi["status"] == "ok" and kept and (smi["seconds"] or 0) > SLOW:
        yield SMI_SLOW.warn(
            node.name,
            f"nvidia-smi took {smi['seconds']:.0f} s, though the driver is kept loaded",
            observed=f"{smi['seconds']:.0f} s",
            expected=f"{SLOW:.0f} s",
        )
