"""Automatic quarantine: which node is quarantined, and when none is."""

from __future__ import annotations

from typing import Any

import pytest

from cases import cases
from muster.health.by_itself import HARD, decide
from muster.health.subjects import subjects


def finding(text: str) -> dict[str, str]:
    """Parse a finding from "status id node[/peer]: summary"."""
    head, _, summary = text.partition(": ")
    status, name, place = head.split()
    node, _, peer = place.partition("/")
    return {"status": status, "id": name, "node": node, "peer": peer, "summary": summary or "broken"}


@cases(__file__, "by_itself")
def test_node_to_quarantine_automatically_matches_the_case(case: dict[str, Any]) -> None:
    found = decide([finding(one) for one in case["findings"]], case["nodes"], case.get("chosen", []))
    assert (found.node, found.reason, found.notes) == (
        case.get("node", ""),
        case.get("reason", ""),
        case.get("notes", []),
    )


@pytest.mark.parametrize("status", ["unknown", "warn", "pass", "skipped"])
@pytest.mark.parametrize("name", HARD)
def test_only_a_failure_quarantines_a_node(name: str, status: str) -> None:
    nodes = {"node1": False, "node2": False, "node3": False}
    assert decide([finding(f"{status} {name} node2")], nodes).node == ""
    assert decide([finding(f"fail {name} node2")], nodes).node == "node2"


def test_every_listed_fault_is_a_health_check() -> None:
    assert set(HARD) <= {check.id for module in subjects().values() for check in module.CHECKS}
