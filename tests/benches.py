"""The measurements of tests/bench, and the environment that their docstrings show."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests/bench"
STARTED_BY_OTHERS = {"small_training"}  # observation launches it on nodes
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - STARTED_BY_OTHERS)


def environment(name: str) -> dict[str, str]:
    """Return the environment in which the docstring starts the measurement: with its PYTHONPATH or none."""
    shown = re.search(r"PYTHONPATH=(\S+)", (FOLDER / f"{name}.py").read_text().split('"""')[1])
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**inherited, "PYTHONPATH": shown[1]} if shown else inherited
