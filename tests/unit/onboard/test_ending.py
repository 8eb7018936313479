"""New nodes are paired with idle members, and the outcome of a run is summarized."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.onboard.ending import end
from muster.onboard.partner import answered, busy_with, left_out, pairs


@cases(__file__, "ending")
def test_onboarding_outcome_matches_the_case(case: dict[str, Any]) -> None:
    found = end(case["nodes"], check=case.get("check", False))
    assert (found.last, found.lines, found.status) == (case["last"], case.get("lines", []), case["status"])


@cases(__file__, "pairs")
def test_pairs_of_new_nodes_and_members_match_the_case(case: dict[str, Any]) -> None:
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
        ({"gpu-1": [holder()]}, "", 2, "PID 7 of erika (python3 train.py, started 2 minutes ago) uses the node"),
        (
            {"cpu": [holder(launch_id="20260101-000000-abcd")]},
            "",
            0,
            "launch 20260101-000000-abcd of erika (PID 7, started 2 minutes ago) uses the node",
        ),
        ({}, "nvidia-smi hangs", 2, "the GPU processes could not be listed: nvidia-smi hangs"),
        ({}, "there is no nvidia-smi", 0, ""),
    ],
)
def test_process_that_uses_a_node_is_described(held: dict[str, Any], why: str, gpus: int, expected: str) -> None:
    assert busy_with(held, why, gpus=gpus) == expected


def test_busy_member_counts_as_reachable() -> None:
    assert answered("")
    assert answered("PID 7 of erika uses the node")
    assert not answered("the node did not respond: no route to host")
