"""The record of a row of the platforms table: artifacts/platforms/<row>.json. script/platforms.py creates the table
from the records."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = ROOT / "artifacts/platforms"


def revision(root: Path) -> str:
    """Return the commit of the checkout, with a suffix for uncommitted changes."""
    described = ["git", "describe", "--always", "--abbrev=10", "--dirty", "--exclude=*"]
    return subprocess.run(described, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Record:
    """The record of one row, which is written for every outcome."""

    row: str
    passed: bool = False
    why: str = ""
    verdict: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def write(self) -> None:
        RECORDS.mkdir(parents=True, exist_ok=True)
        now = dt.datetime.now(dt.timezone.utc)
        kept: dict[str, Any] = {**vars(self), "date": now.strftime("%Y-%m-%d"), "revision": revision(ROOT)}
        (RECORDS / f"{self.row}.json").write_text(json.dumps(kept, indent=2) + "\n")
