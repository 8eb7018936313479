"""Update the tables of docs/dev/drills.md from the last drill results: python tests/integration/drill_table.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Administrator launches next to user launches, see drill_ways.py. A table without measurements stays unchanged.
TABLES = {"drills": ("administrators", "own"), "accelerate drills": ("accelerate", "own-accelerate")}
HEAD = [
    "| fault | noticed, s | all clean, s | user launch: noticed, s | user launch: all clean, s | verdict |",
    "|---|---|---|---|---|---|",
]
NOT_RUN = {"noticed": "not run", "clean": "not run"}


def main() -> None:
    rows = json.loads((ROOT / "artifacts/drills.json").read_text())
    page = ROOT / "docs/dev/drills.md"
    text = page.read_text()
    for name, ways in TABLES.items():
        lines = [line(fault, *(measured.get(way) for way in ways)) for fault, measured in rows.items()]
        table = "\n".join(HEAD + [one for one in lines if one])
        found = re.search(rf"<!-- {name}: .*? -->\n(.*?)<!-- end of {name} -->", text, re.DOTALL)
        if any(lines) and found:
            text = f"{text[: found.start(1)]}\n{table}\n\n{text[found.end(1) :]}"
    page.write_text(text)


def line(fault: str, administrators: dict[str, Any] | None, own: dict[str, Any] | None) -> str:
    """Return a row of the table, or "" if neither launch was measured."""
    if not (administrators or own):
        return ""
    said = (administrators or own or {})["verdict"]
    verdict = re.sub(r"/var/lib/\S+/", "", said).replace("|", "\\|")
    seconds = [(one or NOT_RUN)[what] for one in (administrators, own) for what in ("noticed", "clean")]
    return f"| {' | '.join(map(str, [fault, *seconds, verdict]))} |"


if __name__ == "__main__":
    main()
