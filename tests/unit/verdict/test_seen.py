"""What a check says that it was seen by is so: the tests are searched for its id.

sandbox: a test that runs on nodes of the sandbox names it, and not one whose GPUs are stand-ins. recording: a case
names it whose input is a recording, changed as the case says. stand-in: another unit test does. never: no test does.
A check may say less than its tests: a case can also make up what the recording lacks.
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
# By the folder of cases: the key of a case that lays something made up over the recording, and of which subjects.
ALL = ""
RECORDED = {
    "gpu_info/cases/judge": ("look", ALL),
    "inspect/cases/verdict": (None, ALL),
    "firewall/cases/plan": (None, ALL),
    "health/cases/judge": ("base", "rdma pci kernel_log ras software"),
}
# A word with dots that is no name of a file or of an attribute.
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
def test_a_check_was_seen_by_what_it_says(name: str, seen: str) -> None:
    found = [kind for kind in SEEN if name in WITNESSES.get(kind, ())]
    best = found[0] if found else "never"
    assert SEEN.index(seen) >= SEEN.index(best), f"at best it was seen by: {best}"
    assert seen != "never" or best == "never"
