"""The `seen` value of every check is verified by searching the tests for the id of the check.

sandbox: named by a test on sandbox nodes without simulated GPUs. recording: named by a case with recorded input,
possibly modified. stand-in: named by another unit test. never: named by no test. A check can declare less than its
tests show, because a case can add data that the recording does not contain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cases import documents_of
from muster.health.subjects import subjects
from muster.verdict.check import SEEN, Check
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = ROOT / "tests/unit"
ON_NODES = ("tests/integration", "tests/slow", "molecule")
WITH_STANDIN_GPUS = {"test_gpu_health.py", "test_gpu_parts.py"}
# Folder of cases -> (key with invented input on top of the recording, subjects that it concerns).
ALL = ""
RECORDED = {
    "gpu_info/cases/judge": ("look", ALL),
    "inspect/cases/verdict": (None, ALL),
    "firewall/cases/plan": (None, ALL),
    "health/cases/judge": ("base", "rdma pci kernel_log ras software"),
}
# A word with dots that is not a file or attribute name.
ID = re.compile(r"(?<![\w./-])[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+(?![\w.(/=-])")


def declared() -> dict[str, Check]:
    listed = re.findall(
        r"^\| `([a-z0-9_.]+)` \|.*\| ([a-z-]+) \|$", (ROOT / "docs/findings.md").read_text(), re.MULTILINE
    )
    return {name: seen for name, seen in listed if "." in name}


SUBJECT_OF = {check.id: name for name, subject in subjects().items() for check in subject.CHECKS}


def named_in(paths: Iterator[Path]) -> set[str]:
    return {name for path in paths if path.suffix in (".py", ".yml") for name in ID.findall(path.read_text())}


def recorded() -> Iterator[str]:
    for folder, (key, made_up) in RECORDED.items():
        for path in (UNIT / folder).iterdir():
            text = path.read_text()
            cases = list(documents_of(text))
            changed = key is not None and any(key in case for case in cases)
            for name in ID.findall(text):
                if not changed or (made_up and SUBJECT_OF.get(name, "") not in made_up.split()):
                    yield name


WITNESSES = {
    "sandbox": named_in(
        path for place in ON_NODES for path in (ROOT / place).rglob("*") if path.name not in WITH_STANDIN_GPUS
    ),
    "recording": set(recorded()),
    "stand-in": named_in(path for path in UNIT.rglob("*")),
}


@pytest.mark.parametrize(("name", "seen"), declared().items())
def test_declared_evidence_of_a_check_is_backed_by_tests(name: str, seen: str) -> None:
    found = [kind for kind in SEEN if name in WITNESSES.get(kind, ())]
    best = found[0] if found else "never"
    assert SEEN.index(seen) >= SEEN.index(best), f"the tests show only: {best}"
    assert seen != "never" or best == "never"
