"""The health check of a node that is to become a member, as a step of onboarding takes it."""

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
