"""Claiming, quarantining and retiring nodes, and a new login, with nodes that answer as a test says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.collections import ImmutableDict

from acting import Programs, World
from muster.health.gpu import LOST
from muster_controller.nodes.claims import CLAIMS, ClaimError
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = """
gpu_nodes:
  vars: {ansible_connection: local, cluster_name: rack}
  hosts:
    node1:
    node2:
      cluster_quarantined:
        reason: a fan
        since: 2026-11-01 10:00 UTC
        by: anna@ctl
    node3:
"""
RUNS = {"launch_id": "20261124-101010-aaaa", "user": "muster", "manager": "system", "over": False, "by": "anna@ctl"}
RUNS_THERE = "node3: launch 20261124-101010-aaaa of muster (by anna@ctl) runs there"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa"
SILENT = NodeError("no route to host", reachable=False)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    given = ImmutableDict(inventory=[str(tmp_path / "rack")], tags=["all"], skip_tags=[], args=["playbooks/x.yml"])
    monkeypatch.setattr(context, "CLIARGS", given)
    return World(tmp_path / "rack", HOSTS)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(
        monkeypatch, keep={"changed": True}, forget={"changed": True}, jobs={"launches": [], "why": ""}, look={}
    )


def text(world: World) -> str:
    return (world.folder / "hosts.yml").read_text()


def fails(world: World, module: str, **options: Any) -> list[str]:
    with pytest.raises(AnsibleActionFail) as failed:
        world.run(module, **options)
    return str(failed.value).splitlines()


# ---------------------------------------------------------------- quarantine


def test_a_node_is_quarantined_in_the_inventory_and_on_the_node(world: World, programs: Programs) -> None:
    before = text(world)
    programs.answers["jobs"] = {"launches": [{**RUNS, "nodes": ["node3"]}], "why": ""}
    check = world.run("quarantine_nodes", check=True, nodes=["node3"], reason="a disk", release=False)
    assert (check["changed"], text(world), programs.asked[0][2]["check"]) == (True, before, True)
    found = world.run("quarantine_nodes", nodes=["node3", "node3"], reason="a disk", release=False)
    assert (found["changed"], found["running"], found["silent"]) == (True, [RUNS_THERE], {})
    assert found["warnings"] == [f"{RUNS_THERE}, and is left alone."]
    assert re.fullmatch(
        r"node3 is quarantined since [^;]* UTC by [^;]*: a disk; 1 node takes part, by node rank: 0 node1",
        found["outcome"],
    )
    assert "reason: a disk" in text(world)
    asked = [payload for name, verb, payload in programs.asked if verb == "keep"][1]
    assert (asked["check"], asked["quarantine"]["reason"]) == (False, "a disk")


def test_the_same_again_changes_nothing_and_a_silent_node_is_named(world: World, programs: Programs) -> None:
    programs.answers["keep"] = {"changed": False}
    before = text(world)
    found = world.run("quarantine_nodes", nodes=["node2"], reason="a fan", release=False)
    assert (found["changed"], text(world), found["warnings"]) == (False, before, [])
    programs.answers["keep"] = SILENT
    found = world.run("quarantine_nodes", nodes=["node2", "node3"], reason="a fan", release=False)
    assert found["outcome"] == (
        "node2, node3 are quarantined since 2026-11-01 10:00 UTC by anna@ctl: a fan; 1 node takes part, by node rank: 0"
        " node1"
    )
    late = "did not answer (no route to host): the inventory alone says so, which is what counts."
    assert found["warnings"] == [f"{name} {late}" for name in ("node2", "node3")]
    assert found["silent"] == {"node2": "no route to host", "node3": "no route to host"}


def test_a_node_is_released(world: World, programs: Programs) -> None:
    programs.answers["forget"] = lambda name, _: SILENT if name == "node2" else {"changed": False}
    found = world.run("quarantine_nodes", nodes=["node2", "node1"], reason="", release=True)
    assert found["changed"] is True
    assert "cluster_quarantined" not in text(world)
    assert found["outcome"].startswith("node2, node1 take part in launches again; ")
    assert found["warnings"] == [
        "node2 did not answer (no route to host): its own copy still refuses launches by name, until this is typed"
        " again when it answers."
    ]
    assert "jobs" not in programs.verbs()
    one = world.run("quarantine_nodes", nodes=["node1"], reason="", release=True)
    assert (one["changed"], one["outcome"].partition(";")[0]) == (False, "node1 takes part in launches again")


def test_what_a_group_says_is_not_taken_from_one_of_its_nodes(tmp_path: Path, programs: Programs) -> None:
    hosts = HOSTS.replace("cluster_name: rack}", "cluster_name: rack, cluster_quarantined: true}")
    context.CLIARGS = ImmutableDict(inventory=[str(tmp_path / "rack")])
    world = World(tmp_path / "rack", hosts)
    assert fails(world, "quarantine_nodes", nodes=["node1"], reason="", release=True) == [
        "Nothing was changed. node1: cluster_quarantined comes from a group (group_vars, or vars in the inventory)."
        " Take it away there."
    ]
    assert programs.asked == []


def test_an_inventory_that_is_a_program_is_edited_by_hand(tmp_path: Path, programs: Programs, world: World) -> None:
    (world.folder / "hosts.yml").rename(tmp_path / "kept")
    script = world.folder / "hosts.sh"
    script.write_text('#!/bin/sh\necho \'{"gpu_nodes": {"hosts": ["node3"]}}\'\n')
    script.chmod(0o755)
    said = fails(world, "quarantine_nodes", nodes=["node3"], reason="a disk", release=False)
    assert said[0] == "The inventory is not Muster's to edit."
    assert said[-1] == "Then type the same command again, so that the nodes know it too."
    said = fails(world, "retire_nodes", nodes=["node3"], wipe=False, known_hosts=str(tmp_path / "k"))
    assert said[:2] == ["Nothing was changed.", "The inventory is not Muster's to edit."]
    assert said[-1] == "Then type the same command again, for the other nodes to forget it."
    found = world.run("health_quarantine", findings=hard_fault("node3"))
    assert (found["changed"], found["quarantined"]) == (False, "")
    assert found["warnings"][0].startswith("node3 has to be quarantined, in an inventory of yours:\n")
    assert programs.asked == []


# ---------------------------------------------------------------- leaving


def test_a_node_leaves_the_inventory_and_its_key_is_forgotten(world: World, programs: Programs, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    lines = [f"10.0.0.{number} ssh-ed25519 {KEY} muster:node{number}\n" for number in (1, 2, 3)]
    known.write_text("".join(lines))
    options = {"nodes": ["node3"], "wipe": True, "known_hosts": str(known)}
    before = text(world)
    assert world.run("retire_nodes", step="look", **options) == {"changed": False, "silent": {}}
    check = world.run("retire_nodes", check=True, **options)
    assert (check["changed"], check["unfinished"], text(world)) == (True, "", before)
    assert known.read_text() == "".join(lines)
    found = world.run("retire_nodes", **options)
    assert "node3" not in text(world)
    assert known.read_text() == "".join(lines[:2])
    assert (found["changed"], found["silent"], found["diff"]) == (True, {}, check["diff"])
    assert (found["diff"][-1]["before"], found["diff"][-1]["after"]) == ("".join(lines), "".join(lines[:2]))
    assert "node3" in found["unfinished"]
    assert found["outcome"].startswith("node3 ")


def test_nothing_else_changes_where_nothing_was_pinned(world: World, programs: Programs, tmp_path: Path) -> None:
    found = world.run("retire_nodes", nodes=["node3"], wipe=False, known_hosts=str(tmp_path / "none"))
    assert len(found["diff"]) == 1
    assert not (tmp_path / "none").exists()


def test_nobody_leaves_in_a_part_of_a_run_or_with_a_launch(
    world: World, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"nodes": ["node3"], "wipe": False, "known_hosts": str(tmp_path / "none")}
    programs.answers["jobs"] = {"launches": [{**RUNS, "nodes": ["node1", "node3"]}], "why": ""}
    before = text(world)
    said = fails(world, "retire_nodes", **options)
    assert said[0] == "Nothing was changed."
    assert RUNS_THERE in said[1]
    assert fails(world, "retire_nodes", **{**options, "nodes": ["-x"]})[1] == "'-x' is no name of a node."
    for part in ({"subset": "node3"}, {"tags": ["x"]}):
        monkeypatch.setattr(context, "CLIARGS", ImmutableDict(**{**context.CLIARGS, **part}))
        assert fails(world, "retire_nodes", **options)[0] == "Nothing was changed."
    assert text(world) == before


# ---------------------------------------------------------------- a hard fault


def hard_fault(node: str) -> list[dict[str, Any]]:
    return [{"id": LOST.id, "status": "fail", "node": node, "summary": "GPU 0 fell off the bus"}]


def test_a_node_with_a_hard_fault_is_quarantined_by_itself(world: World, programs: Programs) -> None:
    before = text(world)
    none = world.run("health_quarantine", findings=[])
    assert none == {"changed": False, "quarantined": "", "warnings": []}
    check = world.run("health_quarantine", check=True, findings=hard_fault("node3"))
    assert (check["changed"], check["quarantined"], text(world)) == (True, "node3", before)
    assert programs.asked[0][2]["check"] is True
    programs.answers["keep"] = SILENT
    found = world.run("health_quarantine", findings=hard_fault("node3"))
    assert (found["changed"], found["quarantined"], found["diff"]) == (True, "node3", check["diff"])
    done, late = found["warnings"]
    assert done.startswith("node3 is quarantined by itself since ")
    assert f": {LOST.id}: GPU 0 fell off the bus. Once a person has looked at it: ansible-playbook " in done
    assert "playbooks/quarantine.yml -e node=node3 -e reason=... or ansible-playbook playbooks/release.yml" in done
    assert late == "node3 did not answer: no route to host."
    assert "automatic: true" in text(world)


# ---------------------------------------------------------------- claims and logins


def test_a_new_login_is_proven(world: World, programs: Programs) -> None:
    assert world.run("fresh_login") == {"changed": False, "msg": "node1: a new login works, and root can be had there."}
    assert programs.asked == [("node1", "look", {})]


def test_nodes_are_claimed_for_a_run(world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[Any] = []

    def claim(connections: dict[str, Any], about: str, *, take_over: bool) -> list[str]:
        claimed.append(([node.name for node in connections], about, take_over))
        return ["it waited"]

    monkeypatch.setattr(CLAIMS, "claim", claim)
    monkeypatch.setattr(CLAIMS, "token", "")
    assert world.run("claim_nodes", take_over=False) == {
        "changed": False,
        "warnings": ["The nodes are not claimed for this run: the callback report is not enabled."],
    }
    monkeypatch.setattr(CLAIMS, "token", "x")
    monkeypatch.setattr(CLAIMS, "missing", lambda names: names[1:])
    holder = {"who": "anna@ctl", "doing": "site.yml", "token": "x"}
    answers = {"held": False, "holder": holder}
    programs.answers["look"] = lambda name, _: answers if name == "node2" else {"holder": None}
    (warning,) = world.run("claim_nodes", check=True, take_over=False)["warnings"]
    assert "node2" in warning
    assert "node1" not in warning
    programs.answers["look"] = {"holder": None}
    assert world.run("claim_nodes", check=True, take_over=False) == {"changed": False}
    found = world.run("claim_nodes", take_over=True)
    assert found == {"changed": False, "claimed": ["node2", "node3"], "warnings": ["it waited"]}
    assert claimed[0][0::2] == (["node2", "node3"], True)

    def refuse(*_: Any, **__: Any) -> list[str]:
        raise ClaimError(["node2 is claimed by anna@ctl."])

    monkeypatch.setattr(CLAIMS, "claim", refuse)
    assert fails(world, "claim_nodes", take_over=False) == [str(ClaimError(["node2 is claimed by anna@ctl."]))]
