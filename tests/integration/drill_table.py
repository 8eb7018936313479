"""Write the table of docs/launch.md from what the last drills measured: python tests/integration/drill_table.py"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WAYS = (False, True)  # an administrator's launch, and somebody's own
PLACE = re.compile(r"(<!-- drills: .*? -->\n).*?(<!-- end of drills -->)", re.DOTALL)


def main() -> None:
    faults: dict[str, dict[bool, dict[str, Any]]] = {}
    for row in json.loads((ROOT / "artifacts/drills.json").read_text()).values():
        faults.setdefault(row["fault"], {})[row["own"]] = row
    lines = [
        "| fault | noticed, s | all clean, s | own launch: noticed, s | all clean, s | what the verdict said |",
        "|---|---|---|---|---|---|",
    ]
    for fault, rows in faults.items():
        times = " | ".join(f"{rows[own]['noticed']} | {rows[own]['clean']}" if own in rows else "- | -" for own in WAYS)
        row = rows.get(False) or rows[True]
        verdict = re.sub(r"/var/lib/\S+/", "", row["verdict"]).replace("|", "\\|")
        lines.append(f"| {fault} | {times} | {verdict} |")
    page = ROOT / "docs/launch.md"
    table = "\n".join(lines)
    page.write_text(PLACE.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", page.read_text()))


if __name__ == "__main__":
    main()
