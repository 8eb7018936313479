"""Parse one GPU from `nvidia-smi -q -x`.

The element names come from the document types of nvidia-smi 470 (v11), 535 and 550 (v12), 580, 595 and 615 (v13); if a
driver renamed an element, both names are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .values import LOST, NEEDS_RESET, NOTHING, broken, flag, number, slot, whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .markup import Element

THROTTLES = {
    "gpu_idle": "idle",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "power_brake",
    "sw_thermal_slowdown": "sw_thermal",
    "sw_power_cap": "power_cap",
    "sync_boost": "sync_boost",
}
# Times in us since the driver was loaded, under the names of 580.
THROTTLED = {"hw_therm_slowdown": "hw_thermal", "hw_power_brake": "power_brake", "sw_therm_slowdown": "sw_thermal"}
# Elements that name other programs, that have a status of their own, or that mean nothing for computing.
UNUSED = ("processes", "accounted_processes", "fabric", "fan_speed")
COUNTS = ("sram_correctable", "sram_uncorrectable", "dram_correctable", "dram_uncorrectable")


def gpu(element: Element) -> dict[str, Any]:
    """Return the facts of a GPU:

    {slot, lost, unreadable, name, brand, board, architecture, uuid, serial, minor, device, vbios, inforom, gsp,
    persistence, mig, mig_pending, compute_mode, virtualization, display, recovery, memory, ecc, retired, remap, link,
    temperature, power, clocks, performance, throttle, throttled, utilization, fabric, processes}

    unreadable: the elements with an error instead of a value. board: the subsystem ID, which identifies the board's
    maker.
    """
    value = element.value
    said = {text.strip("[]").lower() for text in element.texts()}
    return {
        "slot": slot(value("pci/pci_bus_id") or element.attributes.get("id", "")),
        # Single readings can fail on healthy GPUs, but a GPU without a name or memory is unusable.
        "lost": LOST in said or any(broken(value(path)) for path in ("product_name", "uuid", "fb_memory_usage/total")),
        "unreadable": list(dict.fromkeys(_unreadable(element))),
        "name": word(value("product_name")),
        "brand": word(value("product_brand")),
        "board": word(value("pci/pci_sub_system_id")),
        "architecture": word(value("product_architecture")),
        "uuid": word(value("uuid")),
        "serial": word(value("serial")),
        "minor": whole(value("minor_number")),
        "device": (word(value("pci/pci_device_id")) or "").lower().removeprefix("0x")[:4] or None,
        "vbios": word(value("vbios_version")),
        "inforom": word(value("inforom_version/img_version")),
        "gsp": word(value("gsp_firmware_version")),
        "persistence": flag(value("persistence_mode")),
        "mig": flag(value("mig_mode/current_mig")),
        "mig_pending": flag(value("mig_mode/pending_mig")),
        "compute_mode": word(value("compute_mode")),
        "virtualization": word(value("gpu_virtualization_mode/virtualization_mode")),
        "display": flag(value("display_active")),
        "recovery": "reset" if NEEDS_RESET in said else _recovery(element),
        "memory": {name: whole(value(f"fb_memory_usage/{name}")) for name in ("total", "used", "free")}
        | {"bar1": whole(value("bar1_memory_usage/total"))},
        "ecc": _ecc(element),
        "retired": _retired(element),
        "remap": _remap(element),
        "link": _link(element),
        "temperature": _temperature(element),
        "power": _power(element),
        "clocks": {
            "sm": whole(value("clocks/sm_clock")),
            "sm_max": whole(value("max_clocks/sm_clock")),
            "memory": whole(value("clocks/mem_clock")),
            "memory_max": whole(value("max_clocks/mem_clock")),
            "set": whole(value("applications_clocks/graphics_clock")),
            "set_default": whole(value("default_applications_clocks/graphics_clock")),
        },
        "performance": word(value("performance_state")),
        "throttle": _throttle(element),
        "throttled": _throttled(element),
        "utilization": whole(value("utilization/gpu_util")),
        "fabric": _fabric(element),
        "processes": [_process(entry) for entry in element.all("processes/process_info")],
    }


def _recovery(element: Element) -> str | None:
    """Return the recovery action that the driver requests: reset, reboot, drain p2p, drain and reset...; "" for none.

    Drivers since 570 report the action in one element; older drivers use two.
    """
    action = element.value("gpu_recovery_action").strip()
    if action and "deprecated" not in action.lower():
        return "" if action.lower() == "none" else (word(action) or "").lower() or None
    required = flag(element.value("gpu_reset_status/reset_required"))
    drain = flag(element.value("gpu_reset_status/drain_and_reset_recommended"))
    if required:
        return "reset"
    if drain:
        return "drain and reset"
    return None if required is None and drain is None else ""


def _ecc(element: Element) -> dict[str, Any]:
    errors = element.find("ecc_errors")
    return {
        "on": flag(element.value("ecc_mode/current_ecc")),
        "pending": flag(element.value("ecc_mode/pending_ecc")),
        "volatile": _counts(errors, "volatile"),
        "aggregate": _counts(errors, "aggregate"),
        "sram_threshold": flag(element.value("ecc_errors/aggregate/sram_threshold_exceeded")),
        "channel_repair": flag(element.value("ecc_errors/channel_repair_pending")),
        "tpc_repair": flag(element.value("ecc_errors/tpc_repair_pending")),
        "unrepairable": flag(element.value("ecc_errors/unrepairable_memory")),
    }


def _counts(errors: Element | None, when: str) -> dict[str, int | None]:
    counts: dict[str, int | None] = dict.fromkeys(COUNTS)
    if errors is None:
        return counts
    for name in COUNTS:
        counts[name] = whole(errors.value(f"{when}/{name}"))
    # Since Ampere in two parts; before Turing by the width of the error, with all memories added up.
    parts = [whole(errors.value(f"{when}/sram_uncorrectable_{part}")) for part in ("parity", "secded")]
    if any(part is not None for part in parts):
        counts["sram_uncorrectable"] = sum(part or 0 for part in parts)
    for name, width in (("dram_correctable", "single_bit"), ("dram_uncorrectable", "double_bit")):
        if counts[name] is None:
            counts[name] = whole(errors.value(f"{when}/{width}/total"))
    return counts


def _retired(element: Element) -> dict[str, Any] | None:
    """Return the retired pages (GPUs before Ampere)."""
    retired = {
        "single": whole(element.value("retired_pages/multiple_single_bit_retirement/retired_count")),
        "double": whole(element.value("retired_pages/double_bit_retirement/retired_count")),
        "pending": flag(element.value("retired_pages/pending_blacklist", "retired_pages/pending_retirement")),
    }
    return None if all(value is None for value in retired.values()) else retired


def _remap(element: Element) -> dict[str, Any] | None:
    """Return the remapped rows (GPUs since Ampere). They are not available if MIG is on."""
    remap = {
        "correctable": whole(element.value("remapped_rows/remapped_row_corr")),
        "uncorrectable": whole(element.value("remapped_rows/remapped_row_unc")),
        "pending": flag(element.value("remapped_rows/remapped_row_pending")),
        "failed": flag(element.value("remapped_rows/remapped_row_failure")),
        "banks_without": whole(element.value("remapped_rows/row_remapper_histogram/row_remapper_histogram_none")),
    }
    return None if all(value is None for value in remap.values()) else remap


def _link(element: Element) -> dict[str, Any]:
    generation, width = "pci/pci_gpu_link_info/pcie_gen", "pci/pci_gpu_link_info/link_widths"
    return {
        "generation": whole(element.value(f"{generation}/current_link_gen")),
        "generation_max": whole(element.value(f"{generation}/max_link_gen")),
        # Not max_host_link_gen, which is 4 on a GB300 whose link is of generation 6.
        "generation_device": whole(element.value(f"{generation}/max_device_link_gen")),
        "width": whole(element.value(f"{width}/current_link_width")),
        "width_max": whole(element.value(f"{width}/max_link_width")),
        "replays": whole(element.value("pci/replay_counter")),
    }


def _temperature(element: Element) -> dict[str, float | None]:
    """Return temperatures in degrees Celsius. margin: distance to the slowdown temperature; GPUs since Hopper report
    this distance directly.

    Since Hopper the memory limit is also a distance (gpu_temp_max_mem_tlimit_threshold, "0 C" on B200 and GB300), but
    the memory's current distance is not printed, so it cannot be compared.
    """
    value = element.value
    temperature = number(value("temperature/gpu_temp"))
    slowdown = number(value("temperature/gpu_temp_slow_threshold"))
    margin = number(value("temperature/gpu_temp_tlimit"))
    if margin is None and temperature is not None and slowdown is not None:
        margin = slowdown - temperature
    return {
        "gpu": temperature,
        "margin": margin,
        "memory": number(value("temperature/memory_temp")),
        "memory_max": number(value("temperature/gpu_temp_max_mem_threshold")),
    }


def _power(element: Element) -> dict[str, float | None]:
    value = element.value
    new, old = "gpu_power_readings", "power_readings"
    return {
        "draw": number(value(f"{new}/instant_power_draw", f"{new}/power_draw", f"{old}/power_draw")),
        "limit": number(value(f"{new}/current_power_limit", f"{old}/enforced_power_limit", f"{old}/power_limit")),
        "default": number(value(f"{new}/default_power_limit", f"{old}/default_power_limit")),
        "max": number(value(f"{new}/max_power_limit", f"{old}/max_power_limit")),
    }


def _unreadable(element: Element) -> Iterator[str]:
    for child in element.children:
        if child.name not in UNUSED:
            yield from [child.name] if broken(child.text) else _unreadable(child)


def _throttle(element: Element) -> list[str] | None:
    """Return the active reasons for lower clocks. Reasons with unknown names keep the name that the driver prints."""
    reasons = element.find("clocks_event_reasons") or element.find("clocks_throttle_reasons")
    if reasons is None or all(flag(child.text) is None for child in reasons.children):
        return None
    active = [child.name.partition("_reason_")[2] for child in reasons.children if flag(child.text)]
    return [THROTTLES.get(name, name) for name in active]


def _throttled(element: Element) -> dict[str, float | None]:
    """Return for how many seconds the clocks have been throttled since the driver was loaded, by reason."""
    folder = "clocks_event_reasons_counters"
    times = {name: number(element.value(f"{folder}/{folder}_{text}")) for text, name in THROTTLED.items()}
    return {name: None if time is None else time / 1e6 for name, time in times.items()}


def _fabric(element: Element) -> dict[str, Any] | None:
    """Return the fabric state of the GPU; None if the GPU has no fabric."""
    state = word(element.value("fabric/state"))
    if not state:
        return None
    health = element.find("fabric/health")
    return {
        "state": state,
        # Elsewhere a driver error means no value; here it is the status.
        "status": None if element.value("fabric/status").lower() in NOTHING else element.value("fabric/status"),
        "clique": word(element.value("fabric/cliqueId")),
        "cluster": word(element.value("fabric/clusterUuid")),
        "health": {child.name: child.text for child in health.children if word(child.text)} if health else {},
    }


def _process(entry: Element) -> dict[str, Any]:
    """Return a process without its command-line arguments, which newer drivers show and which might be private."""
    words = entry.value("process_name").split()
    return {
        "pid": whole(entry.value("pid")),
        "type": word(entry.value("type")) or "",
        "name": words[0] if words and word(words[0]) else "",
        "memory": whole(entry.value("used_memory")),
    }
