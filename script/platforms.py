#!/usr/bin/env python3
"""Write the table of platforms in docs/dev/proof.md from the records of script/test platforms.

Run it with .venv-dev/bin/python after a platform test. Rows that were not run here keep their content.
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
    "| base | date | system, kernel | Python, systemd | PyTorch | first, s | again, s | result |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def cells(record: dict[str, Any]) -> list[str]:
    """Return the cells of a row that was run."""
    versions, seconds, changed = record["versions"], record["seconds"], record["changed"]
    if not versions:
        return [record["date"], "", "", "", "", "", f"not tested: {record['why']}".replace("|", "/")]
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
    """Return the table. Rows that were not run keep their previous content."""
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
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n\n{table(text[start:end])}\n{text[end:]}")


if __name__ == "__main__":
    main()
