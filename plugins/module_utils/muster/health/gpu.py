"""Check that a node's GPUs are present and respond. Other modules make all other checks of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..gpu_info import facts as gpu_facts
from ..inspect.gpus import COUNT_DIFFERS
from ..verdict.check import Check, CheckResults, collect, skip_all
from ..verdict.commands import playbook
from ..verdict.families import family
from ..verdict.finding import Finding, Skipped, evidence
from ..verdict.words import few, plural
from . import fabric_manager, gpu_memory, gpu_peers, gpu_readings, gpu_settings, gpu_use, nvlink
from .gpu_node import GpuNode
from .gpu_readings import apart, unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..verdict.check import Said

# Drivers respond within a second when they stay loaded; Primus and azurehpc-health-checks take a slow response as a
# sign of a stuck driver. Without persistence the first query initialises the GPUs, which takes seconds for each.
SLOW = 10.0
GPU_STACK = playbook("site.yml", tags="gpu_stack")
LOG = "sudo dmesg | grep -iE 'nvrm|xid|pcie'"
# nvidia-smi's manual, "Return Value": the meaning of its exit status, and the fix. For other statuses, such as 255
# (another error), only the kernel log can give the cause.
EXITS = {
    3: ("the GPU or driver does not support the query", "Install the driver that the GPU requires with", GPU_STACK),
    4: ("permission is denied", "Check the permissions of the device files with", "ls -l /dev/nvidia*"),
    8: ("a GPU's power cables are not attached", "Power off the node and check the cables. Show the log with", LOG),
    9: ("the loaded driver does not respond", "Reboot the node, but first save the kernel log with", LOG),
    10: ("the kernel has an interrupt problem with a GPU", "Reboot the node, but first save the kernel log with", LOG),
    12: ("the driver's library is missing", "Install the library with", GPU_STACK),
    13: ("the driver's library is too old for nvidia-smi", "Install matching versions with", GPU_STACK),
    14: ("the infoROM of a GPU is corrupt", "Have the GPU inspected. Show the log with", LOG),
    15: ("a GPU has fallen off the bus", "Power-cycle the node, but first save the kernel log with", LOG),
}

HEALTH = Check(
    "gpu.health",
    seen="recording",
    reads="every other check of the node's GPUs, its NVLinks and its fabric manager",
    fires="never: passes if none of these checks finds a problem, otherwise not reported",
)
LOST = Check(
    "gpu.lost",
    seen="recording",
    reads="the PCI bus in /sys, and the GPUs that nvidia-smi lists",
    fires="fail: the driver does not list or cannot read a GPU on the bus, or the bus returns only ones for a GPU",
    fix="Power-cycle the node, but first save the kernel log with",
    command=LOG,
)
UNSUPPORTED = Check(
    "gpu.driver.unsupported",
    seen="stand-in",
    reads="the kernel log, if the driver does not list a GPU that is on the bus",
    fires="fail: the loaded driver does not support the GPU, or the GPU requires the open kernel modules",
    fix="Install a driver that supports the GPU with",
    command=GPU_STACK,
)
DRIVER_NOT_LOADED = Check(
    "gpu.driver.not_loaded",
    seen="stand-in",
    reads="/sys/module/nvidia and /proc/driver/nvidia",
    fires="fail: cluster_gpus is not 0, but no driver is loaded (under WSL: Windows provides no driver)",
    fix=f"Install the driver with {GPU_STACK}, and reboot if requested. Under WSL, install the driver on Windows",
)
DRIVER_MISMATCH = Check(
    "gpu.driver.mismatch",
    seen="stand-in",
    reads="the versions of the loaded kernel module, of libnvidia-ml and of the module on disk",
    fires="fail: the loaded module and the library have different versions, so CUDA cannot start. warn: only the "
    "module on disk, which the next boot loads, has another version",
    fix="Reboot the node",
)
SMI_MISSING = Check(
    "gpu.smi.missing",
    seen="stand-in",
    reads="nvidia-smi",
    fires="unknown: the driver is loaded, but nvidia-smi is not installed, so the GPUs cannot be checked",
    fix="Install nvidia-smi with",
    command=GPU_STACK,
)
SMI_HANGS = Check(
    "gpu.smi.hangs",
    seen="stand-in",
    reads="the run time of nvidia-smi",
    fires="fail: nvidia-smi does not respond within 30 s (typical of a lost GPU or a stuck driver). unknown: only "
    "its queries of the topology or of NVLink do not respond",
    fix="Reboot the node, but first save the kernel log (Xid messages) with",
    command=LOG,
)
SMI_SLOW = Check(
    "gpu.smi.slow",
    seen="stand-in",
    reads="the run time of nvidia-smi",
    fires="warn: nvidia-smi takes more than 10 s although persistence mode is on",
    fix="A GPU that responds slowly is often about to fail. Check for Xid messages with",
    command=LOG,
)
SMI_FAILED = Check(
    "gpu.smi.failed",
    seen="stand-in",
    reads="the exit status and the output of nvidia-smi",
    fires="fail: nvidia-smi failed. unknown: the output of nvidia-smi cannot be parsed",
    fix="Run nvidia-smi on the node to see the cause",
)
# These checks require GPUs that respond.
PARTS = (gpu_memory, gpu_settings, gpu_peers, gpu_readings, gpu_use, nvlink, fabric_manager)
OF_LISTED = tuple(check for part in PARTS for check in part.CHECKS)
CHECKS = (
    *(HEALTH, LOST, COUNT_DIFFERS, UNSUPPORTED),
    *(DRIVER_NOT_LOADED, DRIVER_MISMATCH, SMI_MISSING, SMI_HANGS, SMI_SLOW, SMI_FAILED),
    *OF_LISTED,
)
LOOKS = ("gpu",)
# The checks that `gpu.health` summarises.
FAMILIES = ("gpu", "nvlink", "fabric_manager")


def facts_of(looks: Mapping[str, Any], _: Mapping[str, Any]) -> dict[str, Any]:
    return gpu_facts.facts(looks["gpu"])


def judge(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[Said]:
    """Yield all findings about the node's GPUs, and the skipped checks.

    facts["gpu"]: the result of gpu_info.facts.facts. request: at least the keys node, gpus and nproc.
    """
    facts, log = facts["gpu"], facts.get("kernel_log", {})
    node = GpuNode(facts, request)
    if not request["gpus"]:
        seen = len(facts["gpus"]) or len(facts["bus"])
        why = f"cluster_gpus is 0, so {plural(seen, 'GPU')} will not be used" if seen else "cluster_gpus is 0"
        yield from skip_all(CHECKS, why)
        return
    refused = _refused(facts, log.get("lines", ()))
    if refused:
        which = f"GPU{'' if len(refused) == 1 else 's'} at {few([*refused])}"
        summary = f"the loaded driver does not support the {which}"
        if any("requires use of" in said for said in refused.values()):
            summary += ": the proprietary kernel modules are loaded, but open ones are required"
        yield UNSUPPORTED.fail(node.name, summary, evidence=evidence("kernel log", few([*refused.values()])))
        node = GpuNode({**facts, "missing": [slot for slot in facts["missing"] if slot not in refused]}, request)
    elif facts["missing"] and log.get("why"):
        yield UNSUPPORTED.skip(log["why"])
    rules = [driver, lost, *([] if refused else [presence]), mismatch_on_disk, speed]
    if node.gpus:
        rules += [rule for part in PARTS for rule in part.RULES]
    else:
        yield from skip_all(OF_LISTED, "no GPU responded")
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
    """Yield a `pass` of gpu.health if no subject reported a GPU fault. Other subjects, such as the kernel log, report
    GPU faults as well."""
    if "gpu" not in facts or HEALTH.id in {one["id"] for one in judged.skipped}:
        return
    against = [one for one in judged.findings if one.status != "pass" and family(one.id) in FAMILIES]
    gpus = GpuNode(facts["gpu"], request).gpus
    if gpus and not against:
        names = few(sorted({str(gpu["name"]) for gpu in gpus}))
        yield HEALTH.passed(request["node"], f"{plural(len(gpus), 'GPU')} ({names}): no faults found")


def _refused(facts: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the messages in which the loaded driver refuses GPUs that it does not list, by slot."""
    found: dict[str, str] = {}
    for line in lines:
        if line["kind"] == "loaded":
            found = {}
        elif line["kind"] == "unsupported":
            named = line["which"][0]
            found |= {slot: line["text"] for slot in facts["missing"] or [] if named in (slot, None)}
    return found


def driver(node: GpuNode) -> Iterator[Said]:
    smi, version = node.facts["smi"], node.facts["driver"]
    status = smi["status"]
    if status == "not_run" or (status == "no_driver" and not version["loaded"]):
        yield _no_driver(node)
    elif status == "mismatch":
        library = f"version {version['library']}" if version["library"] else "another version"
        yield DRIVER_MISMATCH.fail(
            node.name,
            f"the loaded driver has version {version['loaded']}, but its library has {library}, so CUDA cannot start",
            "An update has replaced the files of the loaded driver. Reboot the node with",
            "sudo reboot",
            observed=version["loaded"],
            expected=version["library"],
            evidence=evidence("nvidia-smi", smi["notes"]),
        )
    elif status == "hangs":
        yield SMI_HANGS.fail(
            node.name,
            f"{smi['why']}: the driver is waiting for a GPU",
            observed=f"{smi['seconds']:.0f} s",
            expected="a response",
            evidence=evidence("nvidia-smi -q -x", smi["why"]),
        )
    elif smi["hung"]:
        names = few([name.replace("_", " ") for name in smi["hung"]])
        yield SMI_HANGS.unknown(
            node.name, f"nvidia-smi does not respond to queries ({names}): a GPU or the driver hangs"
        )
    elif status == "missing":
        summary = f"the driver {version['loaded']} is loaded, but nvidia-smi is missing, so the GPUs cannot be checked"
        yield SMI_MISSING.unknown(
            node.name,
            summary,
        )
    elif status in ("failed", "unreadable", "no_driver") and not (smi["lost"] or smi["lost_slots"]):
        yield _smi_failed(node.name, smi)


def _no_driver(node: GpuNode) -> Finding:
    installed = node.facts["driver"]["on_disk"]
    fix, command = "Install the driver with", GPU_STACK
    if node.under_windows:
        fix, command = "Install NVIDIA's driver on Windows, then run wsl --shutdown there", ""
    elif installed:
        fix, command = f"The driver {installed} is installed but not loaded. Load it with", "sudo modprobe nvidia"
    where = "Windows provides no driver to WSL" if node.under_windows else "no NVIDIA driver is loaded"
    summary = f"{where}, but cluster_gpus is {node.request['gpus']}"
    return DRIVER_NOT_LOADED.fail(node.name, summary, fix, command, observed="", expected="a driver")


def _smi_failed(node: str, smi: Mapping[str, Any]) -> Finding:
    said = smi["notes"].splitlines()[0][:200] if smi["notes"] else ""
    means, fix, command = EXITS.get(smi["code"], ("", "Check the kernel log with", LOG))
    if means:
        what = f"nvidia-smi reports that {means} (exit status {smi['code']}){f': {said}' if said else ''}"
    elif smi["why"]:
        what = f"nvidia-smi failed: {said or smi['why']}"
    elif smi["cut"] is not None:
        what = f"the output of nvidia-smi is truncated after {smi['cut']} characters"
    else:
        what = f"the output of nvidia-smi cannot be parsed: {said or 'no readable text'}"
    return (SMI_FAILED.fail if smi["why"] else SMI_FAILED.unknown)(
        node,
        what,
        fix,
        command,
        evidence=evidence("nvidia-smi -q -x", smi["notes"] or smi["why"]),
    )


def lost(node: GpuNode) -> Iterator[Said]:
    """Report GPUs that are present but that the bus or the driver cannot reach."""
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
            how = "no response on the bus" if gone[0] in silent else f"the driver cannot reach {whom}"
            yield _lost(node, f"{what} lost: {how}", f"/sys/bus/pci/devices/{gone[0]}", how)
    if said and not slots:
        what = f"GPU {said[0]}" if len(said) == 1 else f"GPUs {few([str(number) for number in said])}"
        yield _lost(node, f"the driver has lost {what}", "nvidia-smi -q -x", facts["smi"]["notes"])


def _lost(node: GpuNode, what: str, source: str, seen: str) -> Finding:
    return LOST.fail(
        node.name,
        what,
        observed=f"{plural(len(node.gpus), 'GPU')} usable" if node.gpus else "",
        expected=plural(int(node.request["gpus"]), "GPU"),
        evidence=evidence(source, seen),
    )


def presence(node: GpuNode) -> Iterator[Said]:
    """Compare the number of GPUs with the number in the inventory."""
    facts, wanted = node.facts, int(node.request["gpus"])
    listed = len(node.gpus)
    if facts["smi"]["status"] != "ok":
        return
    if listed < wanted and not any(lost(node)):
        on_bus = f" ({len(facts['bus'])} on the bus)" if facts["bus"] else ""
        yield COUNT_DIFFERS.fail(
            node.name,
            f"the driver lists {plural(listed, 'GPU')}{on_bus}, but cluster_gpus is {wanted}",
            "Correct cluster_gpus. If a GPU is missing, check the kernel log with",
            LOG,
            observed=str(listed),
            expected=str(wanted),
            evidence=evidence("nvidia-smi -q -x", few([gpu["slot"] for gpu in node.gpus])),
        )
    elif listed > wanted:
        yield COUNT_DIFFERS.warn(
            node.name,
            f"{plural(listed - wanted, 'GPU')} of {listed} will not be used, because cluster_gpus is {wanted}",
            f"Set cluster_gpus to {listed} to use all GPUs",
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
            f"the loaded driver has version {version['loaded']}, but {few(sorted(others))} is installed",
            "Before you start a program that requires the new driver, reboot the node with",
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
            f"nvidia-smi took {smi['seconds']:.0f} s although persistence mode is on",
            observed=f"{smi['seconds']:.0f} s",
            expected=f"{SLOW:.0f} s",
        )
