"""Rows of the platforms table: which are run, and whether their machines stay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bare import Bare
from muster.sandbox.bases import BASES
from paths import ROOT, SANDBOX
from record import RECORDS, revision

if TYPE_CHECKING:
    from collections.abc import Iterator

# In the order of their worth: what most labs have comes first.
ROWS = ("ubuntu24.04", "ubuntu22.04", "debian13", "ubuntu26.04", "debian12")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--row", action="append", choices=sorted(BASES), help="this row, also when it has passed already")
    parser.addoption(
        "--keep", action="store_true", help="the machines stay, with their inventory; the next run removes them"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", metafunc.config.getoption("--row") or ROWS, scope="module")


@pytest.fixture
def bare(row: str, request: pytest.FixtureRequest) -> Iterator[Bare]:
    """The machines of a row, not made yet; whatever a run before has left of it is removed."""
    record = RECORDS / f"{row}.json"
    if not request.config.getoption("--row") and record.exists():
        kept = json.loads(record.read_text())
        if kept["passed"] and kept["revision"] == revision(ROOT):
            pytest.skip(
                f"passed on {kept['date']} in this state of the checkout: script/test platforms {row} runs it again"
            )
    # They have the same addresses: whatever an earlier row has kept makes room.
    for name in BASES:
        Bare(name, SANDBOX / name).down()
    folder = SANDBOX / row
    folder.mkdir(parents=True, exist_ok=True)
    machines = Bare(row, folder)
    for file in folder.glob("id_ed25519*"):
        file.unlink()
    yield machines
    if not request.config.getoption("--keep"):
        machines.down()
