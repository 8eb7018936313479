"""The fabric manager, which makes the NVSwitches of a board carry anything, and what each GPU says of its fabric."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from ..verdict.check import Check, skip_all
from ..verdict.finding import evidence
from ..verdict.words import few
from .gpu_node import have

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..verdict.check import Said
    from .gpu_node import GpuNode

START = "sudo systemctl enable --now nvidia-fabricmanager"
# What the log says of faults that a launch meets: strings of nv-fabricmanager 580, and the list of leptonai/gpud.
FAULTS = re.compile(
    r"NVSwitch fatal error|NVLink fatal error|failed to find the GPU handle|"
    r"don't match with (?:any supported system|driver)",
    re.IGNORECASE,
)
# What the parts of a GPU's fabric health say when it is not whole (nvidia-smi's manual, "Fabric").
UNHEALTHY = {
    "summary": ("unhealthy", "limited capacity"),
    "bandwidth": ("degraded",),
    "route_recovery_in_progress": ("true",),
    "route_unhealthy": ("true",),
    "access_timeout_recovery": ("true",),
    "partition_assigned": ("false",),
    "gfm_state": ("disconnected",),
}

INACTIVE = Check(
    "fabric_manager.inactive",
    reads="the unit nvidia-fabricmanager, on a node with NVSwitches",
    fires="it is not active, and the GPUs do not say that their fabric is complete: CUDA then ends with error 802",
    fix=START,
)
VERSION = Check(
    "fabric_manager.version",
    reads="the version of nv-fabricmanager, and of the driver in the kernel",
    fires="they are not the very same: it refuses to work",
    fix="Install the one of the driver, which --tags gpu_stack does, and hold both",
)
STATE = Check(
    "fabric_manager.state",
    reads="the fabric state of each GPU",
    fires="it is not Completed, or its status is not Success",
    fix="Stop the fabric manager, reset all GPUs, start it again, in this order",
)
HEALTH = Check(
    "fabric_manager.health",
    reads="the fabric health of each GPU (drivers since 560)",
    fires="its bandwidth is degraded, a route is broken or being fixed, or it is wrongly configured",
    fix="Look at the log of the fabric manager; on a rack with NVLink between nodes, at nvidia-imex-ctl -N too",
)
IMEX = Check(
    "fabric_manager.imex",
    reads="the unit nvidia-imex, on a node whose GPUs belong to an NVLink cluster of several nodes (their cluster "
    "UUID)",
    fires="it is not active: NCCL then goes over the network, or ends with CUDA error 800",
    fix="sudo systemctl enable --now nvidia-imex, on every node of the NVLink domain",
)
LOG = Check(
    "fabric_manager.log",
    reads="/var/log/fabricmanager.log since its last start, readable by root",
    fires="a fatal error of an NVSwitch or of a link, a GPU that it cannot find, or versions that do not match",
    fix="Stop the fabric manager, reset all GPUs, start it again; if it comes again, have the board looked at",
)
CHECKS = (INACTIVE, VERSION, STATE, HEALTH, IMEX, LOG)


def absent(node: GpuNode) -> Iterator[Said]:
    if not node.facts["nvswitches"] and not any(gpu["fabric"] for gpu in node.gpus):
        yield from skip_all(CHECKS, "there is no NVSwitch here")


def active(node: GpuNode) -> Iterator[Said]:
    if not node.facts["nvswitches"]:
        return
    seen = node.facts["fabric_manager"]
    # A cloud may run it outside of the machine that it lends.
    elsewhere = bool(node.gpus) and all(
        gpu["fabric"] and gpu["fabric"]["state"].lower() == "completed" for gpu in node.gpus
    )
    if elsewhere or (seen and seen["unit"] == "active"):
        return
    what = "is not installed" if seen is None else f"is {seen['unit'] or 'no unit of systemd'}"
    install = seen is None
    yield INACTIVE.fail(
        node.name,
        f"its {node.facts['nvswitches']} NVSwitches need the fabric manager, which {what}: CUDA cannot start",
        "Install it with" if install else "Start it with",
        "ansible-playbook site.yml --tags gpu_stack" if install else START,
        observed=(seen or {}).get("unit", "") or "not there",
        expected="active",
        evidence=evidence("systemctl show nvidia-fabricmanager", f"ActiveState={(seen or {}).get('unit', '')}"),
    )


def version(node: GpuNode) -> Iterator[Said]:
    seen, loaded = node.facts["fabric_manager"], node.facts["driver"]["loaded"]
    if not (node.facts["nvswitches"] and seen and seen["version"] and loaded) or seen["version"] == loaded:
        return
    yield VERSION.fail(
        node.name,
        f"its fabric manager is {seen['version']} and its driver {loaded}: it works with the very same version only",
        "Install the one of the driver with",
        "ansible-playbook site.yml --tags gpu_stack",
        observed=seen["version"],
        expected=loaded,
        evidence=evidence("nv-fabricmanager --version", seen["version"]),
    )


def state(node: GpuNode) -> Iterator[Said]:
    by_state = defaultdict(list)
    for gpu in node.gpus:
        fabric = gpu["fabric"]
        if not fabric or fabric["state"].lower() == "not supported":
            continue
        said = fabric["state"]
        if said.lower() == "completed" and (fabric["status"] or "").lower() not in ("", "success", "nvml_success"):
            said = f"{said}, {fabric['status']}"
        if said.lower() != "completed":
            by_state[said].append(gpu)
    for said, gpus in by_state.items():
        yield STATE.fail(
            node.name,
            f"the fabric of {node.named(gpus)} is: {said}",
            "Stop the fabric manager, reset all GPUs, start it again",
            "sudo systemctl stop nvidia-fabricmanager && sudo nvidia-smi --gpu-reset && "
            "sudo systemctl start nvidia-fabricmanager",
            observed=said,
            expected="Completed, Success",
            evidence=evidence("nvidia-smi -q -x", f"fabric state {said}"),
        )


def health(node: GpuNode) -> Iterator[Said]:
    by_fault = defaultdict(list)
    for gpu in node.gpus:
        for part, value in (gpu["fabric"] or {"health": {}})["health"].items():
            # Of a wrong configuration it says which; what is right, it calls none.
            if part == "incorrect_configuration" or value.lower() in UNHEALTHY.get(part, ()):
                by_fault[f"{part.replace('_', ' ')} {value}"].append(gpu)
    for fault, gpus in by_fault.items():
        yield HEALTH.warn(
            node.name,
            f"the NVLink fabric of {node.named(gpus)} is not whole: {fault}",
            "Look at the fabric manager's log with",
            "sudo tail -n 50 /var/log/fabricmanager.log",
            observed=fault,
            evidence=evidence("nvidia-smi -q -x", fault),
        )


def imex(node: GpuNode) -> Iterator[Said]:
    clustered = [gpu for gpu in node.gpus if gpu["fabric"] and set(gpu["fabric"]["cluster"] or "") - set("0-")]
    if clustered and node.facts["imex"] != "active":
        yield IMEX.warn(
            node.name,
            f"{node.named(clustered)} {have(clustered)} NVLink to other nodes, and nvidia-imex is "
            f"{node.facts['imex'] or 'not there'}: memory cannot be shared over it",
            "Start it on every node of the NVLink domain with",
            "sudo systemctl enable --now nvidia-imex",
            observed=node.facts["imex"],
            expected="active",
        )


def log(node: GpuNode) -> Iterator[Said]:
    seen = node.facts["fabric_manager"]
    faults = [line for line in seen["log"] if FAULTS.search(line)] if seen else []
    if faults:
        yield LOG.fail(
            node.name,
            f"its fabric manager has found a fault since it was started: {faults[-1][:200]}",
            "Stop it, reset all GPUs, start it again; if it comes again, have the board looked at. See",
            "sudo tail -n 50 /var/log/fabricmanager.log",
            evidence=evidence("/var/log/fabricmanager.log", few([line[:300] for line in faults[-3:]])),
        )


RULES = (absent, active, version, state, health, imex, log)
