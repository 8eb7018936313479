#!/usr/bin/env python3
"""Read a site's diagnosis rules, and show how they change the diagnosis of kept launches.

    .venv/bin/python script/replay_rules.py examples/diagnosis_rules.yml artifacts/lab/<launch>/evidence.json ...

Without a launch, only the rules file is read. The exit code is 1 if the file is invalid.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "plugins" / room) for room in ("module_utils", "plugin_utils")]

if TYPE_CHECKING:
    from muster.diagnosis.decide import Decided


def main(file: str, kept: list[str]) -> int:
    site_rules = importlib.import_module("muster.diagnosis.site_rules")
    rule_files = importlib.import_module("muster_controller.diagnosis.rule_files")
    rules, problems = rule_files.read_rules([file], commands=False, folder=Path.cwd())
    for problem in problems:
        print(problem)
    if problems:
        return 1
    print(f"{file}: {len(rules.texts)} texts, {len(rules.causes)} causes, {len(rules.commands)} commands")
    for path in kept:
        try:
            before, after = site_rules.replayed(rules, json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as exc:
            print(f"{path}: not the evidence of a launch ({type(exc).__name__})")
            continue
        same = summary(before) == summary(after)
        print(f"{path}: {summary(after)}" if same else f"{path}: was {summary(before)}; is {summary(after)}")
    return 0


def summary(decided: Decided) -> str:
    causes = [f"{one.cause.id} {one.place.node or 'no node'}" for one in decided.causes]
    return f"{decided.word}{': ' + ', '.join(causes) if causes else ''}"


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
