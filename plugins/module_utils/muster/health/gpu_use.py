"""What the GPUs of a node are doing now: heat, lowered clocks, the link to the bus, and whose processes are there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..launch.unit import LAUNCH_UNITS
from ..verdict.check import Check
from ..verdict.finding import evidence
from ..verdict.words import few, plural
from .gpu_node import duration, have

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from .gpu_node import GpuNode

# Primus takes more than this on a GPU that nobody uses for memory that a dead process left.
HELD_MIB = 1024
# What another process may hold before a job that was made for all of a GPU's memory cannot fit: our own guess.
MOST_OF_THE_MEMORY = 0.5
# The server of the Multi-Process Service; those whom it serves are listed by themselves.
SERVES = ("nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-server")
WHY = {
    "hw_slowdown": "its hardware slows it down",
    "hw_thermal": "it is too hot",
    "power_brake": "the power supply brakes it",
    "sw_thermal": "it is too hot",
}
# Ways of CUDA and of its Multi-Process Service; "O" and "G" are what keeps a display or a driver.
COMPUTES = ("C", "C+G", "M", "M+C")

THROTTLED = Check(
    "gpu.throttled",
    reads="the reasons why clocks are lowered",
    fires="heat, a brake of the power supply, or the hardware's own slowdown is active; the power limit is not counted",
    fix="Look at the cooling and the power supplies of the node",
)
HOT = Check(
    "gpu.hot",
    reads="the distance to the temperature at which clocks are lowered, and that of the memory to its limit",
    fires="none is left",
    fix="Look at the cooling of the node",
)
PCIE_NARROW = Check(
    "gpu.pcie.narrow",
    reads="the width of the PCIe link now",
    fires="fewer lanes than the GPU's like on this node, or than a board with NVLink gives it. Slots that all have "
    "fewer are not reported: the device does not know them",
    fix="Reseat the GPU or its riser",
)
PCIE_SLOW = Check(
    "gpu.pcie.slow",
    reads="the generation of the PCIe link, while the GPU computes",
    fires="it is lower than both ends could, under load; at rest a link is slow to save power, and is not judged",
    fix="Reseat the GPU, and look at the link's setting in the firmware",
)
PROCESS_FOREIGN = Check(
    "gpu.process.foreign",
    reads="the processes that compute on the GPUs",
    fires="one that is no part of a launch: fails when it holds more than half of a GPU's memory, else warns",
    fix="Ask its owner, or end it",
)
MEMORY_HELD = Check(
    "gpu.memory.held",
    reads="the memory in use on GPUs that no process is listed for",
    fires=f"more than {HELD_MIB} MiB: something that ended has left it, or a process in another container holds it",
    fix="End whoever has the device open (sudo fuser -v /dev/nvidia*), or reset the GPU",
)
CHECKS = (THROTTLED, HOT, PCIE_NARROW, PCIE_SLOW, PROCESS_FOREIGN, MEMORY_HELD)


def throttled(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        reasons = [reason for reason in gpu["throttle"] or [] if reason in WHY]
        if reasons:
            why = next((WHY[reason] for reason in reasons if reason != "hw_slowdown"), WHY["hw_slowdown"])
            yield THROTTLED.warn(
                node.name,
                f"the clocks of {node.named([gpu])} are lowered, because {why}",
                "Look at the node's cooling and power, and ask again under load with",
                f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {gpu['index']}",
                observed=", ".join(reasons),
                expected="none",
            )


def hot(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        seen = gpu["temperature"]
        if seen["margin"] is not None and seen["margin"] <= 0:
            what = f"{node.named([gpu])} is at {seen['gpu']:.0f} °C" if seen["gpu"] is not None else node.named([gpu])
            limit = "at which its clocks are lowered"
        elif seen["memory"] is not None and seen["memory_max"] and seen["memory"] >= seen["memory_max"]:
            what, limit = f"the memory of {node.named([gpu])} is at {seen['memory']:.0f} °C", "its limit"
        else:
            continue
        yield HOT.warn(
            node.name,
            f"{what}, {limit}",
            "Look at the node's cooling",
            f"nvidia-smi -q -d TEMPERATURE -i {gpu['index']}",
            observed=f"{seen['gpu']} °C, {seen['margin']} °C left",
        )


def pcie(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        link = gpu["link"]
        if link["width"] and link["width"] < _lanes(node, gpu):
            yield PCIE_NARROW.warn(
                node.name,
                f"{node.named([gpu])} is connected with {link['width']} PCIe lanes, and {_lanes(node, gpu)} are usual",
                "Power the node off and reseat the GPU or its riser; look at the link with",
                f"sudo lspci -vv -s {gpu['slot']} | grep Lnk",
                observed=f"x{link['width']}",
                expected=f"x{_lanes(node, gpu)}",
            )
        busy = gpu["performance"] in ("P0", "P1") and (gpu["utilization"] or 0) > 0
        if busy and link["generation"] and link["generation_max"] and link["generation"] < link["generation_max"]:
            yield PCIE_SLOW.warn(
                node.name,
                f"the PCIe link of {node.named([gpu])} is of generation {link['generation']} under load, "
                f"and {link['generation_max']} is possible",
                observed=str(link["generation"]),
                expected=str(link["generation_max"]),
            )


def _lanes(node: GpuNode, gpu: Mapping[str, Any]) -> int:
    """Return how many lanes a GPU should have: all on a board of the maker's, else as many as its like have here.

    What device and driver could is not what the slot can: clouds lend GPUs with half of it, and many a slot has half.
    """
    model = model_of(gpu["name"])
    if model and model.links:
        return gpu["link"]["width_max"] or 0
    return max(other["link"]["width"] or 0 for other in node.gpus if other["name"] == gpu["name"])


def foreign(node: GpuNode) -> Iterator[Said]:
    """Processes that are no part of a launch; those of a running one are for whoever looks at launches."""
    uses: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for gpu in node.gpus:
        for process in gpu["processes"]:
            if process["type"] in COMPUTES and not (
                process["unit"].startswith(LAUNCH_UNITS) or process["name"] in SERVES
            ):
                uses[process["pid"] or 0].append((gpu, process))
    for pid, where in uses.items():
        _, process = where[0]
        gpus = [gpu for gpu, _ in where]
        shares = [(each["memory"] or 0) / gpu["memory"]["total"] for gpu, each in where if gpu["memory"]["total"]]
        big = max(shares, default=0.0) > MOST_OF_THE_MEMORY
        memory = sum(each["memory"] or 0 for _, each in where)
        unit = f", unit {process['unit']}" if process["unit"] else ""
        who = f"{process['name'] or 'a process'} (PID {pid} of {process['owner'] or 'an unknown user'}{unit})"
        yield (PROCESS_FOREIGN.fail if big else PROCESS_FOREIGN.warn)(
            node.name,
            f"{who} has computed on {node.named(gpus)} for {duration(process['age'])} and holds {memory} MiB there",
            "Ask its owner, or end it with",
            f"sudo kill {pid}",
            observed=f"{memory} MiB",
            expected="no process of others",
            evidence=evidence("nvidia-smi -q -x", f"PID {pid} on {few([gpu['slot'] for gpu in gpus])}"),
        )


def held(node: GpuNode) -> Iterator[Said]:
    stuck = [
        gpu for gpu in node.gpus if not gpu["mig"] and not gpu["processes"] and (gpu["memory"]["used"] or 0) > HELD_MIB
    ]
    if not stuck:
        return
    memory = sum(gpu["memory"]["used"] for gpu in stuck)
    theirs = {f"/dev/nvidia{gpu['minor']}" for gpu in stuck}
    holders = [each for each in node.facts["holders"] if theirs & set(each["devices"])]
    who = few([_who(each) for each in holders])
    whom = "it" if len(stuck) == 1 else "them"
    yield MEMORY_HELD.warn(
        node.name,
        f"{memory} MiB are in use on {node.named(stuck)}, and no process is listed that uses {whom}"
        + (f"; {who} {have(holders)} the device open" if holders else ""),
        f"End {plural(len(holders), 'process')}" if len(holders) == 1 else "See who has it open with",
        f"sudo kill {holders[0]['pid']}" if len(holders) == 1 else "sudo fuser -v /dev/nvidia*",
        observed=f"{memory} MiB",
        expected=f"at most {HELD_MIB} MiB on each",
    )


def _who(each: Mapping[str, Any]) -> str:
    return f"{each['name']} (PID {each['pid']} of {each['owner'] or 'an unknown user'}, {duration(each['age'])} old)"


RULES = (throttled, hot, pcie, foreign, held)
