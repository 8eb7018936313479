#!/usr/bin/env python3
"""Write the table of steps into README.md, from muster/road/steps.py.

Run it with .venv-dev/bin/python after a change of steps. A test compares README.md with the output of --show.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "README.md"
HEAD = "| step | does |\n|---|---|\n"


def readme() -> str:
    """Return README.md with the current table of steps. Raises ValueError if README.md contains no such table."""
    sys.path.insert(0, str(ROOT / "plugins/module_utils"))
    steps = importlib.import_module("muster.road.steps").STEPS
    rows = "".join(f"| `{step.tag}` | {step.does} |\n" for step in steps if step.does)
    before, head, after = TARGET.read_text().partition(HEAD)
    if not head:
        raise ValueError(f"{TARGET.name} contains no table that begins with {HEAD.splitlines()[0]}")
    return before + head + rows + re.sub(r"\A(\|.*\n)*", "", after)


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(readme())
    else:
        TARGET.write_text(readme())
