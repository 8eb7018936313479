"""The fabric manager, which makes the NVSwitches of a board carry anything, and what each GPU says of its fabric."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..verdict.check import Check, skip_all
from ..verdict.commands import playbook
from ..verdict.finding import evidence
from ..verdict.words import few
from .gpu_node import have

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .gpu_node import GpuNode

GPU_STACK = playbook("site.yml", tags="gpu_stack")
START = "sudo systemctl enable --now nvidia-fabricmanager"
# What the log says of faults that a launch meets: strings of nv-fabricmanager 580, and the list of leptonai/gpud.
FAULTS = re.compile(
    r"NVSwitch fatal error|NVLink fatal error|failed to find the GPU handle|"
    r"don't match with (?:any supported system|driver)",
    re.IGNORECASE,
)
# What the parts of a GPU's fabric health say when it is not whole (nvidia-smi's manual, "Fabric"). With the first, GPUs
# do not reach each other as they should; with the others they do, slower or by another way.
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
# Of a wrong configuration it says which: no partition, an invalid location, too few NVLinks; it calls a right one none.
CONFIGURATION = "incorrect_configuration"
# Boards whose NVLinks belong to a rack: the fabric manager runs on its switch trays (NVIDIA's multi-node NVLink guide).
OF_A_RACK = ("NVIDIA GB200", "NVIDIA GB300")
RESET = "sudo nvidia-smi --gpu-reset"
RESTART = f"sudo systemctl stop nvidia-fabricmanager && {RESET} && sudo systemctl start nvidia-fabricmanager"

INACTIVE = Check(
    "fabric_manager.inactive",
    seen="stand-in",
    reads="the unit nvidia-fabricmanager, on a node with NVSwitches on its bus, or whose GPUs say that they wait for a "
    "fabric: the boards of B200 and B300 hide their switches",
    fires="it is not active, and the GPUs do not say that their fabric is complete: CUDA then ends with error 802. "
    "Skipped on trays of a rack, whose switches have their own",
    fix=START,
)
VERSION = Check(
    "fabric_manager.version",
    seen="stand-in",
    reads="the version of nv-fabricmanager, and of the driver in the kernel",
    fires="they are not the very same: it refuses to work",
    fix=f"Install the one of the driver, which {GPU_STACK} does, and hold both",
)
STATE = Check(
    "fabric_manager.state",
    seen="recording",
    reads="the fabric state of each GPU",
    fires="it is not Completed, or its status is not Success",
    fix="Stop the fabric manager, reset all GPUs, start it again, in this order",
)
HEALTH = Check(
    "fabric_manager.health",
    seen="recording",
    reads="the fabric health of each GPU (drivers since 560)",
    fires="fail: it is unhealthy, a route is broken, it has no partition, or is wrongly configured. warn: its "
    "bandwidth is degraded, a route is being fixed, or its manager is away",
    fix="Stop the fabric manager, reset all GPUs, start it again; on a tray of a rack, have whoever runs its switches "
    "look at the partition",
)
IMEX = Check(
    "fabric_manager.imex",
    seen="recording",
    reads="the unit nvidia-imex, on a node whose GPUs belong to an NVLink cluster of several nodes (their cluster "
    "UUID)",
    fires="it is not active: NCCL then goes over the network, or ends with CUDA error 800",
    fix="Start it on every node of the NVLink domain with",
    command="sudo systemctl enable --now nvidia-imex",
)
LOG = Check(
    "fabric_manager.log",
    seen="stand-in",
    reads="/var/log/fabricmanager.log since its last start, readable by root",
    fires="a fatal error of an NVSwitch or of a link, a GPU that it cannot find, or versions that do not match",
    fix="Stop the fabric manager, reset all GPUs, start it again; if it comes again, have the board looked at",
)
CHECKS = (INACTIVE, VERSION, STATE, HEALTH, IMEX, LOG)


def absent(node: GpuNode) -> Iterator[Said]:
    if not node.facts["nvswitches"] and not any(gpu["fabric"] for gpu in node.gpus):
        yield from skip_all(CHECKS, "there is no NVSwitch here")
    elif _of_a_rack(node):
        yield from skip_all((INACTIVE, VERSION, LOG), "the fabric manager of a rack runs on its switch trays")


def _of_a_rack(node: GpuNode) -> bool:
    return any((gpu["name"] or "").startswith(OF_A_RACK) or _clustered(gpu) for gpu in node.gpus)


def _clustered(gpu: Mapping[str, Any]) -> bool:
    """Whether its fabric reaches other nodes: a cluster of zeros is none."""
    return bool(gpu["fabric"] and set(gpu["fabric"]["cluster"] or "") - set("0-"))


def _done(gpu: Mapping[str, Any]) -> bool:
    return bool(gpu["fabric"]) and gpu["fabric"]["state"].lower() == "completed"


def _waits(gpu: Mapping[str, Any]) -> bool:
    """Whether it says that there is a fabric which it has not joined."""
    return bool(gpu["fabric"]) and gpu["fabric"]["state"].lower() in ("not started", "in progress")


def _runs(node: GpuNode) -> bool:
    seen = node.facts["fabric_manager"]
    return bool(seen and seen["unit"] == "active")


def active(node: GpuNode) -> Iterator[Said]:
    switches = node.facts["nvswitches"]
    if _of_a_rack(node) or not (switches or any(_waits(gpu) for gpu in node.gpus)):
        return
    # A cloud may run it outside of the machine that it lends.
    elsewhere = bool(node.gpus) and all(_done(gpu) for gpu in node.gpus)
    if elsewhere or _runs(node):
        return
    seen = node.facts["fabric_manager"]
    what = "is not installed" if seen is None else f"is {seen['unit'] or 'no unit of systemd'}"
    who = f"its {switches} NVSwitches need" if switches else f"the NVLinks of {node.named(node.gpus)} need"
    outside = "" if switches else " if the machine is not one whose provider runs it outside"
    install = seen is None
    yield INACTIVE.fail(
        node.name,
        f"{who} the fabric manager, which {what}: CUDA cannot start",
        f"{'Install' if install else 'Start'} it{outside} with",
        GPU_STACK if install else START,
        observed=(seen or {}).get("unit", "") or "not there",
        expected="active",
        evidence=evidence("systemctl show nvidia-fabricmanager", f"ActiveState={(seen or {}).get('unit', '')}"),
    )


def version(node: GpuNode) -> Iterator[Said]:
    """Whether it fits the driver; one that is installed and not needed may be of any version."""
    seen, loaded = node.facts["fabric_manager"], node.facts["driver"]["loaded"]
    needed = node.facts["nvswitches"] or (_runs(node) and any(gpu["fabric"] for gpu in node.gpus))
    if _of_a_rack(node) or not (needed and seen and seen["version"] and loaded) or seen["version"] == loaded:
        return
    yield VERSION.fail(
        node.name,
        f"its fabric manager is {seen['version']} and its driver {loaded}: it works with the very same version only",
        "Install the one of the driver with",
        GPU_STACK,
        observed=seen["version"],
        expected=loaded,
        evidence=evidence("nv-fabricmanager --version", seen["version"]),
    )


def state(node: GpuNode) -> Iterator[Said]:
    if any(active(node)):
        yield STATE.skip("the fabric manager does not run, and that is reported")
        return
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
            *_way_out(node),
            observed=said,
            expected="Completed, Success",
            evidence=evidence("nvidia-smi -q -x", f"fabric state {said}"),
        )


def _way_out(node: GpuNode) -> tuple[str, str]:
    """What fixes a fabric, with what is there."""
    if _of_a_rack(node):
        return "Have whoever runs the rack's switches look at its partition; on the node, reset its GPUs with", RESET
    if _runs(node):
        return "Stop the fabric manager, reset all GPUs, start it again", RESTART
    return (
        "Reset all GPUs; if that does not help, ask whoever runs the fabric manager, which is not on this node",
        RESET,
    )


def health(node: GpuNode) -> Iterator[Said]:
    """One finding, of what is worst: the summary is only there for what it does not say itself."""
    broken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    less: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for gpu in node.gpus:
        parts = (gpu["fabric"] or {"health": {}})["health"]
        for part, value in parts.items():
            what = f"{part.replace('_', ' ')} {value}"
            if part == CONFIGURATION or value.lower() in BROKEN.get(part, ()):
                broken[what].append(gpu)
            elif value.lower() in LESS.get(part, ()):
                less[what].append(gpu)
    faults = {**broken, **less}
    exact = {what: gpus for what, gpus in faults.items() if not what.startswith("summary ")} or faults
    if not faults:
        return
    shown = "; ".join(f"{what} of {node.named(gpus)}" for what, gpus in exact.items())
    yield (HEALTH.fail if broken else HEALTH.warn)(
        node.name,
        f"the NVLink fabric is not whole: {shown}",
        *_way_out(node),
        observed=", ".join(exact),
        expected="Healthy",
        evidence=evidence("nvidia-smi -q -x", ", ".join(faults)),
    )


def imex(node: GpuNode) -> Iterator[Said]:
    clustered = [gpu for gpu in node.gpus if _clustered(gpu)]
    if clustered and node.facts["imex"] != "active":
        yield IMEX.warn(
            node.name,
            f"{node.named(clustered)} {have(clustered)} NVLink to other nodes, and nvidia-imex is "
            f"{node.facts['imex'] or 'not there'}: memory cannot be shared over it",
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
