"""A launch of the campaign with its nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drill import Drill

if TYPE_CHECKING:
    from machines import Machine

PAYLOAD = Path(__file__).with_name("faulty.py")
NODES = ("node1", "node2", "node3")


@dataclass
class Scene(Drill):
    """machines: the nodes, by name."""

    machines: dict[str, Machine] = field(default_factory=dict)

    def request(self, *arguments: str) -> dict[str, Any]:
        """Return the launch variables, except for variables that the row sets to None."""
        given = {
            "launch_script_src": str(PAYLOAD),
            "launch_args": [f"--until={self.gate}", *arguments],
            "cluster_nproc_per_node": 1,
            "cluster_launch_nodes": list(NODES),
            "cluster_artifacts_dir": str(self.folder / "kept"),
            **self.login,
            **self.variables,
        }
        return {name: value for name, value in given.items() if value is not None}

    def diagnosis(self) -> dict[str, Any] | None:
        """Return the diagnosis, or None if the launch was not diagnosed."""
        path = self.run / "diagnosis.json"
        if not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def printed(self) -> str:
        """Return the last stderr line in the last non-empty log file of the ranks."""
        logs = sorted(self.run.glob("logs/*/rank*.stderr.log"))
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:160] if lines else ""
