"""A check: one thing that Muster can find, declared once beside the rule that finds it.

    LOST = Check(
        "gpu.lost",
        reads="the GPUs on the bus, and those that nvidia-smi lists",
        fires="fail: one on the bus does not answer",
        fix="Drain the node and restart it; if it comes back, the GPU goes to its maker",
    )
    ...
    out.add(LOST.fail(node, f"GPU {slot} does not answer", command=f"nvidia-smi -q -i {slot}"))

The catalogue (docs/findings.md), its order, and what a verdict says it looked for come from these objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .finding import Finding, fix_with


@dataclass(frozen=True)
class Check:
    """One kind of finding, in words for the user.

    id: stable, dotted, lower-case. reads: what is looked at. fires: when it is not a `pass`, with the threshold and
    what it is based on. fix: what fixes it; a finding says this unless it is given words of its own.
    """

    id: str
    reads: str
    fires: str
    fix: str = ""

    def fail(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        """more: other fields of Finding (observed, expected, evidence, peer)."""
        return self._finding("fail", node, summary, fix, command, more)

    def warn(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("warn", node, summary, fix, command, more)

    def unknown(self, node: str, summary: str, fix: str | None = None, command: str = "", **more: Any) -> Finding:
        return self._finding("unknown", node, summary, fix, command, more)

    def passed(self, node: str, summary: str, **more: Any) -> Finding:
        return Finding(self.id, "pass", node, summary, **more)

    def skip(self, why: str) -> dict[str, str]:
        """One entry of a verdict's coverage: this was not looked for, and why."""
        return {"id": self.id, "why": why}

    def _finding(
        self, status: str, node: str, summary: str, fix: str | None, command: str, more: dict[str, Any]
    ) -> Finding:
        return Finding(self.id, status, node, summary, fix=fix_with(self.fix if fix is None else fix, command), **more)
