"""The fabric manager, which NVSwitches require to carry traffic, and the fabric state of each GPU."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook
from ..verdict.finding import evidence
from ..verdict.words import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .gpu_node import Gpu, GpuNode

GPU_STACK = playbook("site.yml", tags="gpu_stack")
START = "sudo systemctl enable --now nvidia-fabricmanager"
# Log lines of faults that affect a launch: strings of nv-fabricmanager 580, and the list of leptonai/gpud.
FAULTS = re.compile(
    r"NVSwitch fatal error|NVLink fatal error|failed to find the GPU handle|"
    r"don't match with (?:any supported system|driver)",
    re.IGNORECASE,
)
# Values of a GPU's fabric health that report a fault (nvidia-smi's manual, "Fabric"). With BROKEN, GPUs cannot reach
# each other over the fabric; with LESS they can, but slower or over another route.
BROKEN = {
    "summary": ("unhealthy",),
    "route_unhealthy": ("true",),
    "partition_assigned": ("false",),
}
LESS = {
    "summary": ("limited capacity",),
    "bandwidth": ("degraded",),
    "route_recovery_in_progress": ("true",),
    "access_timeout_recovery": ("true",),
    "gfm_state": ("disconnected",),
}
# Values without a fault, also of parts that newer drivers may add. All other values are unknown.
USUAL = ("healthy", "full", "false", "none", "connected", "not supported")
# Its value is the kind of wrong configuration (no partition, invalid location, too few NVLinks), or "none".
CONFIGURATION = "incorrect_configuration"
# Boards of rack-scale NVLink: the fabric manager runs on the switch trays (NVIDIA's multi-node NVLink guide).
OF_A_RACK = ("NVIDIA GB200", "NVIDIA GB300")
RESET = "sudo nvidia-smi --gpu-reset"
# The fabric manager must run again even if a GPU in use refuses the reset.
RESTART = f"sudo systemctl stop nvidia-fabricmanager && {RESET}; sudo systemctl start nvidia-fabricmanager"

INACTIVE = Check(
    "fabric_manager.inactive",
    seen="stand-in",
    reads="the unit nvidia-fabricmanager, on nodes with NVSwitches on the bus or with GPUs that wait for a fabric "
    "(the NVSwitches of B200 and B300 boards are not visible on the bus)",
    fires="fail: the unit is not active and the GPUs do not report a complete fabric, so CUDA fails with error 802. "
    "Skipped on rack-scale systems, where the fabric manager runs on the switch trays",
    fix=START,
)
VERSION = Check(
    "fabric_manager.version",
    seen="stand-in",
    reads="the versions of nv-fabricmanager and of the loaded driver",
    fires="fail: the versions differ, so the fabric manager does not start",
    fix=f"Install matching versions with {GPU_STACK}, and put both packages on hold",
)
STATE = Check(
    "fabric_manager.state",
    seen="recording",
    reads="the fabric state of each GPU",
    fires="fail: the state is not Completed, or the status is not Success",
    fix="Stop the fabric manager, reset all GPUs, and start the fabric manager again, in this order",
)
HEALTH = Check(
    "fabric_manager.health",
    seen="recording",
    reads="the fabric health of each GPU (drivers since 560)",
    fires="fail: the fabric is unhealthy, a route is broken, no partition is assigned, or the configuration is wrong. "
    "warn: the bandwidth is degraded, a route is being recovered, or the fabric manager is disconnected. unknown: a "
    "part of the health or its value is unknown",
    fix="Stop the fabric manager, reset all GPUs, and start the fabric manager again. On rack-scale systems, ask the "
    "administrator of the switches to check the partition",
)
IMEX = Check(
    "fabric_manager.imex",
    seen="recording",
    reads="the unit nvidia-imex, on nodes whose GPUs share an NVLink domain with other nodes (cluster UUID)",
    fires="warn: the unit is not active, so NCCL uses the network instead of NVLink, or fails with CUDA error 800",
    fix="Start the unit on every node of the NVLink domain with",
    command="sudo systemctl enable --now nvidia-imex",
)
LOG = Check(
    "fabric_manager.log",
    seen="stand-in",
    reads="/var/log/fabricmanager.log since the fabric manager's last start (root only)",
    fires="fail: the log reports a fatal error of an NVSwitch or NVLink, a missing GPU, or mismatched versions",
    fix="Restart the fabric manager and reset all GPUs. If the fault recurs, have the board inspected",
)
CHECKS = (INACTIVE, VERSION, STATE, HEALTH, IMEX, LOG)


def absent(node: GpuNode) -> Iterator[Said]:
    if not node.facts["nvswitches"] and not any(gpu["fabric"] for gpu in node.gpus):
        yield from skip_all(CHECKS, "the node has no NVSwitch")
    elif _of_a_rack(node):
        yield from skip_all((INACTIVE, VERSION, LOG), "on rack systems, the fabric manager runs on the switch trays")


def _of_a_rack(node: GpuNode) -> bool:
    return any((gpu["name"] or "").startswith(OF_A_RACK) or _clustered(gpu) for gpu in node.gpus)


def _clustered(gpu: Mapping[str, Any]) -> bool:
    """Return whether the GPU's fabric spans several nodes. A cluster UUID of zeros means that it does not."""
    return bool(gpu["fabric"] and set(gpu["fabric"]["cluster"] or "") - set("0-"))


def _done(gpu: Mapping[str, Any]) -> bool:
    return bool(gpu["fabric"]) and gpu["fabric"]["state"].lower() == "completed"


def _waits(gpu: Mapping[str, Any]) -> bool:
    """Return whether the GPU has not yet joined the fabric that it reports."""
    return bool(gpu["fabric"]) and gpu["fabric"]["state"].lower() in ("not started", "in progress")


def _runs(node: GpuNode) -> bool:
    seen = node.facts["fabric_manager"]
    return bool(seen and seen["unit"] == "active")


def active(node: GpuNode) -> Iterator[Said]:
    switches = node.facts["nvswitches"]
    if _of_a_rack(node) or not (switches or any(_waits(gpu) for gpu in node.gpus)):
        return
    # A cloud provider may run the fabric manager outside the virtual machine.
    elsewhere = bool(node.gpus) and all(_done(gpu) for gpu in node.gpus)
    if elsewhere or _runs(node):
        return
    seen = node.facts["fabric_manager"]
    what = "is not installed" if seen is None else f"is {seen['unit'] or 'not a systemd unit'}"
    who = f"{switches} NVSwitches" if switches else f"the NVLinks of {node.named(node.gpus)}"
    outside = "" if switches else ", unless the cloud provider runs it outside this machine,"
    summary = f"{who} require the fabric manager, which {what}, so CUDA cannot start"
    fix = f"{'Install' if seen is None else 'Start'} the fabric manager{outside} with"
    state = (seen or {}).get("unit", "")
    said = evidence("systemctl show nvidia-fabricmanager", f"ActiveState={state}")
    shown = {"observed": state or "not installed", "expected": "active", "evidence": said}
    yield INACTIVE.fail(node.name, summary, fix, GPU_STACK if seen is None else START, **shown)


def version(node: GpuNode) -> Iterator[Said]:
    """Compare the version of the fabric manager with the driver's version, if the node needs the fabric manager."""
    seen, loaded = node.facts["fabric_manager"], node.facts["driver"]["loaded"]
    needed = node.facts["nvswitches"] or (_runs(node) and any(gpu["fabric"] for gpu in node.gpus))
    if _of_a_rack(node) or not (needed and seen and seen["version"] and loaded) or seen["version"] == loaded:
        return
    summary = f"the fabric manager has version {seen['version']}, but the driver has version {loaded}"
    fix = "The versions must be identical. Install matching versions with", GPU_STACK
    said = evidence("nv-fabricmanager --version", seen["version"])
    yield VERSION.fail(node.name, summary, *fix, observed=seen["version"], expected=loaded, evidence=said)


def state(node: GpuNode) -> Iterator[Said]:
    if any(active(node)):
        yield STATE.skip("the fabric manager is not running (see fabric_manager.inactive)")
        return
    for said, gpus in node.by(_unfinished).items():
        summary = f"the fabric state of {node.named(gpus)} is: {said}"
        shown = {"observed": said, "expected": "Completed, Success"}
        yield STATE.fail(
            node.name, summary, *_way_out(node), **shown, evidence=evidence("nvidia-smi -q -x", f"fabric state {said}")
        )


def _unfinished(gpu: Gpu) -> str:
    """Return the fabric state of a GPU that has not joined its fabric."""
    said = gpu["fabric"]["state"] if gpu["fabric"] else ""
    if said.lower() == "completed" and (gpu["fabric"]["status"] or "").lower() not in ("", "success", "nvml_success"):
        return f"{said}, {gpu['fabric']['status']}"
    return "" if said.lower() in ("completed", "not supported") else said


def _way_out(node: GpuNode) -> tuple[str, str]:
    """Return the fix for a faulty fabric, and the command of the fix."""
    if _of_a_rack(node):
        return "Ask the administrator of the rack's switches to check the partition. Reset the node's GPUs with", RESET
    if _runs(node):
        return "Stop the fabric manager, reset all GPUs, and start the fabric manager again with", RESTART
    return (
        "If a reset does not help, ask the provider of the fabric manager. Reset all GPUs with",
        RESET,
    )


def health(node: GpuNode) -> Iterator[Said]:
    """Yield one finding with all faults. The part "summary" is shown only if no other part has a fault."""
    found: dict[str, dict[str, list[Gpu]]] = {kind: defaultdict(list) for kind in ("broken", "less", "unknown")}
    for gpu in node.gpus:
        for part, value in (gpu["fabric"] or {"health": {}})["health"].items():
            if kind := _fault(part, value.lower()):
                found[kind][f"{part.replace('_', ' ')} {value}"].append(gpu)
    if new := found["unknown"]:
        shown = "; ".join(f"{what} on {node.named(gpus)}" for what, gpus in new.items())
        fix = ("Show the details with", "nvidia-smi -q")
        yield HEALTH.unknown(node.name, f"the NVLink fabric has unknown states: {shown}", *fix, observed=", ".join(new))
    faults = {**found["broken"], **found["less"]}
    if not faults:
        return
    exact = {what: gpus for what, gpus in faults.items() if not what.startswith("summary ")} or faults
    shown = "; ".join(f"{what} on {node.named(gpus)}" for what, gpus in exact.items())
    report = HEALTH.fail if found["broken"] else HEALTH.warn
    said = evidence("nvidia-smi -q -x", ", ".join(faults))
    seen = {"observed": ", ".join(exact), "expected": "Healthy"}
    yield report(node.name, f"the NVLink fabric has faults: {shown}", *_way_out(node), **seen, evidence=said)


def _fault(part: str, value: str) -> str:
    if part == CONFIGURATION or value in BROKEN.get(part, ()):
        return "broken"
    usual = value in USUAL or (part, value) == ("partition_assigned", "true")
    return "less" if value in LESS.get(part, ()) else "" if usual else "unknown"


def imex(node: GpuNode) -> Iterator[Said]:
    for clustered in node.by(_clustered).values() if node.facts["imex"] != "active" else ():
        there = node.facts["imex"] or "not installed"
        summary = (
            f"{node.have(clustered)} NVLink to other nodes, but nvidia-imex is {there}, so memory cannot be shared "
        )
        yield IMEX.warn(node.name, f"{summary}over NVLink", observed=node.facts["imex"], expected="active")


def log(node: GpuNode) -> Iterator[Said]:
    seen = node.facts["fabric_manager"]
    faults = [line for line in seen["log"] if FAULTS.search(line)] if seen else []
    if faults:
        summary = f"the fabric manager has logged a fault since its start: {faults[-1][:200]}"
        fix = "Restart the fabric manager and reset all GPUs. If the fault recurs, replace the board. Show the log with"
        said = evidence("/var/log/fabricmanager.log", few([line[:300] for line in faults[-3:]]))
        yield LOG.fail(node.name, summary, fix, "sudo tail -n 50 /var/log/fabricmanager.log", evidence=said)


RULES = (absent, active, version, state, health, imex, log)
