"""Options that select rows of the platforms table and keep machines after the run."""

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

# By priority: the most common platforms first.
ROWS = ("ubuntu24.04", "ubuntu22.04", "debian13", "ubuntu26.04", "debian12")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--row", action="append", choices=sorted(BASES), help="run this row, even after a pass")
    parser.addoption("--keep", action="store_true", help="keep the machines and their inventory until the next run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "row" in metafunc.fixturenames:
        metafunc.parametrize("row", metafunc.config.getoption("--row") or ROWS, scope="module")


@pytest.fixture
def bare(row: str, request: pytest.FixtureRequest) -> Iterator[Bare]:
    """Remove remains of earlier runs, then yield the machines of a row. The test creates the machines."""
    record = RECORDS / f"{row}.json"
    if not request.config.getoption("--row") and record.exists():
        kept = json.loads(record.read_text())
        if kept["passed"] and kept["revision"] == revision(ROOT):
            pytest.skip(
                f"passed on {kept['date']} in this state of the checkout: script/test platforms {row} runs it again"
            )
    # All rows use the same addresses, so kept machines of earlier rows are removed.
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
