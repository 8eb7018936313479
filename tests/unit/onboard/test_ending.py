"""With whom a new node is tried, and what is said in the end."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.onboard.ending import end
from muster.onboard.partner import answered, busy_with, left_out, pairs


@cases(__file__, "ending")
def test_ending(case: dict[str, Any]) -> None:
    found = end(case["nodes"], check=case.get("check", False))
    assert (found.last, found.lines, found.status) == (case["last"], case.get("lines", []), case["status"])


@cases(__file__, "pairs")
def test_pairs(case: dict[str, Any]) -> None:
    assert pairs(case["new"], case["busy"]) == case["pairs"]
    if not any(case["pairs"].values()):
        assert left_out(case["busy"]) == case["left_out"]


def holder(**own: Any) -> dict[str, Any]:
    known = {"pid": 7, "name": "python3", "command": "python3 train.py", "user": "erika", "unit": "", "launch_id": ""}
    return {**known, "seconds": 120.0, "begun": True, "detached": False, "manager_of": None, "ours": False, **own}


@pytest.mark.parametrize(
    ("held", "why", "gpus", "expected"),
    [
        ({}, "", 0, ""),
        ({"cpu": []}, "", 0, ""),
        ({"gpu-1": [holder()]}, "", 2, "PID 7 of erika (python3 train.py, began 2 minutes ago) works there"),
        (
            {"cpu": [holder(launch_id="20260101-000000-abcd")]},
            "",
            0,
            "launch 20260101-000000-abcd of erika (PID 7, began 2 minutes ago) works there",
        ),
        ({}, "nvidia-smi hangs", 2, "who computes on its GPUs is not known: nvidia-smi hangs"),
        ({}, "there is no nvidia-smi", 0, ""),
    ],
)
def test_who_works_on_a_node(held: dict[str, Any], why: str, gpus: int, expected: str) -> None:
    assert busy_with(held, why, gpus=gpus) == expected


def test_a_member_at_work_answers() -> None:
    assert answered("")
    assert answered("PID 7 of erika works there")
    assert not answered("it could not be asked: no route to host")
