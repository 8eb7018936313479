"""Every file in cases/ describes one node with a container engine, and the expected plan.

By default, the engine is installed and its daemon responds. steps: commands. after_reload: the message if docker does
not list the runtime after a reload.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.gpu_stack import container_engine
from muster.gpu_stack.container_engine import PROGRAMS, ContainerEngineState


@cases(__file__, "container_engine")
def test_container_engine_plan_matches_the_case(case: dict[str, Any]) -> None:
    given = {"answers": True, "programs": [PROGRAMS[case["seen"]["engine"]]], **case["seen"]}
    given |= {name: frozenset(given.get(name, ())) for name in ("programs", "runtimes")}
    seen = ContainerEngineState(**{**given, "containers": tuple(given.get("containers", ()))})
    plan = container_engine.make_plan(seen)
    assert [" ".join(step.argv) for step in plan.steps] == case.get("steps", [])
    assert plan.differences == case.get("differences", [])
    assert plan.problems == case.get("problems", [])
    assert plan.notes == case.get("notes", [])
    assert container_engine.after_reload(seen) == case.get("after_reload", "")
    assert bool(plan.steps) is bool(plan.differences)
