"""Actions of onboarding: first contact, the partner of a test launch, and the final verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acting import Programs, World
from launch_shapes import facts_of_a_fit_node
from muster.network.known_hosts import HostKey
from muster.network.trust import HostKeyDecision
from muster_controller.members.onboarding import ONBOARDING
from muster_controller.network.trusting import HostKeyChanges
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

KEY = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa")
UNKNOWN = "not inspected: the host key is not pinned yet, so --check does not log in."


class Contact:
    """First contact with new nodes that have the given host keys. Logins succeed unless `why` gives a reason for a
    failure."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, rows: list[HostKeyDecision], **why: str) -> None:
        self.world = world
        self.asked: list[str] = []
        self.given: tuple[str, dict[str, Any]] = ("", {})
        action = world.action("onboard_contact", nodes=[])
        where = action.work.__globals__

        def compare(_action: Any, _vars: Any, names: list[str], project: str, **given: Any) -> HostKeyChanges:
            assert names == [row.node for row in rows]
            self.given = project, given
            return HostKeyChanges(rows, project, "", "new")

        def met(connections: dict[str, Any]) -> dict[str, str]:
            self.asked += connections
            return {name: why.get(name, "") for name in connections}

        patch.setitem(where, "compare_and_pin", compare)
        patch.setitem(where, "met", met)
        self.nodes: list[dict[str, Any]] = [
            {"name": row.node, "variables": {"ansible_host": row.address, "ansible_connection": "local"}}
            for row in rows
        ]

    def run(self, **options: Any) -> dict[str, Any]:
        return self.world.run("onboard_contact", nodes=self.nodes, **options)


def row(node: str, state: str = "new", action: str = "ask", why: str = "") -> HostKeyDecision:
    return HostKeyDecision(node, "203.0.113.9", state, action, KEY if action else None, why=why)


def test_reachable_new_nodes_are_accepted_and_unreachable_ones_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    rows = [row("new1"), row("new2", "no answer", "", "timed out"), row("new3")]
    contact = Contact(world, monkeypatch, rows, new3="it has no Python")
    found = contact.run(confirmed=True)
    assert contact.asked == ["new1", "new3"]
    assert contact.given[0] == str(world.folder / "known_hosts")
    assert contact.given[1]["confirmed"] is True
    assert contact.given[1]["again"].endswith("-e trust_confirmed=true")
    refused = {"new2": {"why": "no response: timed out"}, "new3": {"why": "it has no Python"}}
    assert (found["onboarding"], found["changed"], "failed" in found) == (refused, True, False)
    assert [(one["name"], one["looked_at"], one["by_password"]) for one in found["met"]] == [("new1", True, False)]
    assert found["met"][0]["variables"]["inventory_dir"] == str(world.folder)
    assert displayed == [f"{name}: {one['why']}." for name, one in refused.items()]


def test_check_mode_skips_login_on_node_with_new_key(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str], tmp_path: Path
) -> None:
    contact = Contact(world, monkeypatch, [row("new1"), row("new2", "known", "")])
    found = contact.run(check=True, known_hosts=str(tmp_path / "keys"))
    assert (contact.asked, contact.given[0]) == (["new2"], str(tmp_path / "keys"))
    assert [(one["name"], one["looked_at"]) for one in found["met"]] == [("new1", False), ("new2", True)]
    assert displayed == [f"new1: {UNKNOWN} The changes on this node are unknown."]


def test_first_contact_fails_if_no_node_is_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    why = "its key is not the one of the file. ansible-playbook playbooks/trust.yml -e trust_replace=new2"
    contact = Contact(world, monkeypatch, [row("new1", "no answer", "", "x"), row("new2", "CHANGED", "refuse", why)])
    found = contact.run()
    first, second = found["msg"].splitlines()
    assert (found["failed"], first) == (True, "new1: no response: x.")
    own = f"playbooks/onboard.yml -e node=new2 -e address=203.0.113.9 -e host_key={KEY.fingerprint}"
    assert second.startswith("new2: host key rejected (CHANGED): its key is not the one of the file. ")
    assert own in second
    assert (contact.asked, displayed) == ([], [])


def test_ssh_password_implies_password_login(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    contact = Contact(world, monkeypatch, [row("new1"), row("new2")])
    for one in contact.nodes:
        one["variables"] |= {"ansible_connection": "ssh"}
    contact.nodes[1]["variables"] |= {"ansible_password": "hunter22"}
    assert [one["by_password"] for one in contact.run()["met"]] == [False, True]
    assert displayed == []


def test_request_with_invalid_resulting_inventory_is_rejected(world: World) -> None:
    found = world.run("onboard_request", node="node9", address="10.0.0.9")
    assert ([one["name"] for one in found["nodes"]], found["onboarding"]) == (["node9"], {"node9": {"standing": "new"}})
    again = world.run("onboard_request", node="node3", address="10.0.0.3")
    assert (again["nodes"], again["onboarding"]) == ([], {"node3": {"standing": "member"}})
    first, second = world.fails("onboard_request", node="node8", address="203.0.113.9").splitlines()
    assert first == "The onboarding request has 1 problem; no node was contacted."
    assert second.startswith("- node8: 203.0.113.9 is reserved for documentation ")


# ---------------------------------------------------------------- the test launch with a member


def test_new_node_is_paired_with_idle_member(
    world: World, monkeypatch: pytest.MonkeyPatch, displayed: list[str]
) -> None:
    facts = facts_of_a_fit_node()
    works = facts_of_a_fit_node()
    holder = {"launch_id": "20260101-120000-abcd", "begun": True, "ours": False, "pid": 1, "user": "muster"}
    works["occupied"]["held"] = {"cpu": [{**holder, "name": "", "command": "", "since": 0, "began": 0, "unit": ""}]}
    programs = Programs(monkeypatch, prepare=lambda name, _: works if name == "node1" else facts)
    world.registered("node2", "cluster_quarantined", True)
    found = world.run("onboard_partner", new=["new1"])
    assert found["pairs"] == {"new1": ["node3", "new1"]}
    assert (found["witness"], found["idle"], list(found["busy"])) == ("node1", ["node3"], ["node1"])
    assert (found["onboarding"], displayed) == ({}, [])
    assert [name for name, _, _ in programs.asked] == ["node1", "node3"]
    asked = programs.asked[0][2]
    assert (asked["address"], asked["gpus"], asked["user"]) == ("10.0.0.1", False, "muster")

    def prepare(name: str, _: Any) -> Any:
        return NodeError("no route", reachable=False) if name == "node1" else {"occupied": []}

    programs.answers["prepare"] = prepare
    found = world.run("onboard_partner", new=["new1", "new2"])
    idle = "because no member is idle (node1: the node did not respond: no route; and 1 other)"
    why = f"the node was not tested with a member, {idle}"
    assert (found["pairs"], found["idle"], found["witness"]) == ({}, [], "node3")
    assert found["busy"]["node3"] == "invalid response (TypeError)"
    assert found["onboarding"] == {name: {"notes": [why]} for name in ("new1", "new2")}
    assert displayed == [f"new1: {why}.", f"new2: {why}."]
    world.vars["groups"] = {**world.vars["groups"], "onboarding": ["node1", "node3"]}
    assert world.run("onboard_partner", new=["new1"])["witness"] == ""


def test_rejected_node_fails_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ONBOARDING, "nodes", {"new1": {"accepted": True, "rank": 1}})
    assert world.run("onboard_verdict")["failed"] is False
    monkeypatch.setattr(ONBOARDING, "nodes", {"new1": {"why": "its disk is full"}})
    found = world.run("onboard_verdict")
    assert (found["failed"], found["msg"].partition(". ")[0]) == (
        True,
        "NOT ONBOARDED: new1 is not a member: its disk is full",
    )
    monkeypatch.setattr(ONBOARDING, "nodes", {"new1": {}})
    assert world.run("onboard_verdict", check=True)["failed"] is False
