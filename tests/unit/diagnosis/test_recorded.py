"""Diagnoses of launches that failed on real machines, from their logs in recorded/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import own_mishaps
from cases import document_of
from lines import line
from muster.diagnosis.case import LaunchCase
from muster.diagnosis.causes import CAUSES
from muster.diagnosis.decide import decide
from muster.diagnosis.foreign import case_of_logs
from muster.diagnosis.log_sources import Known
from muster.diagnosis.progress import progress
from muster.diagnosis.texts import TEXTS
from muster.diagnosis.words import diagnosis

RECORDED = Path(__file__).parent / "recorded"
MACHINES = {path.parent.name: document_of(path) for path in RECORDED.glob("*/expect.yml")}
LAUNCHES = [(machine, name) for machine, all_of in MACHINES.items() for name in all_of["mishaps"]]


def logs_of(machine: str, name: str) -> dict[str, str]:
    folder = RECORDED / machine / name
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))}


@pytest.mark.parametrize(("machine", "name"), LAUNCHES)
def test_recorded_launch_is_diagnosed_as_expected(machine: str, name: str) -> None:
    expect = MACHINES[machine]["mishaps"][name]
    logs = logs_of(machine, name)
    text = "\n".join(logs.values())
    assert sorted(one.id for one in TEXTS if re.search(one.pattern, text)) == expect["read"]
    known = [Known(node, more[0], tuple(more[1:])) for node, more in MACHINES[machine]["known"].items()]
    case = LaunchCase(case_of_logs(logs, known))
    decided = decide(case, CAUSES)
    assert (decided.word, [line(one) for one in decided.causes]) == (expect["word"], expect["causes"])
    said = diagnosis(case, decided)["parts"]
    assert expect["symptom"] in said["Symptom"]
    assert expect.get("cause", "") in said["Cause"]
    assert expect["next_step"] in said["Next step"]


def test_progress_is_read_from_torchs_output() -> None:
    case = LaunchCase(case_of_logs(logs_of("h100", "timeout"), []))
    assert [(one.rank, one.enqueued, one.within) for one in progress(case)] == [(0, 2, True)]


def test_every_recorded_launch_has_an_expectation() -> None:
    there = {(path.parts[-3], path.parts[-2]) for path in RECORDED.glob("*/*/launcher.log")}
    assert there == set(LAUNCHES)
    assert all(machine["from"] for machine in MACHINES.values())


@pytest.mark.parametrize("mishap", own_mishaps.MISHAPS, ids=lambda mishap: mishap.name)
def test_expected_text_of_every_program_exists(mishap: own_mishaps.Mishap) -> None:
    assert any(one.id.startswith(mishap.expect) for one in TEXTS)
    compile(mishap.program, mishap.name, "exec")


def test_machine_specific_paths_and_names_are_replaced() -> None:
    log = (
        '[rank0]:   File "/data/out/mishaps/forked/train.py", line 8, in <module>\n'
        '[rank0]:   File "/data/venv/lib/python3.12/site-packages/torch/cuda/__init__.py", line 478, in _lazy_init\n'
        "[2026-11-27 02:37:33] gpu7:1054:1054 [0] init.cc:904 NCCL WARN Duplicate GPU detected\n"
        "[rank0]: gpu70 is another word\n"
    )
    folder, run = Path("/data/out/mishaps/forked"), "ranks/1b2c_xyz/attempt_0/0/stderr.log"
    kept: Any = own_mishaps.scrubbed({run: log}, folder, "/data/venv", "gpu7")
    assert kept == {
        "ranks/attempt_0/0/stderr.log": (
            '[rank0]:   File "/srv/train/train.py", line 8, in <module>\n'
            '[rank0]:   File "/srv/venv/lib/python3.12/site-packages/torch/cuda/__init__.py", line 478, in _lazy_init\n'
            "[2026-11-27 02:37:33] node1:1054:1054 [0] init.cc:904 NCCL WARN Duplicate GPU detected\n"
            "[rank0]: gpu70 is another word\n"
        )
    }
