"""Score the diagnosis on public reports: the logs of each report are diagnosed as `muster why FOLDER` does.

    .venv-dev/bin/python tests/bench/diagnosis_score.py open
    .venv-dev/bin/python tests/bench/diagnosis_score.py second --json

The closed half measures the diagnosis at the end of a development. Its score is published as it is, so it needs
`--final`, and only its totals are shown. docs/dev/reports.md contains the scores.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from reports import Report


def answer(report: Report) -> Any:
    """Write the logs of a report to a folder, and diagnose the folder."""
    diagnosed = importlib.import_module("muster_controller.diagnosis.logs_alone").diagnosed
    with tempfile.TemporaryDirectory() as folder:
        for name, text in report.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return diagnosed(folder)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Score the diagnosis on public reports.")
    parser.add_argument("half", choices=("open", "second", "third", "closed"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--final", action="store_true", help="score the closed half; the score must be published")
    chosen = parser.parse_args()
    is_open = chosen.half != "closed"
    if not is_open and not chosen.final:
        parser.error("the closed half is scored once, at the end, with --final; develop with the open half")
    sys.path[:0] = [str(ROOT / room) for room in ("tests", "plugins/module_utils", "plugins/plugin_utils")]
    reports = importlib.import_module("reports")
    found = [reports.scored(one, answer(one)) for one in reports.reports_of(chosen.half)]
    if chosen.json:
        print(reports.as_json(chosen.half, found, details=is_open))
    else:
        print(reports.table(found, details=is_open))


if __name__ == "__main__":
    main()
