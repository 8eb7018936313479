"""Caches the inspections of a node for later steps of the run, until the node changes or the inspection is too old.

The cache is in the temporary folder that ansible-playbook shares with its workers and deletes at its end. A cache in
the run's artifacts folder would create that folder, and therefore an empty report.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants

from muster_controller.artifacts import runs
from muster_controller.artifacts.private_files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Json = dict[str, Any]

FILE = "looks.json"
OLD = 300.0  # seconds; other users may change the node


class KeptLooks:
    """The cached inspections. Times are on the monotonic clock, which is sufficient within one run."""

    def __init__(self) -> None:
        self.path = Path(constants.DEFAULT_LOCAL_TMP) / FILE
        found = runs.read_json(self.path)
        self.nodes: dict[str, Json] = found.get("nodes", {}) if isinstance(found.get("nodes"), dict) else {}

    def of(self, step: str, name: str) -> Json | None:
        """Return the cached inspection of a node for this step, or None if there is no valid one."""
        kept = self.nodes.get(name, {})
        if step not in kept.get("steps", ()) or kept["at"] + OLD < time.monotonic():
            return None
        seen: Json = kept["seen"]
        return seen

    def keep(self, steps: Mapping[str, Iterable[str]], answers: Json) -> None:
        """Add inspections to the cache. steps: the steps for which each node was inspected."""
        now = time.monotonic()
        self.nodes.update({name: {"at": now, "steps": [*steps[name]], "seen": seen} for name, seen in answers.items()})

    def forget(self, names: Iterable[str]) -> None:
        """Remove nodes that are about to change from the cache."""
        for name in names:
            self.nodes.pop(name, None)

    def write(self) -> None:
        write_text(self.path, json.dumps({"nodes": self.nodes}))
