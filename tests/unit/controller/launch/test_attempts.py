"""Attempts of a launch. Node answers come from a table, and the test sets the outcome of each attempt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from answering_nodes import AnsweringNodes
from launch_shapes import LAUNCH_ID, a_node, a_request
from muster.launch.endings import Ending
from muster.launch.failure import NodeReport
from muster.launch.outcome import LaunchRecord, judge
from muster.launch.plan import LaunchRequest, NodeSpec, build_plan
from muster.launch.watch import Decision
from muster_controller.launch import attempts
from muster_controller.launch.attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from muster.launch.planned import LaunchPlan

INVENTORY = [a_node(number) for number in (1, 2, 3)]
FIT: dict[str, Any] = {"running": [], "gpus": [], "gpu_error": "", "checkpoint": None}
MANY = 20


def plan_of(request: LaunchRequest, nodes: Sequence[NodeSpec]) -> LaunchPlan:
    return build_plan(request, list(nodes))


def fit(**given: Any) -> list[Any]:
    return [{**FIT, **given}] * MANY


def record_of(plan: LaunchPlan, ending: Any, node: str = "", **more: Any) -> LaunchRecord:
    reports = [NodeReport(entry.node, last_answer=time.monotonic()) for entry in plan.nodes]
    return LaunchRecord(
        plan, Decision(ending, "it was cut off", node), [], reports, stop_began=time.monotonic(), **more
    )


class Trial:
    """One launch. ends: the outcome of each attempt. answers: each node's answers to the checks between attempts."""

    def __init__(
        self, options: dict[str, Any], ends: list[Callable[[LaunchPlan], LaunchRecord]], answers: dict[str, list[Any]]
    ) -> None:
        self.ends = ends
        self.plans: list[LaunchPlan] = []
        self.earlier: list[tuple[str, ...]] = []
        self.said: list[str] = []
        request = a_request(**{"nodes": ["node1", "node2"], **options})
        self.whole = Attempts(request, INVENTORY, plan_of, self.run, self.connect, self.said.append)
        self.nodes = AnsweringNodes({(node, "fit"): list(given) for node, given in answers.items()})
        self.whole.asked = self.nodes
        self.result = self.whole.see_through(build_plan(request, INVENTORY))

    def run(self, plan: LaunchPlan, earlier: tuple[str, ...], _left: int) -> tuple[dict[str, Any], LaunchRecord]:
        self.plans.append(plan)
        self.earlier.append(earlier)
        record = self.ends.pop(0)(plan)
        return {"failed": False, "verdict": judge(record, "logs")}, record

    def connect(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def members(self) -> list[list[str]]:
        return [plan.names for plan in self.plans]


def lost(node: str) -> Callable[[LaunchPlan], LaunchRecord]:
    return lambda plan: record_of(plan, Ending.NODE, node)


def finished(plan: LaunchPlan) -> LaunchRecord:
    return record_of(plan, Ending.FINISHED)


def test_successful_launch_has_one_attempt() -> None:
    trial = Trial({"restarts": 3, "spares": ["node3"]}, [finished], {})
    assert trial.members == [["node1", "node2"]]
    assert trial.result["verdict"]["status"] == "healthy"
    assert trial.nodes.asked == []


def test_spare_node_replaces_the_lost_node_with_the_same_folder_and_a_new_port() -> None:
    checkpoint = {"path": "/data/step-5", "time": 5.0}
    answers = {"node1": fit(checkpoint=checkpoint), "node2": ["no route"] * MANY, "node3": fit()}
    trial = Trial({"restarts": 3, "spares": ["node3"], "checkpoints": "step-*"}, [lost("node2"), finished], answers)
    assert trial.members == [["node1", "node2"], ["node1", "node3"]]
    first, second = trial.plans
    assert second.launch_id != first.launch_id
    assert (second.master_port, second.attempt) == (29501, 2)
    assert {entry.work_dir for entry in second.nodes} == {f"/var/lib/muster/work/{LAUNCH_ID}"}
    assert second.nodes[1].env["MUSTER_CHECKPOINT"] == "/data/step-5"
    assert trial.earlier == [(), (LAUNCH_ID,)]
    verdict = trial.result["verdict"]
    assert verdict["status"] == "degraded"
    assert verdict["findings"][0]["id"] == "launch.restarted"
    assert [one["number"] for one in trial.result["attempts"]] == [1, 2]


def test_node_with_the_newest_checkpoint_becomes_the_head_node() -> None:
    answers = {"node1": fit(), "node2": fit(), "node3": fit(checkpoint={"path": "/data/a", "time": 5.0})}
    trial = Trial(
        {"restarts": 3, "min_nodes": 2, "checkpoints": "step-*", "nodes": ["node1", "node2", "node3"]},
        [lost("node1"), finished],
        answers,
    )
    assert trial.members[1] == ["node3", "node2"]
    assert trial.plans[1].master_addr == "10.0.0.3"


def test_launch_fails_if_no_spare_node_is_left() -> None:
    trial = Trial({"restarts": 3}, [lost("node2")], {"node1": fit(), "node2": ["no route"] * MANY})
    verdict = trial.result["verdict"]
    assert verdict["status"] == "failed"
    assert verdict["findings"][-1]["id"] == "launch.given_up"
    assert "no spare node is left" in verdict["summary"]


def test_attempts_are_limited_by_launch_restarts() -> None:
    trial = Trial({"restarts": 2}, [lost("node2")] * 3, {"node1": fit(), "node2": fit()})
    assert len(trial.plans) == 3
    assert trial.result["verdict"]["summary"].endswith("given up after 3 attempts: launch_restarts allows 2")


def test_launch_ends_after_three_attempts_without_a_newer_checkpoint() -> None:
    same = fit(checkpoint={"path": "/data/step-5", "time": 5.0})
    answers = {"node1": same, "node2": same}
    trial = Trial({"restarts": 9, "checkpoints": "/data/step-*"}, [lost("node2")] * 9, answers)
    assert len(trial.plans) == 3
    assert "no newer checkpoint after 3 attempts" in trial.result["verdict"]["summary"]
    assert trial.plans[0].nodes[0].env["MUSTER_CHECKPOINT"] == "/data/step-5", "from the first attempt on"


def test_interruption_prevents_further_attempts() -> None:
    trial = Trial({"restarts": 3}, [lambda plan: record_of(plan, Ending.INTERRUPTED)], {})
    assert len(trial.plans) == 1
    assert trial.result["verdict"]["status"] == "unknown"


def test_next_attempt_waits_for_lease_of_unreachable_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.launch.attempts.LEASES", 0)
    monkeypatch.setattr("muster.launch.attempts.SLACK", -4.0)
    answers = {"node1": fit(), "node2": ["no route"] * MANY, "node3": fit()}
    begun = time.monotonic()
    trial = Trial(
        {"restarts": 1, "spares": ["node3"]},
        [lambda plan: record_of(plan, Ending.NODE, "node2", unseen=["node2"]), finished],
        answers,
    )
    assert time.monotonic() - begun > 0.9
    assert any("until the launch ends on node2 because its lease expires" in one for one in trial.said)
    assert trial.members[1] == ["node1", "node3"]


def test_next_attempt_waits_until_earlier_ranks_have_exited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PAUSE", 0.01)
    busy = {**FIT, "running": [LAUNCH_ID]}
    answers = {"node1": [busy, busy, *fit()], "node2": fit()}
    trial = Trial({"restarts": 1}, [lost("node2"), finished], answers)
    assert len(trial.plans) == 2
    assert len([one for one in trial.nodes.asked if one[0] == "node1"]) == 3
