"""Every file in cases/ is a node: what nvidia-smi printed there, what else was seen, and what is then said of it.

recorded: a folder of recorded/, whose provenance.yml says which real program printed it and over what; or
  printed: its answers, as {question: {text, why, aside}}. bus: GPUs on the bus (default 2).
edits: [question, old, new] each, in what was printed, at its first place.
look: laid over the rest of the look, by dotted names. request: laid over {gpus: 2}.
findings: each as "status id: sentence". commands: what is to be typed. facts: a part of them. skipped: why something
was not looked at.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import cases, load_cases
from muster.gpu_info.facts import facts
from muster.health import gpus
from muster.verdict.check import collect

HERE = Path(__file__).parent
RECORDED = sorted(path.parent for path in (HERE / "recorded").glob("*/provenance.yml"))
LOGS = HERE / "recorded_logs"
SLOTS = [f"0000:{bus}:00.0" for bus in ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")]
QUESTIONS = ("query", "topology", "nvlink_status", "nvlink_errors")
DEVICES = {"v100": "0x1db5", "a100": "0x20b0", "h100": "0x2330", "b200": "0x2901", "rtx4090": "0x2684"}
SWITCHED = ("a100", "h100", "b200")


def printed(folder: Path) -> dict[str, dict[str, Any]]:
    codes = yaml.safe_load((folder / "provenance.yml").read_text())["exit"]
    answers = {}
    for question in QUESTIONS:
        text = next(folder.glob(f"{question}.xml")) if question == "query" else folder / f"{question}.txt"
        aside = folder / f"{question}.aside.txt"
        answers[question] = {
            "text": text.read_text(),
            "aside": aside.read_text() if aside.exists() else "",
            "why": f"nvidia-smi ended with {codes[question]}" if codes[question] else "",
            "seconds": 0.4,
        }
    return answers


def look_of(case: dict[str, Any]) -> dict[str, Any]:
    name = case.get("recorded", "580-h100-healthy")
    model = name.split("-")[1]
    by = yaml.safe_load((HERE / "recorded" / name / "provenance.yml").read_text())["printed_by"]
    loaded = by.split()[1].rstrip(",")
    link = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    device = {
        "device": DEVICES.get(model, "0x2330"),
        "class": "0x030200",
        "driver": "nvidia",
        "config": "de103023",
        "numa_node": "0",
        **link,
        **{name.replace("current", "max"): value for name, value in link.items()},
        **{f"aer_dev_{kind}": "TOTAL_ERR_COR 0" for kind in ("correctable", "nonfatal", "fatal")},
    }
    switch = {"device": "0x22a3", "class": "0x068000", "driver": "nvidia-nvswitch"}
    switches = 4 if model in SWITCHED and "pcie" not in name else 0
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
        "smi": printed(HERE / "recorded" / name) if "printed" not in case else case["printed"],
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
    for dotted, value in case.get("look", {}).items():
        *folders, last = dotted.split("/")
        here: Any = look
        for step in folders:
            here = here[step]
        here[last] = value
    return look


def part(whole: Any, wanted: Any) -> Any:
    if isinstance(wanted, dict) and isinstance(whole, dict) and wanted:
        return {key: part(whole.get(key), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(whole, list) and len(wanted) == len(whole):
        return [part(one, other) for one, other in zip(whole, wanted, strict=True)]
    return whole


@cases(__file__, "judge")
def test_a_node_is_judged_by_what_its_gpus_say(case: dict[str, Any]) -> None:
    seen = facts(look_of(case))
    for name, wanted in case.get("facts", {}).items():
        assert part(seen[name], wanted) == wanted
    request = {"node": "node1", "gpus": 2, "nproc": 2, "gpu_model": "", **case.get("request", {})}
    found, skipped = collect(gpus.judge(seen, request))
    assert [f"{one.status} {one.id}: {one.summary}" for one in found] == case["findings"]
    assert [one.fix["command"] for one in found if "command" in one.fix] == case.get("commands", [])
    assert list(dict.fromkeys(one["why"] for one in skipped)) == case.get("skipped", [])
    assert not {one.id for one in found} & {one["id"] for one in skipped}
    assert all(one.fix.get("text") for one in found if one.status in ("fail", "warn", "unknown"))


@pytest.mark.parametrize("folder", RECORDED, ids=[folder.name for folder in RECORDED])
def test_what_was_recorded_says_where_it_is_from(folder: Path) -> None:
    provenance = yaml.safe_load((folder / "provenance.yml").read_text())
    assert {"printed_by", "over", "scenario", "when", "exit"} <= set(provenance)
    assert (folder / "query.xml").exists()


@pytest.mark.parametrize("folder", RECORDED, ids=[folder.name for folder in RECORDED])
def test_half_of_an_answer_and_noise_in_it_break_nothing(folder: Path) -> None:
    """A program that is ended may have written any part of its answer; a warning may stand anywhere in it."""
    answers = printed(folder)
    for cut in (0, 1, 37, 400, 4000, 12345):
        spoilt = copy.deepcopy(answers)
        for answer in spoilt.values():
            text = answer["text"]
            answer["text"] = f"{text[:cut]}\nWARNING: infoROM is corrupted at gpu 0000:18:00.0\n{text[cut:]}"
        look = look_of({"recorded": folder.name, "printed": spoilt})
        facts(look)
        for answer in spoilt.values():
            answer["text"] = answer["text"][:cut]
        collect(gpus.judge(facts(look), {"node": "node1", "gpus": 2, "nproc": 2, "gpu_model": ""}))


def test_a_warning_before_the_answer_changes_nothing_else() -> None:
    clean = look_of({"recorded": "580-h100-healthy", "bus": 8})
    noisy = copy.deepcopy(clean)
    noisy["smi"]["query"]["text"] = "Warning: persistence mode is deprecated\n" + noisy["smi"]["query"]["text"]
    seen = facts(noisy)
    assert seen["smi"]["notes"] == "Warning: persistence mode is deprecated"
    assert {**seen, "smi": None} == {**facts(clean), "smi": None}


def test_the_log_of_a_real_fabric_manager_is_read() -> None:
    provenance = yaml.safe_load((LOGS / "provenance.yml").read_text())
    for path in LOGS.glob("*.log"):
        assert path.name in provenance
    log = (LOGS / "fabricmanager-580-without-a-driver.log").read_text()
    look = look_of({"look": {"fabric_manager/log": log}})
    (line,) = facts(look)["fabric_manager"]["log"]
    assert line.startswith("failed to allocate handle (client) to NVIDIA GPU driver")
    again = look_of({"look": {"fabric_manager/log": log + "\n".join(log.splitlines()[1:-1]) + "\n"}})
    assert facts(again)["fabric_manager"]["log"] == [], "what it said before it was started again is past"


def test_every_check_has_its_case() -> None:
    made = set()
    for case in load_cases(HERE / "cases/judge").values():
        made |= {line.split()[1].rstrip(":") for line in case["findings"]}
    checks = {check.id for check in (*gpus.CHECKS, *gpus.OF_LISTED)}
    assert made == checks, "each check of GPUs has a case in which it finds something"
