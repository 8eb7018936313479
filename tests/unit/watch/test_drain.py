"""Drain and resume in Slurm by a node's own check."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cases import cases
from muster.watch.answer import NodeAnswer
from muster.watch.drain import SlurmNode, decide


@cases(__file__, "drain")
def test_step_in_slurm_matches_the_case(case: dict[str, Any]) -> None:
    status, owner, reason = case["answer"]
    answer = NodeAnswer("n1", "short", 0.0, 0.0, status, owner, reason, (), hard=False, warnings=(), ran=1)
    nodes = [node for line in case["nodes"] if (node := SlurmNode.read(line))]
    step = decide(answer, nodes, "n1", case.get("quarantine"))
    assert {name: value for name, value in asdict(step).items() if value} == case["step"]
