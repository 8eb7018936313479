#!/usr/bin/env python3
"""Write docs/findings.md: every finding that Muster can make, from what the rules declare beside themselves.

Run it with .venv/bin/python after a change there; a test holds the file equal to what this prints with --show.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
UTILS = ROOT / "plugins/module_utils"
sys.path.insert(0, str(UTILS))
TARGET = ROOT / "docs/findings.md"
HEAD = """\
# Findings

What Muster can find, by id. The ids stay the same from one version to the next, so scripts and dashboards may go by
them. A finding is `pass`, `warn` (slower, or it will break later), `fail` (a launch breaks, or computes wrongly) or
`unknown` (it matters, and could not be found out). What was not looked at is no finding: it is listed under `skipped`,
with the reason. Commands are as they are typed for inventory/lab. Written by script/findings.py from the code.

"""

if TYPE_CHECKING:
    from muster.verdict.check import Check


def declared() -> dict[str, Check]:
    """Return every check by its id. Raises ValueError where two are declared with the same."""
    kind = importlib.import_module("muster.verdict.check").Check
    found: dict[str, Check] = {}
    for path in sorted((UTILS / "muster").rglob("*.py")):
        if not any(word in path.read_text() for word in ("CHECKS", "Check(")):
            continue
        module = importlib.import_module(".".join(path.relative_to(UTILS).with_suffix("").parts))
        for check in (*vars(module).values(), *getattr(module, "CHECKS", ())):
            if isinstance(check, kind) and found.setdefault(check.id, check) is not check:
                raise ValueError(f"two checks are called {check.id}, and {module.__name__} has one of them")
    return found


def catalogue() -> str:
    """Return the text of the file."""
    checks = declared()
    families = importlib.import_module("muster.verdict.families")
    groups = {families.family(finding): families.title(finding) for finding in sorted(checks, key=families.place)}
    return HEAD + "\n".join(_group(group, title, checks) for group, title in groups.items())


def _group(group: str, title: str, checks: dict[str, Check]) -> str:
    lines = [f"## {title}\n", "| id | reads | fires when | what fixes it |", "|---|---|---|---|"]
    lines += [
        f"| `{finding}` | {_cell(check.reads)} | {_cell(check.fires)} | {_cell(_fix(check))} |"
        for finding, check in sorted(checks.items())
        if finding.partition(".")[0] == group
    ]
    return "\n".join(lines) + "\n"


def _fix(check: Check) -> str:
    return f"{check.fix}: {check.command}" if check.command else check.fix


def _cell(text: str) -> str:
    commands = importlib.import_module("muster.verdict.commands")
    typed = commands.Terminal(".venv/bin/", ("inventory/lab",)).text(text)
    return " ".join(typed.split()).replace("|", r"\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--show"]:
        sys.stdout.write(catalogue())
    else:
        TARGET.write_text(catalogue())
