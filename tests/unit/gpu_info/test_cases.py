"""Every file in cases/ describes a node: the output of nvidia-smi, other data, and the expected findings.

recorded: a folder of recorded/, whose provenance.yml names the real program and its environment; or
  printed: the output, as {question: {text, why, aside}}. bus: GPUs on the bus (default 2).
switches: number of NVSwitches (default: as the model has).
edits: [question, old, new] each, for the first match in the output. everywhere: the same for all matches.
values: other texts of elements of `nvidia-smi -q -x`, on every GPU, by name. listed: the number of listed GPUs.
look: changes to the other data, by path; "Link 0-3:" stands for four links, as in recordings. lines: of the kernel log.
request: changes to {gpus: 2}.
findings: each as "status id: sentence". commands: those of the fixes. facts: a part of them. skipped: reasons of
skipped checks. unread: the checks for which nvidia-smi has no value on any GPU (default: see UNREAD).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import cases, load_cases
from gpu_looks import look_of, printed, text_of
from muster.gpu_info.facts import facts
from muster.health import gpu
from muster.health.gpu_readings import NO_VALUE
from muster.verdict.check import CheckResults, collect
from muster_node.looks import kernel_log
from recordings import RECORDED, provenance

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in RECORDED.glob("*/provenance.yml"))
LOGS = HERE / "recorded_logs"
# By prefix of the recording's name: the checks for which nvidia-smi has no value on that GPU.
WITHOUT_RETIREMENT = ["gpu.retired.pending", "gpu.retired.many", "gpu.memory.unrepairable"]
UNREAD = {
    "470-v100": [
        *("gpu.mig.on", "gpu.mig.pending", "gpu.reset.needed", "gpu.ecc.sram_threshold"),
        *("gpu.remap.pending", "gpu.remap.failed", "gpu.remap.many", "gpu.memory.unrepairable"),
    ],
    "580-h100-80gb-hbm3": WITHOUT_RETIREMENT[:2],
    "580-h200": WITHOUT_RETIREMENT[:2],
    "595-b200": ["gpu.clocks.lowered", *WITHOUT_RETIREMENT],
    "615-h100-pcie": ["gpu.clocks.lowered", *WITHOUT_RETIREMENT],
    "615-rtx4090": ["gpu.mig.on", "gpu.mig.pending", "gpu.clocks.lowered", *WITHOUT_RETIREMENT],
}


def unread_of(recording: str) -> list[str]:
    return next((checks for name, checks in UNREAD.items() if recording.startswith(name)), WITHOUT_RETIREMENT)


def part(whole: Any, wanted: Any) -> Any:
    if isinstance(wanted, dict) and isinstance(whole, dict) and wanted:
        return {key: part(whole.get(key), value) for key, value in wanted.items()}
    if isinstance(wanted, list) and isinstance(whole, list) and len(wanted) == len(whole):
        return [part(one, other) for one, other in zip(whole, wanted, strict=True)]
    return whole


def judged(seen: dict[str, Any], request: dict[str, Any], lines: list[str] | None = None) -> CheckResults:
    logged = [kernel_log.line_of(line, 90.0) for line in lines or []]
    facts_of_node = {"gpu": seen, "kernel_log": {"lines": logged}}
    said = collect(gpu.judge(facts_of_node, request))
    said.findings.extend(collect(gpu.conclude(said, facts_of_node, request)).findings)
    return said


@cases(__file__, "judge")
def test_gpu_findings_match_the_case(case: dict[str, Any]) -> None:
    seen = facts(look_of(case))
    for name, wanted in case.get("facts", {}).items():
        assert part(seen[name], wanted) == wanted
    request = {"node": "node1", "gpus": 2, "nproc": 2, "gpu_model": "", **case.get("request", {})}
    found, skipped = judged(seen, request, case.get("lines"))
    assert [f"{one.status} {one.id}: {one.summary}" for one in found] == case["findings"]
    assert [one.fix["command"] for one in found if "command" in one.fix] == case.get("commands", [])
    whys = dict.fromkeys(one["why"] for one in skipped)
    assert [why for why in whys if why != NO_VALUE] == case.get("skipped", [])
    unread = [one["id"] for one in skipped if one["why"] == NO_VALUE]
    assert unread == case.get("unread", unread_of(case.get("recorded", "")) if seen["gpus"] else [])
    assert not {one.id for one in found} & {one["id"] for one in skipped}
    assert all(one.fix.get("text") for one in found if one.status in ("fail", "warn", "unknown"))


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_every_recording_has_a_provenance_file(folder: Path) -> None:
    assert {"printed_by", "over", "scenario", "when", "exit"} <= set(provenance(folder))
    assert text_of(folder, "query")


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_truncated_or_noisy_output_raises_no_exception(folder: Path) -> None:
    """A killed program may have written any part of its output, and a warning may be anywhere in it."""
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
        judged(facts(look), {"node": "node1", "gpus": 2, "nproc": 2, "gpu_model": ""})


def test_warning_before_the_output_adds_only_a_note() -> None:
    clean = look_of({"recorded": "580-h100-healthy", "bus": 8})
    noisy = copy.deepcopy(clean)
    noisy["smi"]["query"]["text"] = "Warning: persistence mode is deprecated\n" + noisy["smi"]["query"]["text"]
    seen = facts(noisy)
    assert seen["smi"]["notes"] == "Warning: persistence mode is deprecated"
    assert {**seen, "smi": None} == {**facts(clean), "smi": None}


def test_log_of_a_real_fabric_manager_is_parsed() -> None:
    sources = yaml.safe_load((LOGS / "provenance.yml").read_text())
    for path in LOGS.glob("*.log"):
        assert path.name in sources
    log = (LOGS / "fabricmanager-580-without-a-driver.log").read_text()
    look = look_of({"look": {"fabric_manager/log": log}})
    (line,) = facts(look)["fabric_manager"]["log"]
    assert line.startswith("failed to allocate handle (client) to NVIDIA GPU driver")
    again = look_of({"look": {"fabric_manager/log": log + "\n".join(log.splitlines()[1:-1]) + "\n"}})
    assert facts(again)["fabric_manager"]["log"] == [], "messages before the last start do not count"


def test_every_check_has_a_case() -> None:
    made = set()
    for case in load_cases(HERE / "cases/judge").values():
        made |= {line.split()[1].rstrip(":") for line in case["findings"]}
    checks = {check.id for check in gpu.CHECKS}
    assert made == checks, "each check of GPUs has a case with a finding"
