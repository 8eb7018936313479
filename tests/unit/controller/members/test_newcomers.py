"""Onboarding of new nodes: request, first contact, inventory, and the result of the run."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.collections import ImmutableDict

from acting import World
from muster_controller.members import members, newcomers
from muster_controller.members import onboarding as onboarding_
from muster_controller.members.onboarding import Onboarding, ranks
from muster_controller.network.first_contact import met
from muster_controller.nodes.connection import connect

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = """
gpu_nodes:
  vars:
    ansible_connection: local
  hosts:
    node1:
      ansible_host: 203.0.113.1
    node2:
      ansible_host: 203.0.113.2
      cluster_quarantined:
        reason: a fan
        since: 2026-11-01 10:00 UTC
        by: anna@ctl
    node3:
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=[str(tmp_path / "rack")]))
    return World(tmp_path / "rack", HOSTS)


def text(world: World) -> str:
    return (world.folder / "hosts.yml").read_text()


def test_members_are_read_from_the_inventory(world: World) -> None:
    assert newcomers.members(world.vars, world.templar, world.loader) == {
        "node1": {"quarantined": False, "reason": "", "address": "203.0.113.1"},
        "node2": {"quarantined": True, "reason": "a fan", "address": "203.0.113.2"},
        "node3": {"quarantined": False, "reason": "", "address": ""},
    }
    place = newcomers.place(world.vars)
    assert place == {"inventory_dir": str(world.folder), "inventory_file": str(world.folder / "hosts.yml")}


def test_new_nodes_of_empty_inventory_go_to_its_first_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts.yml").touch()
    for sources, place in ((["a,b", str(tmp_path)], tmp_path), ([str(tmp_path / "hosts.yml")], tmp_path)):
        monkeypatch.setattr(context, "CLIARGS", ImmutableDict(inventory=sources))
        assert newcomers.place({"groups": {}}) == {"inventory_dir": str(place)}


def test_new_nodes_are_added_to_variables_of_the_run(world: World) -> None:
    node = {"name": "node9", "variables": {"ansible_host": "203.0.113.9"}}
    found = newcomers.counted_in(world.vars, [node])
    assert found["groups"]["gpu_nodes"] == ["node1", "node2", "node3", "node9"]
    assert found["ansible_play_hosts"] == found["ansible_play_hosts_all"] == ["node9"]
    assert found["hostvars"].raw_get("node9")["ansible_host"] == "203.0.113.9"
    assert world.vars["groups"]["gpu_nodes"] == ["node1", "node2", "node3"]


def test_host_names_are_resolved_once_with_ipv4_first() -> None:
    found = newcomers.looked_up(["localhost", "localhost", "nowhere.invalid", "x" * 300])
    assert list(found) == ["localhost", "nowhere.invalid", "x" * 300]
    assert found["localhost"][0] == "127.0.0.1"
    assert (found["nowhere.invalid"], found["x" * 300]) == ([], [])


def test_unreadable_file_is_read_as_none(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_bytes(b"node1\xff\n")
    assert newcomers.text_of(str(tmp_path / "nodes")) == "node1\ufffd\n"
    assert newcomers.text_of(str(tmp_path)) is None
    assert newcomers.text_of("~nobody-of-that-name/x") is None


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nodes")
    assert newcomers.text_of(str(tmp_path / "nodes")) is None


def of_config(config: Path) -> dict[str, Any]:
    """Return the options of an import from this ssh config."""
    given = {"node": "", "address": "", "host_key": "", "gpus": 0, "nodes": {}, "nodes_file": ""}
    return {**given, "ssh_config": str(config)}


def test_ssh_config_that_changes_after_the_check_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, read = tmp_path / "config", newcomers.text_of
    config.write_text("Host node8\n  HostName 203.0.113.8\n")

    def swapped(path: str) -> str | None:
        text = read(path)
        config.write_text(f'Match exec "touch {tmp_path}/ran"\n  HostName 203.0.113.66\n')
        return text

    monkeypatch.setattr(newcomers, "text_of", swapped)
    (found,), problems = onboarding_.asked(of_config(config))
    assert (found.address, problems) == ("203.0.113.8", [])
    assert not (tmp_path / "ran").exists()


def test_only_the_own_ssh_config_can_run_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own, other = tmp_path / ".ssh/config", tmp_path / "config"
    own.parent.mkdir()
    own.write_text('Match exec "true"\n  User ada\nHost node8\n  HostName 203.0.113.8\n')
    other.write_text(own.read_text().replace("true", "false"))
    (found,), problems = onboarding_.asked(of_config(own))
    assert (found.address, found.variables, problems) == ("203.0.113.8", {}, [])
    found_there, problems = onboarding_.asked(of_config(other))
    assert (found_there, len(problems)) == ([], 1)
    assert "makes ssh run a command" in problems[0]


def test_ssh_config_sets_address_user_and_port(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host node8\n  HostName 203.0.113.8\n  User ada\n  Port 2222\nHost *\n  User root\n")
    options = of_config(config)
    (found,), problems = onboarding_.asked(options)
    assert (found.name, found.address, problems) == ("node8", "203.0.113.8", [])
    assert found.variables["ansible_user"] == "ada"
    assert found.variables["ansible_port"] == 2222
    _, problems = onboarding_.asked({**options, "ssh_config": str(tmp_path / "none")})
    assert len(problems) == 1
    assert str(tmp_path / "none") in problems[0]
    (found,), problems = onboarding_.asked({**options, "ssh_config": "", "node": "node7", "address": "203.0.113.7"})
    assert (found.name, found.address, problems) == ("node7", "203.0.113.7", [])


@pytest.mark.skipif(os.getuid() != 0, reason="requires root without a password")
def test_node_with_root_access_and_python_is_accepted(world: World) -> None:
    """Contact this machine, using the shell and the Python of the test run."""
    action = world.action("onboard_contact", nodes=[])
    node = connect(action, "node1", world.vars)
    node.connection._play_context.remote_user = "ada"
    assert met({"node1": node}) == {"node1": ""}
    world.manager.set_nonpersistent_facts("node1", {"ansible_python_interpreter": "/usr/bin/no-python"})
    why = met({"node1": connect(action, "node1", world.vars)})["node1"]
    assert why.startswith("/usr/bin/no-python is missing (")
    assert "Muster requires Python 3.10 or newer" in why


def onboarding_result(**nodes: dict[str, Any]) -> dict[str, Any]:
    return {"onboarding": nodes}


def test_rejected_node_stays_quarantined_with_the_reason(world: World) -> None:
    onboarding = Onboarding()
    onboarding.took({"changed": True})
    onboarding.took(onboarding_result(node1={"written": True}, node2={"written": True}, node3={"written": True}))
    onboarding.failed("node1", "node1: its disk is full.\nand more", {}, once=False)
    onboarding.failed("node1", "something else", {}, once=False)
    onboarding.took(onboarding_result(node3={"accepted": True, "rank": 2}))
    verdict = {"findings": [{"status": "fail", "node": "node2", "summary": "a link is down"}], "summary": "x"}
    onboarding.failed("node9", "the check of all", {"verdict": verdict}, once=True)
    ended = onboarding.end(check=False)
    assert ended is onboarding.end(check=False)
    assert ended
    assert ended.red
    assert "node1 is not a member: its disk is full." in ended.lines
    assert "node2 is not a member: a link is down." in ended.lines
    assert "node3 is a member (node rank 2) now" in ended.last
    said = yaml.safe_load(text(world))["gpu_nodes"]["hosts"]
    reasons = {name: (own or {}).get("cluster_quarantined", {}).get("reason") for name, own in said.items()}
    assert reasons == {
        "node1": "not accepted: its disk is full",
        "node2": "not accepted: a link is down",
        "node3": None,
    }


def test_check_mode_writes_nothing(world: World) -> None:
    before = text(world)
    onboarding = Onboarding()
    onboarding.took(onboarding_result(node1={"written": True}))
    onboarding.failed("node1", "its disk is full", {}, once=False)
    onboarding.end(check=True)
    assert text(world) == before
    assert Onboarding().end(check=False) is None


def test_rank_numbers_come_from_the_current_inventory_files(world: World) -> None:
    assert ranks([str(world.folder)], world.loader) == {"node1": 0, "node3": 1}
    (world.folder / "hosts.yml").write_text(text(world).replace("    node1:\n      ansible_host: 203.0.113.1\n", ""))
    assert ranks([str(world.folder)], world.loader) == {"node3": 0}


def test_quarantine_entry_records_reason_user_and_time() -> None:
    entry = members.quarantined("a  fan\n")["cluster_quarantined"]
    assert entry["reason"] == "a fan"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", entry["since"])
    assert "automatic" not in entry
    automatic = members.quarantine_entry("a fan", automatic=True)
    assert (automatic["automatic"], automatic["by"]) == (True, f"the health check of {entry['by']}")
    assert [members.quarantine_said(value) for value in (entry, True, False)] == [
        (True, "a fan"),
        (True, ""),
        (False, ""),
    ]


def test_invalid_request_is_rejected_before_any_contact(world: World) -> None:
    found = world.run("onboard_request", node="node1", address="203.0.113.9")
    assert found["failed"] is True
    first, *problems = found["msg"].splitlines()
    assert first == "The onboarding request has 1 problem; no node was contacted."
    assert problems[0].startswith("- node1 ")
    found = world.run("onboard_request")
    assert found["msg"].splitlines()[1].startswith("- No node is given. Add one of ")


def test_node_is_added_quarantined_and_then_released(world: World) -> None:
    node = {"name": "node9", "variables": {"ansible_host": "203.0.113.9", "inventory_dir": "/x"}}
    before = text(world)
    check = world.run("onboard_inventory", check=True, state="quarantined", nodes=[node])
    assert (check["changed"], text(world)) == (True, before)
    found = world.run("onboard_inventory", state="quarantined", nodes=[node])
    assert (found["changed"], found["onboarding"]) == (True, {"node9": {"written": True}})
    assert re.search(r"node9:\n +ansible_host: 203\.0\.113\.9\n +cluster_quarantined:", text(world))
    assert "inventory_dir" not in text(world)
    found = world.run("onboard_inventory", state="member", names=["node9"])
    assert found["onboarding"] == {"node9": {"accepted": True, "rank": 2}}
    assert "cluster_quarantined" not in text(world).partition("node9")[2]


def test_quarantine_of_an_unknown_node_or_without_a_reason_is_rejected(world: World) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^Nothing was changed\. "):
        world.run("quarantine_nodes", nodes=["node8"], reason="a fan", release=False)
    with pytest.raises(AnsibleActionFail, match=r"^Nothing was changed\. "):
        world.run("quarantine_nodes", nodes=["node1"], reason="", release=False)
