"""Actions that claim, quarantine and retire nodes, and test a new login, with simulated nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict

from acting import Programs, World
from muster.health.gpu import LOST
from muster_controller.nodes.claims import CLAIMS, ClaimError
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

BY_ANNA = {"reason": "a fan", "since": "2026-11-01 10:00 UTC", "by": "anna@ctl"}
RUNS = {"launch_id": "20261124-101010-aaaa", "user": "muster", "manager": "system", "over": False, "by": "anna@ctl"}
RUNS_THERE = "node3: launch 20261124-101010-aaaa of muster (by anna@ctl) is running"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa"
SILENT = NodeError("no route to host", reachable=False)


@pytest.fixture
def world(world: World) -> World:
    text = (world.folder / "hosts.yml").read_text()
    own = text.replace("node2: {", f"node2: {{cluster_quarantined: {json.dumps(BY_ANNA)}, ")
    return World(world.folder, own)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    changed = {"changed": True}
    return Programs(monkeypatch, keep=changed, forget=changed, jobs={"launches": []}, look={"holder": None})


def text(world: World) -> str:
    return (world.folder / "hosts.yml").read_text()


def hard_fault(node: str) -> list[dict[str, Any]]:
    return [{"id": LOST.id, "status": "fail", "node": node, "summary": "GPU 0 fell off the bus"}]


def test_quarantine_is_written_to_inventory_and_node(world: World, programs: Programs) -> None:
    before = text(world)
    programs.answers["jobs"] = {"launches": [{**RUNS, "nodes": ["node3"]}]}
    disk: dict[str, Any] = {"nodes": ["node3", "node3"], "reason": "a disk", "release": False}
    check = world.run("quarantine_nodes", check=True, **disk)
    assert (check["changed"], text(world), programs.of("keep")["node3"]["check"]) == (True, before, True)
    found = world.run("quarantine_nodes", **disk)
    assert (found["changed"], found["running"], found["silent"]) == (True, [RUNS_THERE], {})
    assert (found["warnings"], found["diff"]) == ([f"{RUNS_THERE}; the launch is not stopped."], check["diff"])
    words = "node3 is quarantined since [^;]* UTC by [^;]*: a disk; 1 node takes part, by node rank: 0 node1"
    assert re.fullmatch(words, found["outcome"])
    asked = programs.of("keep")["node3"]
    assert (asked["check"], asked["quarantine"]["reason"], "reason: a disk" in text(world)) == (False, "a disk", True)
    # Repeating the command changes nothing. A node without a response is named.
    before = text(world)
    programs.answers |= {"keep": {"changed": False}, "jobs": {"launches": []}}
    again = world.run("quarantine_nodes", nodes=["node2"], reason="a fan", release=False)
    assert (again["changed"], again["warnings"]) == (False, [])
    programs.answers["keep"] = SILENT
    again = world.run("quarantine_nodes", nodes=["node2"], reason="a fan", release=False)
    why = "did not respond (no route to host): the node has no copy; the quarantine in the inventory is effective."
    assert (again["warnings"], again["silent"]) == ([f"node2 {why}"], {"node2": "no route to host"})
    assert again["outcome"].partition(";")[0] == "node2 is quarantined since 2026-11-01 10:00 UTC by anna@ctl: a fan"
    assert text(world) == before


def test_releasing_several_nodes_warns_about_an_unreachable_one(world: World, programs: Programs) -> None:
    programs.answers["forget"] = lambda name, _: SILENT if name == "node2" else {"changed": False}
    found = world.run("quarantine_nodes", nodes=["node2", "node1"], reason="", release=True)
    assert (found["changed"], "cluster_quarantined" in text(world), "jobs" in programs.verbs()) == (True, False, False)
    assert found["outcome"].startswith("node2, node1 take part in launches again; ")
    late = "the copy on the node still blocks launches; run this command again when the node is reachable"
    assert found["warnings"] == [f"node2 did not respond (no route to host): {late}."]
    one = world.run("quarantine_nodes", nodes=["node1"], reason="", release=True)
    assert (one["changed"], one["outcome"].partition(";")[0]) == (False, "node1 takes part in launches again")
    grouped = World(
        world.folder, text(world).replace("cluster_name: rack", "cluster_name: rack, cluster_quarantined: yes")
    )
    of_a_group = "node1: cluster_quarantined is set in a group (group_vars, or vars in the inventory)."
    said = grouped.fails("quarantine_nodes", nodes=["node1"], reason="", release=True)
    assert said == f"Nothing was changed. {of_a_group} Remove it there."


def test_hardware_fault_quarantines_node_automatically(world: World, programs: Programs) -> None:
    before = text(world)
    none = world.run("health_quarantine", findings=[])
    assert none == {"changed": False, "quarantined": "", "warnings": []}
    check = world.run("health_quarantine", check=True, findings=hard_fault("node3"))
    assert (check["changed"], check["quarantined"], text(world)) == (True, "node3", before)
    assert programs.of("keep")["node3"]["check"] is True
    programs.answers["keep"] = SILENT
    found = world.run("health_quarantine", findings=hard_fault("node3"))
    assert (found["changed"], found["quarantined"], found["diff"]) == (True, "node3", check["diff"])
    done, late = found["warnings"]
    assert done.startswith("node3 was quarantined automatically since ")
    assert f": {LOST.id}: GPU 0 fell off the bus. After an inspection of the node, run ansible-playbook " in done
    assert "playbooks/quarantine.yml -e node=node3 -e reason=... or ansible-playbook playbooks/release.yml" in done
    assert (late, "automatic: true" in text(world)) == ("node3 did not respond: no route to host.", True)


def test_retired_node_and_its_host_key_are_removed(world: World, programs: Programs, tmp_path: Path) -> None:
    known, before = tmp_path / "known_hosts", text(world)
    lines = [f"10.0.0.{number} ssh-ed25519 {KEY} muster:node{number}\n" for number in (1, 2, 3)]
    known.write_text("".join(lines))
    options: dict[str, Any] = {"nodes": ["node3"], "wipe": True, "known_hosts": str(known)}
    assert world.run("retire_nodes", step="look", **options) == {"changed": False, "silent": {}}
    check = world.run("retire_nodes", check=True, **options)
    assert (check["changed"], check["unfinished"], text(world)) == (True, "", before)
    assert known.read_text() == "".join(lines)
    found = world.run("retire_nodes", **options)
    assert ("node3" in text(world), known.read_text()) == (False, "".join(lines[:2]))
    assert (found["changed"], found["silent"], found["diff"]) == (True, {}, check["diff"])
    assert (found["diff"][-1]["before"], found["diff"][-1]["after"]) == ("".join(lines), "".join(lines[:2]))
    assert ("node3" in found["unfinished"], found["outcome"].partition(";")[0]) == (True, "node3 has left the cluster")
    (world.folder / "hosts.yml").write_text(before)
    known.unlink()
    assert (len(world.run("retire_nodes", **options)["diff"]), known.exists()) == (1, False)


def test_cluster_is_removed_and_its_inventory_stays(world: World, programs: Programs) -> None:
    before = text(world)
    programs.answers["jobs"] = {"launches": [{**RUNS, "nodes": ["node3"]}]}
    first, launch, stop = world.fails("remove_cluster", step="look").splitlines()
    assert (first, launch) == ("Nothing was changed.", f"{RUNS_THERE.replace('node3', 'node1, node2, node3')}.")
    assert stop.endswith(" -e remove_running=true")
    programs.answers["jobs"] = lambda name, _: SILENT if name == "node2" else {"launches": [{**RUNS, "nodes": []}]}
    found = world.run("remove_cluster", step="look", running=True)
    assert (found["running"], found["silent"]) == ([RUNS["launch_id"]], {"node2": "no route to host"})
    assert found["unfinished"].startswith("might still have Muster files. To complete the removal, run: ")
    assert world.run("remove_cluster", check=True, step="look", running=True)["unfinished"] == ""
    said = "Muster is removed from node1, node3. Nothing was removed from node2 (node2: no route to host). "
    assert world.fails("remove_cluster", step="end", silent=found["silent"]).startswith(said)
    done = world.run("remove_cluster", step="end", silent={})["outcome"]
    assert done.startswith("Muster is removed from node1, node2, node3. The inventory is unchanged: ")
    programs.answers["jobs"] = SILENT
    assert world.fails("remove_cluster", step="look").startswith("Nothing was changed.\nNo node responds (node1: ")
    assert text(world) == before


def test_rejected_changes_leave_the_inventory_unchanged(
    world: World, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"nodes": ["node3"], "wipe": False, "known_hosts": str(tmp_path / "none")}
    programs.answers["jobs"] = {"launches": [{**RUNS, "nodes": ["node1", "node3"]}]}
    before = text(world)
    first, second = world.fails("retire_nodes", **options).splitlines()
    assert (first, RUNS_THERE in second) == ("Nothing was changed.", True)
    said = "Nothing was changed.\n'-x' is not a valid node name."
    assert world.fails("retire_nodes", **{**options, "nodes": ["-x"]}) == said
    assert text(world) == before
    # Muster cannot edit an inventory that is a program.
    programs.asked.clear()
    (world.folder / "hosts.yml").unlink()
    (world.folder / "hosts.sh").write_text('#!/bin/sh\necho \'{"gpu_nodes": {"hosts": ["node3"]}}\'\n')
    (world.folder / "hosts.sh").chmod(0o755)
    lines = world.fails("quarantine_nodes", nodes=["node3"], reason="a disk", release=False).splitlines()
    again = "Then run the same command again"
    ends = ("Muster cannot edit this inventory.", f"{again} to update the nodes.")
    assert (lines[0], lines[-1]) == ends
    lines = world.fails("retire_nodes", **options).splitlines()
    assert (lines[1], lines[-1]) == (ends[0], f"{again} to remove the node from the other nodes.")
    found = world.run("health_quarantine", findings=hard_fault("node3"))
    assert (found["changed"], found["quarantined"]) == (False, "")
    assert found["warnings"][0].startswith("Muster cannot edit this inventory; quarantine node3:\n")
    assert programs.asked == []
    for part in ({"subset": "node3"}, {"tags": ["x"]}):
        monkeypatch.setattr(context, "CLIARGS", ImmutableDict(**{**context.CLIARGS, **part}))
        assert world.fails("retire_nodes", **options).startswith(
            "Nothing was changed.\nRun it without --limit and tags"
        )


# ---------------------------------------------------------------- claims and logins


def test_fresh_login_opens_a_new_connection(world: World, programs: Programs) -> None:
    assert world.run("fresh_login") == {"changed": False, "msg": "node1: a new login works, and becoming root works."}
    assert programs.asked == [("node1", "look", {})]


def test_nodes_are_claimed_for_a_run(world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed: list[Any] = []

    def claim(connections: list[Any], about: str, *, take_over: bool) -> list[str]:
        claimed.append(([node.name for node in connections], about, take_over))
        return ["it waited"]

    monkeypatch.setattr(CLAIMS, "claim", claim)
    monkeypatch.setattr(CLAIMS, "token", "")
    assert world.run("claim_nodes", take_over=False) == {
        "changed": False,
        "warnings": ["The nodes are not claimed, because the callback plugin report is disabled."],
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
    for name in ("node1", "node2", "node3"):
        world.registered(name, "cluster_mode", "verify")
    assert world.run("claim_nodes", for_roles=True) == {"changed": False}
    assert "claimed" in world.run("claim_nodes"), "other playbooks write despite cluster_mode"
    world.registered("node3", "firewall_mode", "manage")
    assert "claimed" in world.run("claim_nodes", for_roles=True)
    claimed.clear()
    found = world.run("claim_nodes", take_over=True)
    assert found == {"changed": False, "claimed": ["node2", "node3"], "warnings": ["it waited"]}
    assert claimed[0][0::2] == (["node2", "node3"], True)

    def refuse(*_: Any, **__: Any) -> list[str]:
        raise ClaimError("node2 is claimed by anna@ctl.")

    monkeypatch.setattr(CLAIMS, "claim", refuse)
    assert world.fails("claim_nodes", take_over=False) == "node2 is claimed by anna@ctl."
