#!/usr/bin/env python3
"""Write the table of systems in docs/dev/proof.md from what script/test platforms has recorded.

Run it with .venv-dev/bin/python after a row. A row that was not run here keeps what the page says of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/dev/proof.md"
RECORDS = ROOT / "artifacts/platforms"
ROWS = ("ubuntu22.04", "ubuntu24.04", "ubuntu26.04", "debian12", "debian13")
BEGIN, END = "<!-- script/platforms.py -->", "<!-- end of it -->"
HEAD = (
    "| base | date | system, kernel | Python, systemd | PyTorch | first, s | again, s | what came of it |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def cells(record: dict[str, Any]) -> list[str]:
    """Return what the table says of a row that was run."""
    versions, seconds, changed = record["versions"], record["seconds"], record["changed"]
    if not versions:
        return [record["date"], "", "", "", "", "", f"not seen: {record['why']}".replace("|", "/")]
    outcome = "HEALTHY, then no change" if record["passed"] else f"FAILED: {record['why']}"
    return [
        record["date"],
        f"{versions['system']}, {versions['kernel']}",
        f"{versions['python']}, {versions['systemd']}",
        versions["torch"],
        f"{seconds['site']:.0f} ({changed['site']} changes)",
        f"{seconds['again']:.0f} ({changed['again']})" if "again" in seconds else "",
        outcome.replace("|", "/"),
    ]


def table(before: str) -> str:
    """Return the table, with the lines of rows that were not run as they were before."""
    lines = []
    for row in ROWS:
        record = RECORDS / f"{row}.json"
        kept = re.search(rf"^\| {re.escape(row)} \|.*$", before, re.MULTILINE)
        if record.exists():
            lines.append(f"| {' | '.join([row, *cells(json.loads(record.read_text()))])} |")
        else:
            lines.append(kept[0] if kept else f"| {row} | | | | | | | not run |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Replace the table in the page."""
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n\n{table(text[start:end])}\n{text[end:]}")


if __name__ == "__main__":
    main()
