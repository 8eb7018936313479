"""Action plugins of the health check: the plan, the verdict on all nodes, and the verdict on a new node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

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


def judged(world: World, *, check: bool = False, **options: Any) -> dict[str, Any]:
    given = {"plan": world.run("health_plan"), "looks": "look", "network": NETWORK, "gate": "fail", **options}
    return world.run("health_verdict", check=check, **given)


def test_health_plan_matches_inventory(world: World, tmp_path: Path) -> None:
    plan = world.run("health_plan")
    known = (plan["participants"], plan["head"], plan["port"], plan["backend"], plan["quarantined"], plan["folder"])
    assert known == (["node1", "node2"], "node1", 29500, "nccl", ["node3"], str(tmp_path / "artifacts/rack"))
    assert list(plan["requests"]) == list(plan["sources"]) == ["node1", "node2"]
    assert plan["requests"]["node2"] == {"address": "10.0.0.2", "interface": "eth0", "port": 29500, "allow": []}
    some = world.run("health_plan", nodes=["node2"])
    assert (some["participants"], list(some["requests"]), some["quarantined"]) == (["node2"], ["node2"], [])
    assert "node3" in world.fails("health_plan", nodes=["node3"])
    world.registered("node2", "cluster_gpus", "many")
    assert world.fails("health_plan").startswith("node2: cluster_gpus ")


def test_health_verdict_of_all_nodes_is_stored(world: World, tmp_path: Path) -> None:
    world.registered("node1", "look", look(finding("node1"), torch="2.9.0"))
    world.registered("node2", "look", look(torch="2.9.0"))
    found = judged(world, rails={"rails": [{"gbps": 1}], "findings": []})
    folder = tmp_path / f"artifacts/rack/{RUN}"
    assert (found["refusal"], found["verdict"]["status"], found["artifacts"]) == (
        "node1: it is so.",
        "failed",
        str(folder),
    )
    assert not found["verdict"]["summary"].startswith("ready to launch")
    kept = json.loads((folder / "health/node1.json").read_text())
    assert [one["status"] for one in kept.pop("findings")] == ["fail", "pass"]
    own = {"schema": 1, "node": "node1", "facts": {"a": 1}, "traits": {"torch": "2.9.0"}, "ran": ["os.shm"]}
    assert kept == {**own, "skipped": [{"id": "os.x", "why": "no"}]}
    assert json.loads((folder / "network.json").read_text()) == {"links": []}
    assert json.loads((folder / "rails.json").read_text()) == {"schema": 1, "rails": [{"gbps": 1}]}
    failed = 'muster_check_status{check="os.shm",peer=""} 2'
    assert [failed in found["metrics"][name] for name in ("node1", "node2")] == [True, False]
    # Check mode and the gate warn never block.
    assert (judged(world, check=True)["refusal"], judged(world, gate="warn")["refusal"]) == ("", "")
    world.registered("node1", "look", {"msg": "no route: "})
    world.registered("node2", "look", {})
    world.vars["ansible_play_hosts_all"] = ["node1"]
    found = judged(world)
    assert found["refusal"].startswith("node1: could not be checked: no route")
    assert {"id": "node", "node": "node2", "why": "excluded by --limit"} in found["verdict"]["coverage"]["skipped"]
    world.registered("node1", "look", {})
    assert "not reachable, or an earlier step failed" in judged(world)["refusal"]


# ---------------------------------------------------------------- a new node


def onboarded(world: World, network: dict[str, Any]) -> dict[str, Any]:
    plan = world.run("health_plan")
    return world.run("onboard_health", plan=plan, looks="look", network={**NETWORK, **network})


def test_new_node_is_evaluated_alone_and_strictly(world: World, tmp_path: Path) -> None:
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


def test_unchecked_new_node_is_rejected(world: World, tmp_path: Path) -> None:
    world.registered("node1", "look", {"msg": "no route."})
    assert onboarded(world, {})["msg"].startswith("node1: could not be checked: no route")
    world.registered("node1", "look", {})
    found = onboarded(world, {})
    assert found["msg"].startswith("node1: could not be checked: ")
    assert not (tmp_path / f"artifacts/rack/{RUN}").exists()
