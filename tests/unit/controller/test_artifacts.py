"""Files that the controller keeps of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from muster_controller.artifacts import point_latest, write_json

if TYPE_CHECKING:
    from pathlib import Path


def test_latest_points_to_the_newest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_json(tmp_path / name / "verdict.json", {"name": name})
        point_latest(tmp_path / name)
    assert json.loads((tmp_path / "latest/verdict.json").read_text()) == {"name": "two"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "one", "two"]
