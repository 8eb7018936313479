"""Write the campaign's tables into docs/dev/campaign.md from the results in artifacts/campaign"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "artifacts/campaign"
PAGE = ROOT / "docs/dev/campaign.md"
HEAD = "| fault | launch | printed | rating | diagnosis | first proof | s |\n|---|---|---|---|---|---|---|"
TWINS = "| symptom | possible faults | distinguished |\n|---|---|---|"
SOUND = "| launch | outcome | findings | s |\n|---|---|---|---|"


def main() -> None:
    kept = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
    faults = [row for row in kept if "fault" in row]
    sound = [row for row in kept if "fault" not in row]
    page = PAGE.read_text()
    page = between(page, "campaign", "\n".join([summary(faults), "", HEAD, *map(fault_row, faults)]))
    page = between(page, "twins", "\n".join([TWINS, *twins(faults)]))
    page = between(page, "sound launches", "\n".join([SOUND, *map(sound_row, sound)]))
    PAGE.write_text(page)


def between(page: str, name: str, table: str) -> str:
    """Return the page after replacing the table between the marks of this name."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    assert marks.search(page), f"{PAGE.name} has no place for {name}"
    return marks.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def summary(rows: list[dict[str, Any]]) -> str:
    count = {word: sum(row["judged"] == word for row in rows) for word in sorted({row["judged"] for row in rows})}
    parts = ", ".join(f"{word}: {number}" for word, number in count.items())
    return f"{len(rows)} faults; {parts}."


def fault_row(row: dict[str, Any]) -> str:
    cells = [
        row["fault"],
        "user" if row["own"] else "administrator",
        f"`{row['printed']}`" if row["printed"] else "",
        row["judged"],
        row["said"],
        row["proof"],
        str(row["seconds"]),
    ]
    return line(cells)


def twins(rows: list[dict[str, Any]]) -> list[str]:
    """Return a table row per group of faults with the same symptom. "yes": each of these faults was identified."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("twin") and not row["own"]:
            found.setdefault(row["twin"], []).append(row)
    return [
        line([f"`{shown}`", "; ".join(row["fault"] for row in alike), "yes" if all(map(is_right, alike)) else "no"])
        for shown, alike in sorted(found.items())
        if len(alike) > 1
    ]


def is_right(row: dict[str, Any]) -> bool:
    return str(row["judged"]).startswith(("right", "unknown, correctly"))


def sound_row(row: dict[str, Any]) -> str:
    return line([row["launch"], row["status"], row["said"] or "nothing", str(row["seconds"])])


def line(cells: list[str]) -> str:
    shown = (re.sub(r"\s+", " ", cell).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
