"""The preflight checks of a node.

cases/preflight: differences of plan entry, facts and request from those of a healthy node -> the findings. command: the
command in the fix of the first finding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases import cases
from launch_shapes import a_plan, facts_of_a_fit_node
from muster.launch import preflight
from muster.launch.preflight import Requested

(ENTRY,) = a_plan({"node1": 2}, entry={"env": {}, "environment": "/opt/x"}).nodes
# The default holder of a resource.
HOLDER: dict[str, Any] = {
    **dict.fromkeys(("command", "user", "unit", "name", "launch_id"), ""),
    "pid": 441,
    "seconds": None,
    "begun": True,
    "detached": False,
    "manager_of": None,
    "ours": False,
}
REQUESTED: dict[str, Any] = {
    "user": "muster",
    "backend": "gloo",
    "min_free_bytes": 64_000_000,
    "script_is_sent": False,
}


def occupied(given: dict[str, Any]) -> dict[str, Any]:
    """Return the state of all slots. held, computing: {slot: [differences from the default holder]}."""
    whole = {"uuids": ["GPU-aa", "GPU-bb"], "why": "", **given}
    for name in ("held", "computing"):
        whole[name] = {seat: [{**HOLDER, **one} for one in found] for seat, found in given.get(name, {}).items()}
    return whole


@cases(__file__, "preflight")
def test_node_facts_produce_the_expected_preflight_findings(case: dict[str, Any]) -> None:
    facts: Any = facts_of_a_fit_node(**case.get("facts", {}))
    facts["occupied"] = occupied(case.get("occupied", {}))
    for port in {"port", "beat_port"} & set(facts):
        facts[port] = {**facts[port], "holders": [{**HOLDER, **one} for one in facts[port]["holders"]]}
    requested = Requested(**{**REQUESTED, **case.get("request", {})})
    findings = preflight.judge(replace(ENTRY, **case.get("entry", {})), facts, requested)
    assert [f"{one.id} {one.status}: {one.summary}" for one in findings] == case["expect"]
    assert all(one.node == "node1" and (one.fix.get("text") or one.status == "pass") for one in findings)
    first = findings[0].fix if findings else {}
    assert (first.get("text"), first.get("command")) == (case.get("fix"), case.get("command"))


@pytest.mark.parametrize(
    ("reachable", "said"),
    [
        (True, "launch.look: could not be checked: no JSON"),
        (False, "launch.unreachable: unreachable: no JSON"),
    ],
)
def test_node_without_an_answer_fails_preflight(reachable: bool, said: str) -> None:
    finding = preflight.not_looked_at("node1", "no JSON", reachable=reachable)
    assert finding.status == "fail"
    assert f"{finding.id}: {finding.summary}" == said
