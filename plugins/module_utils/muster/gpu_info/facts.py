"""Build the facts of a node's GPUs from the collected data. The package's docstring describes their shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import markup, query, values
from .processes import describe, holders
from .topology import links, topology

if TYPE_CHECKING:
    from collections.abc import Mapping

# Configuration space of a device that has fallen off the bus.
GONE = "ffffffff"
# A lost GPU: since 580 on the error stream, with the other GPUs still listed; before, the only output. By number with
# the tested programs of 470 to 615, and by bus address in many bug reports.
LOST = re.compile(r"device handle for gpu ?([0-9a-f:.]+?):? ", re.IGNORECASE)
# The only output, with exit status 6, of a driver without a usable GPU.
NO_DEVICES = "No devices were found"
MOST_NOTES = 1000
# nvidia-smi's manual, "Return Value": the driver is not loaded.
NO_DRIVER = 9
HANGS = "did not answer within"
NOTHING_SAID: dict[str, Any] = {"code": None, "notes": "", "cut": None, "lost": [], "lost_slots": [], "hung": []}
# A line of the fabric manager's log: [date] [LEVEL] [tid 1] text.
LOG_LINE = re.compile(r"^\[(?P<when>[^\]]*)\]\s*\[(?P<level>\w+)\]\s*\[tid \d+\]\s*(?P<text>.*)$")
STARTED = re.compile(r"Fabric Manager version \S+ is running")
# The containers among the results of systemd-detect-virt, from its manual. The others, except "none", are VMs.
CONTAINERS = (
    *("podman", "docker", "lxc", "lxc-libvirt", "systemd-nspawn", "openvz", "rkt", "wsl", "proot", "pouch"),
    "container-other",
)
# Display controllers in PCI's class list: VGA, and 3D controllers without a display, such as server GPUs.
GPU_CLASSES = ("0x0300", "0x0302")
NVSWITCH_CLASS = "0x0680"


def facts(look: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of the GPUs. look: the result of look_gpu.look()."""
    skipped: dict[str, str] = {}
    uptime = float((look["uptime"].split() or ["0"])[0])
    container = look["virt"] if look["virt"] in CONTAINERS else ""
    bus = _bus(look, container, skipped)
    smi, root = _smi(look)
    gpus = _gpus(root, smi)
    _add_links(gpus, look, skipped)
    for gpu in gpus:
        gpu["processes"] = [_process(each, look["processes"], uptime) for each in gpu["processes"]]
    if not look["saw_all_holders"]:
        skipped["gpu.holders"] = "only root can see the processes of other users"
    return {
        "container": container,
        "virtual": look["virt"] if look["virt"] not in ("", "none") and not container else "",
        "uptime": uptime,
        "bus": bus,
        "nvswitches": 0
        if container
        else sum(device["class"].startswith(NVSWITCH_CLASS) for device in look["devices"].values()),
        "driver": _driver(look, root),
        "smi": smi,
        "gpus": gpus,
        "missing": _missing(bus, gpus, smi, container),
        "topology": topology(_answer(look, "topology")),
        "fabric_manager": _fabric_manager(look["fabric_manager"], skipped),
        "imex": _unit(look["fabric_manager"]["imex"])[0],
        "holders": holders(look["holders"], uptime),
        "holders_all": look["saw_all_holders"],
        "skipped": skipped,
    }


def _gpus(root: markup.Element | None, smi: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the listed GPUs with their numbers in the driver. A lost GPU keeps its number.

    On most machines, but not on all, the driver's order is the order on the bus.
    """
    gpus = [query.gpu(element) for element in (root.all("gpu") if root else [])]
    places = [gpu["slot"] for gpu in gpus]
    if places == sorted(places):
        places = sorted([*places, *smi["lost_slots"]])
    numbers = [number for number in range(len(places) + len(smi["lost"])) if number not in smi["lost"]]
    by_place = dict(zip(places, numbers, strict=False))
    return [{"index": by_place[gpu["slot"]], **gpu} for gpu in gpus]


def _answer(look: Mapping[str, Any], question: str) -> str:
    return str(look["smi"][question]["text"]) if look["smi"] else ""


def _bus(look: Mapping[str, Any], container: str, skipped: dict[str, str]) -> list[dict[str, Any]]:
    if look["why"]:
        skipped["gpu.bus"] = look["why"]
    elif container == "wsl":
        skipped["gpu.bus"] = "under WSL, the PCI bus is not visible"
        return []
    elif container:
        skipped["gpu.bus"] = f"a container ({container}) sees the bus of its host, not its own GPUs"
        return []
    names = device_names(look["catalogue"])
    return [
        {
            "slot": slot,
            "id": device["device"].removeprefix("0x"),
            "class": device["class"],
            "name": names.get(device["device"].removeprefix("0x"), ""),
            "driver": device["driver"],
            "answers": device["config"] != GONE if device["config"] else None,
            "numa": int(device["numa_node"]) if device["numa_node"].isdigit() else None,
            "link": {
                "speed": _first_number(device["current_link_speed"]),
                "width": _first_number(device["current_link_width"]),
                "speed_max": _first_number(device["max_link_speed"]),
                "width_max": _first_number(device["max_link_width"]),
                "slot_speed": _first_number(device["slot_max_link_speed"]),
                "slot_width": _first_number(device["slot_max_link_width"]),
            },
            "aer": {name: _total(device[f"aer_dev_{name}"]) for name in ("correctable", "nonfatal", "fatal")},
        }
        for slot, device in sorted(look["devices"].items())
        if device["class"].startswith(GPU_CLASSES)
    ]


def _first_number(text: str) -> float | None:
    """Return the number in a text, such as 16.0 for "16.0 GT/s PCIe"; None if the kernel does not know the value."""
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else None


def _total(text: str) -> int | None:
    found = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _smi(look: Mapping[str, Any]) -> tuple[dict[str, Any], markup.Element | None]:
    """Return the outcome of `nvidia-smi -q -x`, and the parsed output."""
    if not look["smi"]:
        why = "the driver is not loaded, and nvidia-smi would load it"
        return {"status": "not_run", "why": why, "seconds": None, **NOTHING_SAID}, None
    answer = look["smi"]["query"]
    root, notes, complete = markup.parse(answer["text"], "nvidia_smi_log")
    said = "\n".join(filter(None, [notes, root.value("error_string") if root else "", answer["aside"].strip()]))
    lost = sorted(set(LOST.findall(said)))
    return {
        "status": _status(answer, complete=root is not None and complete),
        "why": answer["why"],
        "code": answer["code"],
        "seconds": answer["seconds"],
        "notes": quoted(said)[:MOST_NOTES],
        "cut": len(answer["text"]) if root is not None and not complete else None,
        "lost": [int(place) for place in lost if place.isdigit()],
        "lost_slots": [values.slot(place) for place in lost if ":" in place],
        "hung": [name for name, one in look["smi"].items() if HANGS in one["why"]],
    }, root


def _status(answer: Mapping[str, Any], *, complete: bool) -> str:
    text = answer["text"]
    if complete or NO_DEVICES in text:
        return "ok"
    signs = {
        "hangs": HANGS in answer["why"],
        "missing": "is not there" in answer["why"],
        "mismatch": "Driver/library version mismatch" in text,
        "no_driver": "couldn't communicate with the NVIDIA driver" in text or answer["code"] == NO_DRIVER,
        "failed": bool(answer["why"]),
    }
    return next((status for status, there in signs.items() if there), "unreadable")


def quoted(text: str) -> str:
    """Return the readable words of a text. A program that crashes might print arbitrary bytes."""
    lines = ("".join(sign if sign.isprintable() else " " for sign in line).split() for line in text.splitlines())
    kept = (" ".join(word for word in line if "\ufffd" not in word) for line in lines)
    return "\n".join(line for line in kept if line)


def _add_links(gpus: list[dict[str, Any]], look: Mapping[str, Any], skipped: dict[str, str]) -> None:
    """Add the NVLinks to the GPUs that they belong to, and mark queries without a result as skipped."""
    seen = links(_answer(look, "nvlink_status"), _answer(look, "nvlink_errors"))
    for gpu in gpus:
        its = seen.get(gpu["uuid"]) or seen.get(str(gpu["index"])) or {"links": [], "why": ""}
        gpu["nvlinks"], gpu["nvlinks_why"] = its["links"], its["why"]
    for question in ("topology", "nvlink_status", "nvlink_errors"):
        why = look["smi"][question]["why"] if look["smi"] else ""
        if why and gpus:
            skipped[question] = why


def _process(each: Mapping[str, Any], seen: Mapping[str, Any], uptime: float) -> dict[str, Any]:
    known = seen.get(str(each["pid"]))
    nobody = {"owner": "", "unit": "", "age": None}
    who = describe(known, uptime) if known and known["started"] is not None else nobody
    return {**each, **{key: who[key] for key in nobody}}


def _driver(look: Mapping[str, Any], root: markup.Element | None) -> dict[str, Any]:
    module = re.search(r"Kernel Module.*?\s(\d+\.\d+[\d.]*)\s", look["driver_version"])
    library = re.search(r"\.so\.(\d+\.[\d.]+)$", look["library"])
    said = root.value("driver_version") if root else ""
    loaded = look["loaded"] or (module[1] if module else said if look["virt"] == "wsl" else "")
    return {
        "loaded": loaded,
        "open": "Open Kernel Module" in look["driver_version"] if look["driver_version"] else None,
        "library": library[1] if library else "",
        "on_disk": (look["on_disk"].split() or [""])[0],
        "cuda": root.value("cuda_version") if root else "",
    }


def _missing(
    bus: list[dict[str, Any]], gpus: list[dict[str, Any]], smi: Mapping[str, Any], container: str
) -> list[str] | None:
    """Return the GPUs that are bound to the kernel module but that the driver does not list."""
    if container or smi["status"] != "ok":
        return None
    listed = {gpu["slot"] for gpu in gpus if not gpu["lost"]}
    return [device["slot"] for device in bus if device["driver"] in ("nvidia", "") and device["slot"] not in listed]


def _fabric_manager(look: Mapping[str, str], skipped: dict[str, str]) -> dict[str, Any] | None:
    unit, enabled = _unit(look["unit"])
    version = re.search(r"(\d+\.\d+[\d.]*)", look["version"])
    if not (version or unit):
        return None
    if look["log_why"]:
        skipped["fabric_manager.log"] = look["log_why"]
    return {
        "unit": unit,
        "enabled": enabled,
        "version": version[1] if version else "",
        "log": _errors_since_start(look["log"]),
    }


def _unit(shown: str) -> tuple[str, bool]:
    """Return (state, enabled) of a systemd unit from systemctl's output. The state is "" if the unit does not exist."""
    properties = dict(re.findall(r"^(\w+)=(.*)$", shown, re.MULTILINE))
    state = properties.get("ActiveState", "") if properties.get("LoadState") == "loaded" else ""
    return state, properties.get("UnitFileState", "") == "enabled"


def _errors_since_start(log: str) -> list[str]:
    """Return the errors that the fabric manager has logged since its last start."""
    lines = log.splitlines()
    start = next((number for number in reversed(range(len(lines))) if STARTED.search(lines[number])), 0)
    found = (LOG_LINE.match(line) for line in lines[start:])
    return [line["text"] for line in found if line and line["level"].upper() in ("ERROR", "FATAL", "CRITICAL")]


def device_names(catalogue: str) -> dict[str, str]:
    """Return the names of NVIDIA's devices according to pci.ids."""
    names: dict[str, str] = {}
    inside = False
    for line in catalogue.splitlines():
        if not line.startswith(("\t", "#")):
            inside = line.startswith("10de")
        elif inside and re.match(r"\t[0-9a-f]{4} ", line):
            name = line[5:].strip()
            bracketed = re.search(r"\[(.+)\]", name)
            names[line[1:5]] = bracketed[1] if bracketed else name
    return names
