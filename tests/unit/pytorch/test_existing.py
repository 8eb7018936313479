"""Environments built by users: which program built an environment, and whether launches can run in it (cases/existing).

The marker files are derived from the source code of the programs, not recorded.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.pytorch import existing

SOUND: dict[str, Any] = {
    "there": True,
    "marks": {"conda-meta/history": ""},
    "everybody": "",
    "other": "",
    "torchrun": True,
    "said": {
        "imported": True,
        "error": "",
        "torch": {"version": "2.7.1"},
        "packages": {"torch": "2.7.1"},
        "python_full": "3.11.9",
    },
}


@cases(__file__, "existing")
def test_existing_environment_is_identified_and_evaluated(case: dict[str, Any]) -> None:
    if "made_by" in case:
        assert existing.made_by(case["marks"]) == case["made_by"]
        return
    found = existing.judge("/opt/x", {**SOUND, **case["look"]})
    assert {name: value for name, value in vars(found).items() if value} == {
        "made_by": "conda",
        **{name: tuple(value) if name == "notes" else str(value) for name, value in case["judged"].items() if value},
    }
