"""May a node take part in a launch: judged by a look at it.

cases/preflight: entry of the plan, facts and request as far as they differ from those of a fit node -> the findings;
command: what the first of them says to type.
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
# Whoever holds something, as far as a case says nothing else.
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
    """held, computing: {seat: [holders as far as they differ]}."""
    whole = {"uuids": ["GPU-aa", "GPU-bb"], "why": "", **given}
    for name in ("held", "computing"):
        whole[name] = {seat: [{**HOLDER, **one} for one in found] for seat, found in given.get(name, {}).items()}
    return whole


@cases(__file__, "preflight")
def test_preflight(case: dict[str, Any]) -> None:
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
        (True, "launch.look: could not be looked at: no JSON"),
        (False, "launch.unreachable: cannot be reached: no JSON"),
    ],
)
def test_a_node_that_does_not_answer_may_not_start(reachable: bool, said: str) -> None:
    finding = preflight.not_looked_at("node1", "no JSON", reachable=reachable)
    assert finding.status == "fail"
    assert f"{finding.id}: {finding.summary}" == said
