"""The looks of a run, for the steps that follow: until the node was changed, or the look is old.

They lie in the temporary folder that ansible-playbook has for itself and its workers, and go with it. A run's own
folder they would bring about, with a page that has nothing to say.
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
OLD = 300.0  # seconds; somebody else may have been at work since


class KeptLooks:
    """Times are of the monotonic clock: the file is for its own run alone."""

    def __init__(self) -> None:
        self.path = Path(constants.DEFAULT_LOCAL_TMP) / FILE
        found = runs.read_json(self.path)
        self.nodes: dict[str, Json] = found.get("nodes", {}) if isinstance(found.get("nodes"), dict) else {}

    def of(self, step: str, name: str) -> Json | None:
        """What was seen for this step, as far as it still holds."""
        kept = self.nodes.get(name, {})
        if step not in kept.get("steps", ()) or kept["at"] + OLD < time.monotonic():
            return None
        seen: Json = kept["seen"]
        return seen

    def keep(self, steps: Mapping[str, Iterable[str]], answers: Json) -> None:
        """steps: those that each node was looked at for."""
        now = time.monotonic()
        self.nodes.update({name: {"at": now, "steps": [*steps[name]], "seen": seen} for name, seen in answers.items()})

    def forget(self, names: Iterable[str]) -> None:
        """These nodes are about to be changed."""
        for name in names:
            self.nodes.pop(name, None)

    def write(self) -> None:
        write_text(self.path, json.dumps({"nodes": self.nodes}))
