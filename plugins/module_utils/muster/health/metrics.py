"""A node's health as node_exporter's textfile collector reads it (Prometheus text format 0.0.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..verdict.finding import Finding

VALUES = {"pass": 0, "warn": 1, "fail": 2, "unknown": 3}
HEAD = """\
# HELP muster_check_status What a check of Muster found: 0 pass, 1 warn, 2 fail, 3 unknown.
# TYPE muster_check_status gauge
"""
TIME = """\
# HELP muster_check_timestamp_seconds When Muster last looked at this node.
# TYPE muster_check_timestamp_seconds gauge
muster_check_timestamp_seconds %d
"""
WORST = ("pass", "warn", "unknown", "fail")


def textfile(findings: list[Finding], when: float) -> str:
    """The metrics of one node: the worst status of each check and peer."""
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
    """A label's value by the rules of the text format."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
