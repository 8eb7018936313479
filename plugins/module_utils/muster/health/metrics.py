"""Exports a node's health for node_exporter's textfile collector (Prometheus text format 0.0.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..verdict.finding import Finding

VALUES = {"pass": 0, "warn": 1, "fail": 2, "unknown": 3}
HEAD = """\
# HELP muster_check_status Status of a Muster check: 0 pass, 1 warn, 2 fail, 3 unknown.
# TYPE muster_check_status gauge
"""
TIME = """\
# HELP muster_check_timestamp_seconds Time of the last Muster check of this node.
# TYPE muster_check_timestamp_seconds gauge
muster_check_timestamp_seconds %d
"""
WORST = ("pass", "warn", "unknown", "fail")


def textfile(findings: list[Finding], when: float) -> str:
    """Return the metrics of one node. Each check and peer has its worst status."""
    status: dict[tuple[str, str], str] = {}
    for finding in findings:
        key = (finding.id, finding.peer or "")
        status[key] = max(status.get(key, "pass"), finding.status, key=WORST.index)
    lines = [
        f'muster_check_status{{check="{escaped(check)}",peer="{escaped(peer)}"}} {VALUES[status[check, peer]]}\n'
        for check, peer in sorted(status)
    ]
    return HEAD + "".join(lines) + TIME % when


def escaped(label: str) -> str:
    """Return the value escaped for the Prometheus text format."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
