"""What the GPUs of a node are doing now: heat, lowered clocks, the link to the bus, and whose processes are there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..gpu_info.processes import HELD_MIB, SCREEN_END, SCREEN_HOW, is_screen
from ..gpu_info.values import address
from ..launch.unit import LAUNCH_UNITS
from ..verdict import processes
from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import few
from .gpu_node import duration, have

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .gpu_node import GpuNode

NOBODY = "no process is listed that uses"
# PCI Express base specification: GT/s of a lane.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
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
# Of the ways in a process's type, "M+C+G": CUDA, and its Multi-Process Service. The others keep a display or a driver.
COMPUTES = {"C", "M"}

THROTTLED = Check(
    "gpu.throttled",
    seen="recording",
    reads="the reasons why clocks are lowered",
    fires="heat, a brake of the power supply, or the hardware's own slowdown is active; the power limit is not counted",
    fix="Look at the cooling and the power supplies of the node",
)
HOT = Check(
    "gpu.hot",
    seen="recording",
    reads="the distance to the temperature at which clocks are lowered, and that of the memory to its limit",
    fires="none is left",
    fix="Look at the cooling of the node",
)
PCIE_NARROW = Check(
    "gpu.pcie.narrow",
    seen="recording",
    reads="the width of the PCIe link now, and what the bridge above the GPU can (sysfs)",
    fires="fewer lanes than both the GPU and its slot can. Where the slot is not known, as in a virtual machine: fewer "
    "than the GPU's like on this node, or than a board with NVLink gives it",
    fix="Reseat the GPU or its riser",
)
PCIE_SLOW = Check(
    "gpu.pcie.slow",
    seen="recording",
    reads="the generation of the PCIe link now and the highest that it was set up for, and what GPU and slot can",
    fires="it is set up for less than both ends can; or it is lower than that under load. At rest a link is slow to "
    "save power, and is not judged by what it is now",
    fix="Reseat the GPU, and look at the link's setting in the firmware",
)
PROCESS_FOREIGN = Check(
    "gpu.process.foreign",
    seen="recording",
    reads="the processes that compute on the GPUs",
    fires="one that is no part of a launch: fails when it holds more than half of a GPU's memory, else warns",
    fix="Ask its owner, or end it",
)
MEMORY_HELD = Check(
    "gpu.memory.held",
    seen="recording",
    reads="the memory in use on GPUs, less what is listed of processes",
    fires=f"more than {HELD_MIB} MiB: something that ended has left it, or a process in another container holds it",
    fix="End the process that has the device open (sudo fuser -v /dev/nvidia*), or reset the GPU",
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
                shell("nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i {slot}", slot=address(gpu["slot"])),
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
            shell("nvidia-smi -q -d TEMPERATURE -i {slot}", slot=address(gpu["slot"])),
            observed=f"{seen['gpu']} °C, {seen['margin']} °C left",
        )


def pcie(node: GpuNode) -> Iterator[Said]:
    for gpu in node.gpus:
        yield from _narrow(node, gpu)
        yield from _slow(node, gpu)


def _narrow(node: GpuNode, gpu: Mapping[str, Any]) -> Iterator[Said]:
    width, wanted = gpu["link"]["width"], _lanes(node, gpu)
    if width and width < wanted:
        yield PCIE_NARROW.warn(
            node.name,
            f"{node.named([gpu])} is connected with {width} PCIe lanes, and {_why(node, gpu, wanted)}",
            "Look again while it computes; if it stays so, power the node off and reseat the GPU or its riser. See",
            shell("sudo lspci -vv -s {slot} | grep Lnk", slot=gpu["slot"]),
            observed=f"x{width}",
            expected=f"x{wanted}",
        )


def _lanes(node: GpuNode, gpu: Mapping[str, Any]) -> int:
    """Return how many lanes a GPU should have: what it and its slot can, else all on a board of the maker's, else as
    many as its like have here. Clouds lend GPUs with half of what the device could, and so do many desktops' slots.
    """
    model, most = model_of(gpu["name"]), gpu["link"]["width_max"] or 0
    if slot := _slot(node, gpu)["slot_width"]:
        return int(min(most, slot))
    if model and model.links:
        return int(most)
    return max(other["link"]["width"] or 0 for other in node.gpus if other["name"] == gpu["name"])


def _why(node: GpuNode, gpu: Mapping[str, Any], wanted: int) -> str:
    return f"its slot can do {wanted}" if _slot(node, gpu)["slot_width"] else f"{wanted} are usual"


def _slot(node: GpuNode, gpu: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the bridge above a GPU can; the one of a virtual machine is made up."""
    found = [device["link"] for device in node.facts["bus"] if device["slot"] == gpu["slot"]]
    return found[0] if found and not node.facts["virtual"] else {"slot_width": None, "slot_speed": None}


def _slow(node: GpuNode, gpu: Mapping[str, Any]) -> Iterator[Said]:
    now, most, device = (gpu["link"][name] for name in ("generation", "generation_max", "generation_device"))
    slot = GENERATIONS.get(_slot(node, gpu)["slot_speed"] or 0)
    both = min(device or 0, slot or 0)
    if most and most < both:
        what, seen, wanted = f"is set up for generation {most}, and GPU and slot can do {both}", most, both
    elif _busy(gpu) and now and most and now < most:
        what, seen, wanted = f"is of generation {now} under load, and {most} is possible", now, most
    else:
        return
    summary = f"the PCIe link of {node.named([gpu])} {what}"
    yield PCIE_SLOW.warn(node.name, summary, observed=str(seen), expected=str(wanted))


def _busy(gpu: Mapping[str, Any]) -> bool:
    return gpu["performance"] in ("P0", "P1") and (gpu["utilization"] or 0) > 0


def foreign(node: GpuNode) -> Iterator[Said]:
    """Processes that are no part of a launch; those of a running one are for whoever looks at launches."""
    uses: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for gpu in node.gpus:
        for process in gpu["processes"]:
            if _computes(process) and not (process["unit"].startswith(LAUNCH_UNITS) or process["name"] in SERVES):
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
            *_end(process, pid),
            observed=f"{memory} MiB",
            expected="no process of others",
            evidence=evidence("nvidia-smi -q -x", f"PID {pid} on {few([gpu['slot'] for gpu in gpus])}"),
        )


def _end(process: Mapping[str, Any], pid: int) -> tuple[str, str]:
    if is_screen(process["name"]):
        return SCREEN_HOW, SCREEN_END
    if processes.may_be_stopped(process["unit"]):
        return "Ask its owner, or stop its unit with", shell("sudo systemctl stop {unit}", unit=process["unit"])
    return f"Ask its owner, or end it. {processes.advice([pid], 'sudo kill')}", processes.look([pid])


def _computes(process: Mapping[str, Any]) -> bool:
    return bool(COMPUTES & set(process["type"].split("+")))


def held(node: GpuNode) -> Iterator[Said]:
    stuck = [gpu for gpu in node.gpus if _unlisted(gpu) > HELD_MIB]
    if stuck:
        yield _held(node, stuck, sum(_unlisted(gpu) for gpu in stuck))


def _unlisted(gpu: Mapping[str, Any]) -> int:
    """Return how much memory is in use that no listed process has.

    Of some it is not said how much they have; and who computes may have more than is said (managed memory).
    """
    known = [process["memory"] for process in gpu["processes"]]
    if gpu["mig"] or gpu["memory"]["used"] is None or None in known or any(map(_computes, gpu["processes"])):
        return 0
    return int(gpu["memory"]["used"] - sum(known))


def _held(node: GpuNode, stuck: list[dict[str, Any]], memory: int) -> Finding:
    theirs = {f"/dev/nvidia{gpu['minor']}" for gpu in stuck}
    holders = [each for each in node.facts["holders"] if theirs & set(each["devices"])]
    who = few([_who(each) for each in holders])
    whom = "it" if len(stuck) == 1 else "them"
    fix, command = "See who has it open with", "sudo fuser -v /dev/nvidia*"
    if any(is_screen(each["name"]) for each in holders):
        fix, command = SCREEN_HOW, SCREEN_END
    elif len(holders) == 1:
        pids = [holders[0]["pid"]]
        fix, command = processes.advice(pids, "sudo kill"), processes.look(pids)
    listed = "no process is listed that has them" if any(gpu["processes"] for gpu in stuck) else f"{NOBODY} {whom}"
    return MEMORY_HELD.warn(
        node.name,
        f"{memory} MiB are in use on {node.named(stuck)}, and {listed}"
        + (f"; {who} {have(holders)} the device open" if holders else ""),
        fix,
        command,
        observed=f"{memory} MiB",
        expected=f"at most {HELD_MIB} MiB on each",
    )


def _who(each: Mapping[str, Any]) -> str:
    return f"{each['name']} (PID {each['pid']} of {each['owner'] or 'an unknown user'}, {duration(each['age'])} old)"


RULES = (throttled, hot, pcie, foreign, held)
