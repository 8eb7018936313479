"""The status word that tells scripts how a launch ended, independent of the exit code of ansible-playbook."""

from __future__ import annotations

from typing import Any

import pytest

from launch_shapes import a_plan
from muster.launch.endings import Ending
from muster.report import Artifacts, outcome, run_verdict

PLAN = a_plan(1)
FAILURE = {"node": "cluster", "task": "Validate the inventory", "why": "two problems", "unreachable": False}


def finding(name: str, status: str = "fail") -> dict[str, Any]:
    return {"id": name, "status": status, "node": "node1", "summary": "x"}


def of(*findings: dict[str, Any], status: str = "failed", **run: Any) -> str:
    """Return the status word in run.json for a run of launch.yml."""
    verdict = {"status": status, "summary": "x", "findings": list(findings)} if findings else {}
    kept = Artifacts(run={"playbook": "launch.yml", **run}, verdict=verdict, plan=PLAN if findings else None)
    found: str = outcome(kept).get("launch", "")
    return found


def test_every_launch_outcome_has_a_status_word() -> None:
    for ending in Ending:
        assert of(finding(ending.check.id)) == run_verdict.word_of(ending)
    assert {*map(run_verdict.word_of, Ending), run_verdict.GIVEN_UP} == set(run_verdict.ORDER)


@pytest.mark.parametrize(
    ("findings", "status", "word"),
    [
        ([finding("launch.ended", "pass"), finding("launch.gpus", "warn")], "degraded", "finished"),
        ([finding("launch.preflight", "pass"), finding("launch.script")], "failed", "refused"),
        ([finding("launch.preflight", "pass"), finding("net.master_port.dropped")], "failed", "refused"),
        ([finding("launch.taken")], "failed", "refused"),
        ([finding("launch.exception"), finding("launch.leftover")], "failed", "failed"),
        ([finding("launch.node"), finding("launch.leftover", "unknown")], "failed", "lost"),
        ([finding("launch.exception"), finding("launch.given_up")], "failed", "given_up"),
        ([finding("launch.interrupted", "unknown")], "unknown", "stopped"),
        ([finding("launch.detached", "unknown")], "unknown", "detached"),
    ],
)
def test_status_word_follows_from_the_findings(findings: list[dict[str, Any]], status: str, word: str) -> None:
    assert of(*findings, status=status) == word


def test_launch_without_a_verdict_has_the_status_refused() -> None:
    assert of(failures=[FAILURE]) == "refused"
    assert of(failures=[FAILURE], playbook="site.yml, launch.yml") == "refused"


def test_acceptance_test_has_the_status_refused_only_if_it_did_not_start() -> None:
    verdict = {"status": "failed", "summary": "x", "findings": [finding("smoke.loss")]}
    run = {"playbook": "ddp_smoke.yml"}
    assert "launch" not in outcome(Artifacts(run=run, verdict=verdict, plan=PLAN, smoke={"verdict": {}}))
    verdict["findings"] = [finding("launch.disk")]
    assert outcome(Artifacts(run=run, verdict=verdict, plan=PLAN))["launch"] == "refused"


def test_run_without_a_launch_has_no_status_word() -> None:
    assert of(failures=[FAILURE], playbook="health.yml") == ""
    assert of(check=True) == ""
    assert of() == ""
    verdict = {"status": "failed", "summary": "x", "findings": [finding("gpu.lost")]}
    assert "launch" not in outcome(Artifacts(run={"playbook": "site.yml"}, verdict=verdict))
