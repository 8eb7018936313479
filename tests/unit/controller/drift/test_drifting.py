"""Drift check: changes that the pipeline steps would make, and differences from the last installation record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail

from acting import World
from cases import document_of
from muster.drift import installed, judge, results
from muster_controller.drift import drifting
from muster_controller.drift.drifting import Drifting
from muster_controller.drift.steps_run import StepsOutcome
from muster_controller.nodes.asking import NodeAnswer
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LOOKS = ROOT / "tests/unit/health/recorded/node.yml"
NOW = {
    "firmware": {"adapter mlx5_0": "28.43.2026"},
    "kernel": "6.1.0-30-amd64",
    "unseen": {"parts": "it is slow"},
    "booted": 7.0,
}
HISTORY: dict[str, Any] = {"dpkg": [], "apt": [], "sudo": [], "muster": [], "files": {}, "units": {}, "parts": {}}


def test_drift_check_combines_results_of_steps_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "rack", "gpu_nodes: {hosts: {node1: , node2: , node3: }}")
    ran: list[tuple[tuple[str, ...], str]] = []
    asked: dict[str, dict[str, Any]] = {}
    code = 2

    def result_of(node: str, role: str, **result: Any) -> Any:
        return results.taken(node, role, "Keep it", {"changed": True, **result})

    def run_steps(_: Any, tags: tuple[str, ...], limit: str, *, check: bool, log: Path) -> StepsOutcome:
        assert (check, log) == (True, tmp_path / "drift.log")
        ran.append((tags, limit))
        if len(ran) == 1:
            down = result_of("node3", "node_baseline", unreachable=True, msg="no route")
            refused = result_of("node2", "cluster_hosts", failed=True, msg="it cannot be")
            own = result_of("node1", "node_baseline", differences=["the clock is not set"])
            return StepsOutcome([own, refused, down], code, "x")
        return StepsOutcome([], 0, "")

    def ask_all(_: Any, verb: str, requests: dict[str, Any]) -> dict[str, NodeAnswer]:
        asked[verb] = requests
        if verb == "history":
            return {node: NodeAnswer({**HISTORY, "unseen": {"sudo": "it is gone"}}) for node in requests}
        said = {"now": NOW, "record": {}, "why": "it is lost", "boot": document_of(LOOKS)["next_boot"]}
        return {node: NodeAnswer(said) for node in requests}

    monkeypatch.setattr(drifting, "run_steps", run_steps)
    monkeypatch.setattr(drifting, "ask_all", ask_all)
    monkeypatch.setattr(installed, "differences", lambda *_: [])
    action = world.action("drift")
    action.task_vars = world.vars
    look = Drifting(action, tmp_path).look(["node1", "node2", "node3"])
    # After a rejected step, the later steps run once more on the nodes that respond.
    first, second = ran
    assert first == (("baseline", "network", "gpu_stack", "pytorch"), "node1,node2,node3")
    assert second == (("gpu_stack", "pytorch"), "node1,node2")
    assert (look.drifted[0].difference.node, look.drifted[0].difference.tag) == ("node1", "baseline")
    # A node without kernels in /boot, such as a container: its next boot cannot be judged.
    skipped, below = look.nodes["node1"].advice
    assert isinstance(skipped, dict)
    assert skipped["id"] == "sw.next_boot"
    assert not isinstance(below, dict)
    assert (below.id, below.status, below.observed) == ("sw.security_floor", "warn", "43.2026")
    assert look.nodes["node3"].advice == ()
    assert look.nodes["node1"].unseen == {"parts": "it is slow", "the log of sudo": "it is gone"}
    assert [look.nodes[name].stopped for name in ("node1", "node2", "node3")] == [(), ("network",), ()]
    assert (look.nodes["node1"].no_record, look.nodes["node3"].down) == ("it is lost", "no route")
    assert "node3" not in asked["history"]
    code = 1
    ran.clear()
    with pytest.raises(AnsibleActionFail) as failed:
        Drifting(action, tmp_path).look(["node1"])
    assert str(failed.value) == f"The steps failed in check mode: x ({tmp_path}/drift.log)"


@pytest.mark.parametrize(
    ("hostile", "unseen"),
    [
        ({}, None),
        ({"now": {**NOW, "booted": 1e19}}, None),
        ({"now": NOW, "record": "x"}, None),
        ({"now": NOW, "record": {"at": 2**70}}, {"parts", "at in the record"}),
        ({"now": {**NOW, "unseen": 5}}, {"unseen"}),
        ({"now": {**NOW, "firmware": [1], "packages": {"a": {}}}}, {"parts", "firmware", "packages"}),
        (
            {"now": {**NOW, "bus": 7}, "record": {"bus": ["a"], "firmware": {"a": 1}}},
            {"parts", "bus", "firmware in the record"},
        ),
        ({"now": NOW, "boot": {"now": 10**400}}, {"parts"}),
    ],
)
def test_hostile_node_does_not_end_the_check_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: dict[str, Any], unseen: set[str] | None
) -> None:
    world = World(tmp_path / "rack", "gpu_nodes: {hosts: {node1: , node2: }}")
    boot = document_of(LOOKS)["next_boot"]
    said = {"now": {**NOW, "kernel": "6.2"}, "record": {"kernel": "6.1", "at": 5.0}, "why": "", "boot": boot}

    def ask_all(_: Any, verb: str, requests: dict[str, Any]) -> dict[str, NodeAnswer]:
        if verb == "history":
            wrong = {"files": {"a": {"owner": 1}}, "dpkg": 7, "units": {"a": 1e300}, "unseen": {}}
            return {node: NodeAnswer({**HISTORY, **wrong} if node == "node1" else 7) for node in requests}
        return {"node1": NodeAnswer(said), "node2": NodeAnswer({"record": said["record"], "boot": boot, **hostile})}

    monkeypatch.setattr(drifting, "run_steps", lambda *_, **__: StepsOutcome([], 0, ""))
    monkeypatch.setattr(drifting, "ask_all", ask_all)
    action = world.action("drift")
    action.task_vars = world.vars
    look = Drifting(action, tmp_path).look(["node1", "node2"])
    assert [one.difference.node for one in look.drifted][:1] == ["node1"]
    assert {"parts", "the log of dpkg", "the log of units"} <= look.nodes["node1"].unseen.keys()
    there = look.nodes["node2"]
    assert there.down.startswith("invalid answer: ") is (unseen is None)
    assert {name for name in there.unseen if "log of" not in name} == (unseen or set())
    assert [*judge.findings(look.drifted, look.nodes)]
