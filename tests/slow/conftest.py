"""Fixtures of the slow tests: the stages kills, lines, commands and others. docs/dev/proof.md lists the latest
results."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from killable import HOSTS
from machines import run_playbook
from paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Results of the tests as tables for docs/dev/proof.md.
FIGURES = ROOT / "artifacts/proof"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=random.randrange(10_000), help="seed of the random moments")
    parser.addoption("--kills", type=int, default=20, help="number of runs to kill")


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed of the random moments: --seed={config.getoption('--seed')}"


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Return a function that starts two nodes and the outsider if they are not running."""

    def bring() -> None:
        play = run_playbook(tmp_path_factory.mktemp("up"), "playbooks/sandbox_up.yml", inventory=HOSTS)
        assert play.rc == 0, play.stdout

    return bring


@pytest.fixture(scope="session")
def figures() -> Callable[[str, list[dict[str, Any]]], Path]:
    """Return a function that writes measurements as a Markdown table."""

    def write(name: str, rows: list[dict[str, Any]]) -> Path:
        FIGURES.mkdir(parents=True, exist_ok=True)
        path = FIGURES / f"{name}.md"
        table = [list(rows[0]), ["---"] * len(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        path.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in table))
        return path

    return write
