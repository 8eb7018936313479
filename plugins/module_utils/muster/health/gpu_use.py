"""Check a node's GPUs for heat, throttling, slow PCIe links, processes outside launches, and memory left in use."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..gpu_info.models import model_of
from ..gpu_info.processes import HELD_MIB, SCREEN_END, SCREEN_HOW, is_screen, keeps_ready
from ..launch.unit import LAUNCH_UNITS
from ..verdict import processes
from ..verdict.check import Check
from ..verdict.commands import shell
from ..verdict.finding import evidence
from ..verdict.words import few, plural
from .gpu_node import duration, have, its

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..verdict.check import Said
    from ..verdict.finding import Finding
    from .gpu_node import Gpu, GpuNode

NOBODY, NOBODYS = "no listed process uses", "no foreign process"
# PCI Express base specification: GT/s of a lane.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
# Share of memory above which another process leaves too little for a job that needs the whole GPU: an estimate.
MOST_OF_THE_MEMORY = 0.5
# The server of the Multi-Process Service; its clients are listed separately.
SERVES = ("nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-server")
WHY = {
    "hw_slowdown": "hardware slowdown is active",
    "hw_thermal": "the temperature is too high",
    "power_brake": "the power brake is active",
    "sw_thermal": "the temperature is too high",
}
WERE, UNKNOWN = "were throttled for {} since the driver was loaded", "are throttled for an unknown reason"
# Reasons that are no fault: idle, limits that were set, and the limit of power, which GPUs reach under load.
USUAL_REASONS = ("idle", "power_cap", "sync_boost", "applications_clocks_setting", "display_clocks_setting")
# Degrees Celsius, if the driver prints no limit: JEDEC's standards of HBM end at 105. An A100 prints 95.
HOTTEST_MEMORY = 105.0
MOST_CORRECTED = 1000
# Parts of a process type such as "M+C+G" that compute: CUDA and its Multi-Process Service. The others drive a display.
COMPUTES = {"C", "M"}

THROTTLED = Check(
    "gpu.throttled",
    seen="recording",
    reads="the reasons for throttled clocks that nvidia-smi reports, and for how long each was active",
    fires="warn: thermal slowdown, power brake or hardware slowdown is active, or was active for more than 1 % of the "
    "uptime (at least a minute) or an hour (a software power limit is ignored). unknown: an unknown reason is active",
    fix="Check the cooling and the power supplies of the node",
)
HOT = Check(
    "gpu.hot",
    seen="recording",
    reads="the GPU temperature and its slowdown threshold, and the memory temperature and its limit",
    fires=f"warn: a temperature has reached its limit ({HOTTEST_MEMORY:.0f} °C for memory whose limit is not reported)",
    fix="Check the cooling of the node",
)
PCIE_NARROW = Check(
    "gpu.pcie.narrow",
    seen="recording",
    reads="the current width of the GPU's PCIe link, and the maximum width of the bridge above the GPU (sysfs)",
    fires="warn: the link uses fewer lanes than both the GPU and its slot support or, if the slot is unknown (virtual "
    "machines), fewer lanes than other GPUs of the model on this node use or than boards with NVLink provide",
    fix="Reseat the GPU or its riser",
)
PCIE_SLOW = Check(
    "gpu.pcie.slow",
    seen="recording",
    reads="the current and configured generation of the PCIe link, and the generations that GPU and slot support",
    fires="warn: the link is configured for a lower generation than both ends support or, on boards with NVLink, than "
    "other GPUs are, or runs below the configured generation under load. The current generation of an idle link is "
    "ignored, because idle links save power",
    fix="Reseat the GPU, and check the PCIe link speed setting in the firmware",
)
PROCESS_FOREIGN = Check(
    "gpu.process.foreign",
    seen="recording",
    reads="the processes that compute on the GPUs",
    fires="fail: a process outside a launch holds more than half of a GPU's memory. warn: it holds half or less",
    fix="Ask the owner of the process, or end the process",
)
MEMORY_HELD = Check(
    "gpu.memory.held",
    seen="recording",
    reads="the memory in use on GPUs, minus the memory of listed processes",
    fires=f"warn: more than {HELD_MIB} MiB, held by an ended process or by a process in another container",
    fix="End the process that has the device open (sudo fuser -v /dev/nvidia*), or reset the GPU",
)
PCIE_ERRORS = Check(
    "gpu.pcie.errors",
    seen="recording",
    reads="the PCIe error counters (AER) of the GPUs, and their replay counters",
    fires=f"warn: a GPU has had fatal or nonfatal errors, or more than {MOST_CORRECTED} corrected errors or replays "
    "and more than one per minute of uptime (DCGM warns at 8 in one minute; healthy H100 nodes have 100 to 200)",
    fix="Reseat the GPU or its riser",
)
CHECKS = (THROTTLED, HOT, PCIE_NARROW, PCIE_SLOW, PCIE_ERRORS, PROCESS_FOREIGN, MEMORY_HELD)


def throttled(node: GpuNode) -> Iterator[Said]:
    ignored = max(60.0, min(3600.0, node.facts["uptime"] / 100))
    for (how, why), gpus in node.by(lambda gpu: _throttled(gpu, ignored)).items():
        lasted = duration(max(time or 0 for gpu in gpus for time in gpu["throttled"].values()))
        seen = lasted if how == WERE else ", ".join(sorted({name for gpu in gpus for name in gpu["throttle"]}))
        summary = f"the clocks of {node.named(gpus)} {how.format(lasted)}: {why}"
        fix = "Check the node's cooling and power supply. Then check the clocks under load with"
        command = node.only("nvidia-smi -q -d PERFORMANCE,TEMPERATURE", gpus)
        report = THROTTLED.unknown if how == UNKNOWN else THROTTLED.warn
        yield report(node.name, summary, fix, command, observed=seen, expected="none")


def _throttled(gpu: Gpu, ignored: float) -> tuple[str, str] | None:
    """Return how and why the clocks of a GPU are throttled. ignored: seconds of the past that do not count."""
    reasons = sorted(gpu["throttle"] or [], key=lambda reason: reason == "hw_slowdown")
    found = [("are throttled", WHY[reason]) for reason in reasons if reason in WHY]
    found += [(WERE, WHY[reason]) for reason, time in gpu["throttled"].items() if (time or 0) > ignored]
    found += [(UNKNOWN, reason.replace("_", " ")) for reason in reasons if reason not in (*WHY, *USUAL_REASONS)]
    return found[0] if found else None


def hot(node: GpuNode) -> Iterator[Said]:
    for what, gpus in node.by(_hot).items():
        degrees = max(gpu["temperature"][what] or 0 for gpu in gpus)
        shown = f"{degrees:.0f} °C" if degrees else ""
        where = f"the memory of {node.named(gpus)} has" if what == "memory" else node.have(gpus)
        limit = "its temperature limit" if what == "memory" else f"{its(gpus)} slowdown temperature"
        summary = f"{where} reached {limit}" + (f" ({shown})" if shown else "")
        fix = "Check the node's cooling. Show the temperatures with", node.only("nvidia-smi -q -d TEMPERATURE", gpus)
        yield HOT.warn(node.name, summary, *fix, observed=shown)


def _hot(gpu: Gpu) -> str:
    """Return the part of the GPU that is too hot, by its name in the facts."""
    seen = gpu["temperature"]
    if seen["margin"] is not None and seen["margin"] <= 0:
        return "gpu"
    return "memory" if (seen["memory"] or 0) >= (seen["memory_max"] or HOTTEST_MEMORY) else ""


def pcie(node: GpuNode) -> Iterator[Said]:
    for (width, wanted, known), gpus in node.by(lambda gpu: _narrow(node, gpu)).items():
        slots = "its slot supports" if len(gpus) == 1 else "their slots support"
        why = f"{slots} {wanted} lanes" if known else f"{wanted} lanes are usual"
        are = "is" if len(gpus) == 1 else "are"
        summary = f"{node.named(gpus)} {are} connected with {width} PCIe lanes, but {why}"
        fix = "If the width stays low under load, power off the node and reseat the GPU or riser. Check the width with"
        yield PCIE_NARROW.warn(node.name, summary, fix, _lspci(gpus), observed=f"x{width}", expected=f"x{wanted}")
    for (what, seen, wanted), gpus in node.by(lambda gpu: _slow(node, gpu)).items():
        summary = f"the PCIe link of {node.named(gpus)} {what}"
        yield PCIE_SLOW.warn(node.name, summary, observed=str(seen), expected=str(wanted))
    aer = {device["slot"]: device["aer"] for device in node.facts["bus"]}
    most = max(MOST_CORRECTED, node.facts["uptime"] / 60)
    for kind, gpus in node.by(lambda gpu: _errors(gpu, aer.get(gpu["slot"], {}), most)[0]).items():
        count = sum(_errors(gpu, aer.get(gpu["slot"], {}), most)[1] for gpu in gpus)
        summary = f"{node.have(gpus)} had {plural(count, f'{kind} error')} on the PCIe link"
        fix = "Reseat the GPU, and check its slot, riser and power. Show the errors with"
        command = "sudo dmesg | grep -iE 'aer|pcie'" if kind == "uncorrected" else _lspci(gpus)
        yield PCIE_ERRORS.warn(node.name, summary, fix, command, observed=str(count), expected="none or few")


def _errors(gpu: Gpu, aer: Mapping[str, int | None], most: float) -> tuple[str, int]:
    """Return the kind and number of PCIe errors that are too many."""
    fatal = sum(aer.get(kind) or 0 for kind in ("nonfatal", "fatal"))
    corrected = max(gpu["link"]["replays"] or 0, aer.get("correctable") or 0)
    return ("uncorrected", fatal) if fatal else ("corrected" if corrected > most else "", corrected)


def _lspci(gpus: Sequence[Gpu]) -> str:
    one = shell("sudo lspci -vv -s {slot} | grep Lnk", slot=gpus[0]["slot"])
    return one if len(gpus) == 1 else "sudo lspci -vv -d 10de: | grep Lnk"


def _narrow(node: GpuNode, gpu: Gpu) -> tuple[int, int, bool] | None:
    """Return (lanes, wanted lanes, whether the slot is known) of a link that is too narrow."""
    width, wanted = gpu["link"]["width"], _lanes(node, gpu)
    return (width, wanted, bool(_slot(node, gpu)["slot_width"])) if width and width < wanted else None


def _lanes(node: GpuNode, gpu: Gpu) -> int:
    """Return how many PCIe lanes a GPU should use: the smaller of the maxima of GPU and slot. If the slot is unknown,
    return all lanes for models with NVLink, otherwise the largest number that a GPU of the model uses on this node:
    many clouds and desktop slots provide only half of the lanes."""
    model, most = model_of(gpu["name"]), gpu["link"]["width_max"] or 0
    if slot := _slot(node, gpu)["slot_width"]:
        return int(min(most, slot))
    if model and model.links:
        return int(most)
    return max(other["link"]["width"] or 0 for other in node.gpus if other["name"] == gpu["name"])


def _slot(node: GpuNode, gpu: Gpu) -> Mapping[str, Any]:
    """Return the maximum link of the bridge above a GPU; unknown in a virtual machine, where the bridge is emulated."""
    found = [device["link"] for device in node.facts["bus"] if device["slot"] == gpu["slot"]]
    return found[0] if found and not node.facts["virtual"] else {"slot_width": None, "slot_speed": None}


def _slow(node: GpuNode, gpu: Gpu) -> tuple[str, int, int] | None:
    """Return (what is slow, generation, wanted generation) of a link that is too slow."""
    now, most, device = (gpu["link"][name] for name in ("generation", "generation_max", "generation_device"))
    slot = GENERATIONS.get(_slot(node, gpu)["slot_speed"] or 0)
    both = min(device or 0, slot or 0)
    if most and most < both:
        return f"is limited to generation {most}, but both ends support {both}", most, both
    # The slots of a board with NVLink are equal.
    model = model_of(gpu["name"])
    alike = [other["link"]["generation_max"] or 0 for other in node.gpus if other["name"] == gpu["name"]]
    if most and model and model.links and most < max(alike):
        return f"is limited to generation {most}, but to {max(alike)} on other GPUs", most, max(alike)
    if _busy(gpu) and now and most and now < most:
        return f"runs at generation {now} under load, but is set to generation {most}", now, most
    return None


def _busy(gpu: Gpu) -> bool:
    return gpu["performance"] in ("P0", "P1") and (gpu["utilization"] or 0) > 0


def foreign(node: GpuNode) -> Iterator[Said]:
    """Report processes that are not part of a launch. Other checks cover the processes of running launches."""
    uses: dict[int, list[tuple[Gpu, Gpu]]] = defaultdict(list)
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
        lasted = f"has used {node.named(gpus)} for {duration(process['age'])}"
        summary = f"{who} {lasted} and holds {memory} MiB of GPU memory"
        report = PROCESS_FOREIGN.fail if big else PROCESS_FOREIGN.warn
        said = evidence("nvidia-smi -q -x", f"PID {pid} on {few([gpu['slot'] for gpu in gpus])}")
        yield report(node.name, summary, *_end(process, pid), observed=f"{memory} MiB", expected=NOBODYS, evidence=said)


def _end(process: Mapping[str, Any], pid: int) -> tuple[str, str]:
    if is_screen(process["name"]):
        return SCREEN_HOW, SCREEN_END
    if keeps_ready({**process, "name": process["name"].rpartition("/")[2]}):
        return "This daemon monitors or tests the GPUs. Wait until its test ends. Show it with", processes.look([pid])
    if processes.may_be_stopped(process["unit"]):
        return "Ask the owner, or stop the unit with", shell("sudo systemctl stop {unit}", unit=process["unit"])
    return f"Ask the owner, or end the process. {processes.advice([pid], 'sudo kill')}", processes.look([pid])


def _computes(process: Mapping[str, Any]) -> bool:
    return bool(COMPUTES & set(process["type"].split("+")))


def held(node: GpuNode) -> Iterator[Said]:
    stuck = [gpu for gpu in node.gpus if _unlisted(gpu) > HELD_MIB]
    if stuck:
        yield _held(node, stuck, sum(_unlisted(gpu) for gpu in stuck))


def _unlisted(gpu: Gpu) -> int:
    """Return how much of the used memory is not held by any listed process.

    The result is 0 if a process has no reported value, or if a process computes, because managed memory can exceed the
    reported value.
    """
    known = [process["memory"] for process in gpu["processes"]]
    if gpu["mig"] or gpu["memory"]["used"] is None or None in known or any(map(_computes, gpu["processes"])):
        return 0
    return int(gpu["memory"]["used"] - sum(known))


def _held(node: GpuNode, stuck: list[Gpu], memory: int) -> Finding:
    theirs = {f"/dev/nvidia{gpu['minor']}" for gpu in stuck}
    holders = [each for each in node.facts["holders"] if theirs & set(each["devices"])]
    who = few([_who(each) for each in holders])
    whom = "it" if len(stuck) == 1 else "them"
    fix, command = "Show the processes that have the device open with", "sudo fuser -v /dev/nvidia*"
    if any(is_screen(each["name"]) for each in holders):
        fix, command = SCREEN_HOW, SCREEN_END
    elif len(holders) == 1:
        pids = [holders[0]["pid"]]
        fix, command = processes.advice(pids, "sudo kill"), processes.look(pids)
    listed = "no listed process holds this memory" if any(gpu["processes"] for gpu in stuck) else f"{NOBODY} {whom}"
    summary = f"{memory} MiB are in use on {node.named(stuck)}, but {listed}"
    summary += f"; {who} {have(holders)} the device open" if holders else ""
    most = f"at most {HELD_MIB} MiB on each"
    return MEMORY_HELD.warn(node.name, summary, fix, command, observed=f"{memory} MiB", expected=most)


def _who(each: Mapping[str, Any]) -> str:
    return f"{each['name']} (PID {each['pid']} of {each['owner'] or 'an unknown user'}, {duration(each['age'])} old)"


RULES = (throttled, hot, pcie, foreign, held)
