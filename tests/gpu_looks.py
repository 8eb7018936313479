"""Results of GPU probes, built from recorded output of real nvidia-smi programs (tests/unit/gpu_info/recorded)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from recordings import RECORDED, each_link, provenance, recorded

if TYPE_CHECKING:
    from pathlib import Path

SLOTS = [f"0000:{bus}:00.0" for bus in ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")]
QUESTIONS = ("query", "topology", "nvlink_status", "nvlink_errors")
DEVICES = {"v100": "0x1db5", "a100": "0x20b0", "h100": "0x2330", "b200": "0x2901", "rtx4090": "0x2684"}
SWITCHED = ("a100", "h100", "b200")


def printed(folder: Path) -> dict[str, dict[str, Any]]:
    codes = provenance(folder)["exit"]
    answers = {}
    for question in QUESTIONS:
        answers[question] = {
            "text": text_of(folder, question),
            "aside": recorded(folder, f"{question}.aside.txt") or "",
            "why": f"nvidia-smi ended with {codes[question]}" if codes[question] else "",
            "code": codes[question],
            "seconds": 0.4,
        }
    return answers


def text_of(folder: Path, question: str) -> str:
    """Return the recorded nvidia-smi output for a query."""
    text = recorded(folder, f"{question}.{'xml' if question == 'query' else 'txt'}")
    if text is None:
        raise ValueError(f"{folder.name} has no answer to {question}")
    return text


def look_of(case: dict[str, Any]) -> dict[str, Any]:
    name = case.get("recorded", "580-h100-healthy")
    model = name.split("-")[1]
    loaded = provenance(RECORDED / name)["printed_by"].split()[1].rstrip(",")
    link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    device = {
        "device": DEVICES.get(model, "0x2330"),
        "class": "0x030200",
        "driver": "nvidia",
        "config": "de103023",
        "numa_node": "0",
        **link,
        **{name.replace("current", most): value for name, value in link.items() for most in ("max", "slot_max")},
        **{f"aer_dev_{kind}": "TOTAL_ERR_COR 0" for kind in ("correctable", "nonfatal", "fatal")},
    }
    switch = {"device": "0x22a3", "class": "0x068000", "driver": "nvidia-nvswitch"}
    switches = case.get("switches", 4 if model in SWITCHED and "pcie" not in name else 0)
    look: dict[str, Any] = {
        "devices": {
            **{slot: dict(device) for slot in SLOTS[: case.get("bus", 2)]},
            **{f"0000:{0x87 + number:02x}:00.0": dict(switch) for number in range(switches)},
        },
        "why": "",
        "catalogue": "",
        "driver_version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {loaded}  Release Build\n",
        "modules": "",
        "loaded": loaded,
        "library": f"libnvidia-ml.so.{loaded}",
        "on_disk": loaded,
        "virt": "none",
        "smi": printed(RECORDED / name) if "printed" not in case else case["printed"],
        "fabric_manager": {
            "unit": "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\n",
            "unit_why": "",
            "version": f"Fabric Manager version is : {loaded}\n",
            "version_why": "",
            "log": "",
            "imex": "LoadState=not-found\nActiveState=inactive\n",
            "log_why": "",
        },
        "holders": [],
        "saw_all_holders": True,
        "processes": {},
        "uptime": "100000.0 1.0\n",
    }
    for question, old, new in case.get("edits", []):
        assert old in look["smi"][question]["text"], old
        look["smi"][question]["text"] = look["smi"][question]["text"].replace(old, new, 1)
    for question, old, new in case.get("everywhere", []):
        assert old in look["smi"][question]["text"], old
        look["smi"][question]["text"] = look["smi"][question]["text"].replace(old, new)
    if look["smi"] and "query" in look["smi"]:
        look["smi"]["query"]["text"] = _of_values(look["smi"]["query"]["text"], case)
    for dotted, value in case.get("look", {}).items():
        *folders, last = dotted.split("/")
        here: Any = look
        for step in folders:
            here = here[step]
        here[last] = value
    for answer in (look["smi"] or {}).values():
        answer.setdefault("code", None)
        answer["text"] = each_link(answer["text"])
    return look


def _of_values(text: str, case: dict[str, Any]) -> str:
    """Return the output with the values of the case, limited to the case's number of GPUs."""
    for name, value in case.get("values", {}).items():
        text, places = re.subn(rf"<{name}>[^<]*</{name}>", f"<{name}>{value}</{name}>", text)
        assert places, name
    if "listed" in case:
        kept = text.split("</gpu>")[: case["listed"]]
        text = "</gpu>".join([*kept, "\n</nvidia_smi_log>\n"])
    return text
