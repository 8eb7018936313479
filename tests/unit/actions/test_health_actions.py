"""The health check as its steps take it: the plan, the verdict on all nodes, and the verdict on one that is new."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleError

if TYPE_CHECKING:
    from pathlib import Path

    from acting import World

RUN = "20260101-120000-abcd"
NETWORK = {"findings": [], "network": {"links": []}, "verdict": {"coverage": {"ran": ["net.x"], "skipped": []}}}


@pytest.fixture
def world(world: World) -> World:
    for name in ("node1", "node2", "node3"):
        world.registered(name, "cluster_gpus", 1)
        world.registered(name, "cluster_interface", "eth0")
    world.registered("node3", "cluster_quarantined", True)
    return world


def finding(node: str, status: str = "fail", check: str = "os.shm", **more: Any) -> dict[str, Any]:
    return {"id": check, "status": status, "node": node, "summary": "it is so", **more}


def look(*findings: dict[str, Any], **traits: str) -> dict[str, Any]:
    coverage = {"ran": ["os.shm"], "skipped": [{"id": "os.x", "why": "no"}]}
    return {"traits": traits, "facts": {"a": 1}, "findings": [*findings], "verdict": {"coverage": coverage}}


def test_the_plan_is_what_the_inventory_says(world: World, tmp_path: Path) -> None:
    plan = world.run("health_plan")
    assert (plan["participants"], plan["head"], plan["port"], plan["backend"]) == (
        ["node1", "node2"],
        "node1",
        29500,
        "nccl",
    )
    assert (plan["quarantined"], list(plan["requests"]), list(plan["sources"])) == (
        ["node3"],
        ["node1", "node2"],
        ["node1", "node2"],
    )
    assert plan["requests"]["node2"] == {
        "address": "10.0.0.2",
        "interface": "eth0",
        "port": 29500,
        "allow": plan["requests"]["node1"]["allow"],
    }
    assert plan["folder"] == str(tmp_path / "artifacts/rack")
    assert plan["launch_ports"]
    some = world.run("health_plan", nodes=["node2"])
    assert (some["participants"], list(some["requests"]), some["quarantined"]) == (["node2"], ["node2"], [])
    world.registered("node1", "cluster_launch_nodes", ["node1"])
    assert world.run("health_plan")["participants"] == ["node1"]


def test_what_cannot_be_planned_is_said(world: World) -> None:
    with pytest.raises(AnsibleActionFail, match="node3"):
        world.run("health_plan", nodes=["node3"])
    world.registered("node2", "cluster_gpus", "many")
    with pytest.raises(AnsibleError, match=r"^node2: cluster_gpus .*\.$"):
        world.run("health_plan")
    world.vars["groups"] = {}
    with pytest.raises(AnsibleActionFail):
        world.run("health_plan")


def judged(world: World, **options: Any) -> dict[str, Any]:
    options = {"plan": world.run("health_plan"), "looks": "look", "network": NETWORK, "rails": {}, **options}
    return world.run("health_verdict", **{"gate": "fail", **options})


def test_the_verdict_on_all_nodes_is_kept(world: World, tmp_path: Path) -> None:
    for name in ("node1", "node2"):
        world.registered(name, "look", look(torch="2.9.0"))
    found = judged(world, rails={"rails": [{"gbps": 1}], "findings": []})
    assert (found["refusal"], found["changed"], found["verdict"]["status"]) == ("", False, "healthy")
    assert found["verdict"]["summary"].startswith("nothing stands against a launch: 2 nodes, ")
    assert list(found["metrics"]) == ["node1", "node2"]
    folder = tmp_path / f"artifacts/rack/{RUN}"
    assert found["artifacts"] == str(folder)
    kept = json.loads((folder / "health/node1.json").read_text())
    assert kept == {
        "schema": 1,
        "node": "node1",
        "facts": {"a": 1},
        "traits": {"torch": "2.9.0"},
        "findings": kept["findings"],
        "ran": ["os.shm"],
        "skipped": [{"id": "os.x", "why": "no"}],
    }
    assert json.loads((folder / "network.json").read_text()) == {"links": []}
    assert json.loads((folder / "rails.json").read_text()) == {"schema": 1, "rails": [{"gbps": 1}]}


def test_a_failed_check_refuses_a_launch_unless_it_is_a_check_mode(world: World, tmp_path: Path) -> None:
    world.registered("node1", "look", look(finding("node1")))
    world.registered("node2", "look", look())
    found = judged(world)
    assert (found["refusal"], found["verdict"]["status"]) == ("node1: it is so.", "failed")
    assert not found["verdict"]["summary"].startswith("nothing stands against a launch")
    kept = json.loads((tmp_path / f"artifacts/rack/{RUN}/health/node1.json").read_text())
    assert [one["status"] for one in kept["findings"]] == ["fail"]
    assert 'muster_check_status{check="os.shm",peer=""} 2' in found["metrics"]["node1"]
    assert 'check="os.shm"' not in found["metrics"]["node2"]
    assert not (tmp_path / f"artifacts/rack/{RUN}/rails.json").exists()
    options = {"plan": world.run("health_plan"), "looks": "look", "network": NETWORK, "rails": {}, "gate": "fail"}
    assert world.run("health_verdict", check=True, **options)["refusal"] == ""
    assert world.run("health_verdict", **{**options, "gate": "warn"})["refusal"] == ""


def test_a_node_that_was_not_looked_at_is_one_or_was_left_out(world: World) -> None:
    world.registered("node1", "look", {"msg": "Task failed: no route: "})
    world.vars["ansible_play_hosts_all"] = ["node1"]
    found = judged(world)
    assert found["refusal"].startswith("node1: it could not be looked at: Task failed: no route")
    assert {"id": "node", "node": "node2", "why": "--limit leaves it out"} in found["verdict"]["coverage"]["skipped"]
    world.registered("node1", "look", {})
    assert "it could not be reached, or an earlier step failed on it" in judged(world)["refusal"]


# ---------------------------------------------------------------- a node that is to become a member


def onboarded(world: World, network: dict[str, Any]) -> dict[str, Any]:
    plan = world.run("health_plan")
    return world.run("onboard_health", plan=plan, looks="look", network={**NETWORK, **network})


def test_a_new_node_is_judged_for_itself_and_strictly(world: World, tmp_path: Path) -> None:
    world.registered("node1", "look", look())
    world.registered("node2", "look", look(finding("node2")))
    others = [finding("node2", check="net.a"), finding("node3", check="net.b", peer="node2")]
    good = onboarded(world, {"findings": others})
    assert ("failed" in good, [one["id"] for one in good["findings"] if one["status"] != "pass"]) == (False, [])
    kept = json.loads((tmp_path / f"artifacts/rack/{RUN}/health/node1.json").read_text())
    assert (kept["schema"], kept["node"], kept["facts"], kept["ran"]) == (1, "node1", {"a": 1}, ["os.shm"])
    own = [
        finding("node2", check="net.a", peer="node1"),
        finding("node1", "warn", check="net.clock.offset", summary="its clock is off"),
        finding("node1", "warn", check="net.c", summary="it is slow"),
    ]
    bad = onboarded(world, {"findings": own})
    assert bad["failed"] is True
    assert sorted((one["id"], one["status"]) for one in bad["findings"] if one["status"] != "pass") == [
        ("net.a", "fail"),
        ("net.c", "warn"),
        ("net.clock.offset", "fail"),
    ]
    assert len(bad["msg"].splitlines()) == 2


def test_a_new_node_that_could_not_be_looked_at_is_no_member(world: World, tmp_path: Path) -> None:
    world.registered("node1", "look", {"msg": "no route."})
    assert onboarded(world, {})["msg"].startswith("node1: it could not be looked at: no route")
    world.registered("node1", "look", {})
    found = onboarded(world, {})
    assert found["msg"].startswith("node1: it could not be looked at: it could not be looked at")
    assert not (tmp_path / f"artifacts/rack/{RUN}").exists()
