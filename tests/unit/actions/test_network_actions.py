"""The network of nodes as its steps change and check it: firewall, MTU, sshd, and what each node knows of the others.

Nodes answer as the programs on them do; looks at firewalls are those that real nodes gave.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.utils.display import Display

from acting import Modules, Programs, World
from cases import document_of
from muster_controller.network import guard
from muster_controller.playbook.node_error import NodeError
from paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = """
gpu_nodes:
  vars: {ansible_connection: local, cluster_name: rack}
  hosts:
    node1: {cluster_address: 10.0.0.11}
    node2: {cluster_address: 10.0.0.12}
    node3: {cluster_address: 10.0.0.13}
"""
FIREWALL = {path.stem: document_of(path) for path in (ROOT / "tests/unit/firewall/recorded").glob("*.yml")}
CONFIRMED = {"arm": {"armed": True}, "confirm": {"confirmed": True}, "apply": {"failed": ""}}
SETTLED = {"undone": True, "failed": []}
CUT_OFF = NodeError("no route to host", reachable=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "rack", HOSTS)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    undone = {"armed": False, "id": None, "failed": []}
    return Programs(monkeypatch, **CONFIRMED, undo={"undone": False, "failed": []}, state=undone)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(Display, "warning", lambda _self, text, *_args, **_more: found.append(text))
    return found


def fails(world: World, module: str, **options: Any) -> str:
    with pytest.raises(AnsibleActionFail) as failed:
        world.run(module, **options)
    return str(failed.value)


# ---------------------------------------------------------------- the firewall


def firewall(name: str, *, guarded: bool = False) -> dict[str, Any]:
    return {**copy.deepcopy(FIREWALL[name]), "guarded": guarded}


def listening(look: dict[str, Any]) -> dict[str, Any]:
    """A service of somebody's is up, which others reach."""
    line = 'tcp LISTEN 0      128    0.0.0.0:8080 0.0.0.0:* users:(("web",pid=99,fd=3))\n'
    look["said"]["listeners"]["out"] += line
    return look


def test_a_firewall_is_changed_under_guard(world: World, programs: Programs, warned: list[str]) -> None:
    looks = [listening(firewall("bare")), firewall("finished")]
    programs.answers["look"] = lambda *_: looks.pop(0) if len(looks) > 1 else looks[0]
    found = world.run("firewall")
    assert (found["changed"], found["backend"], found["packages"]) == (True, "ufw", [])
    assert programs.verbs() == ["look", "arm", "apply", "confirm", "look"]
    arm, apply = programs.asked[1][2], programs.asked[2][2]
    assert (arm["what"], arm["seconds"]) == ("firewall", 40)
    assert {step["write"] for step in apply["steps"] if "write" in step} <= set(arm["files"])
    assert len(arm["files"]) == len(set(arm["files"]))
    assert arm["commands"]
    assert found["diff"]["before_header"] == found["diff"]["after_header"] == "node1: what may come in"
    assert found["diff"]["after"].splitlines()[0] == "ufw: active, deny (incoming)"
    assert found["diff"]["before"].endswith("\n")
    # Whoever is cut off is named before the change, and in the result.
    assert [line for line in warned if "8080" in line] == found["msg"].splitlines()
    assert [one["status"] for one in found["findings"] if "8080" in one["summary"]] == ["warn"]


def test_a_firewall_that_is_as_it_shall_be_is_left_alone(world: World, programs: Programs) -> None:
    programs.answers["look"] = firewall("finished")
    found = world.run("firewall", confirm_seconds=30)
    assert (found["changed"], "diff" in found, "msg" in found, programs.verbs()) == (False, False, False, ["look"])
    found = world.run("firewall", mode="verify")
    assert ("failed" in found, found["warnings"], found["changed"], found["packages"]) == (False, [], False, [])
    assert {one["status"] for one in found["findings"]} == {"pass"}


def test_a_check_shows_the_change_and_makes_none(world: World, programs: Programs, warned: list[str]) -> None:
    programs.answers["look"] = listening(firewall("bare", guarded=True))
    found = world.run("firewall", check=True)
    assert (found["changed"], programs.verbs()) == (True, ["look"])
    assert (found["diff"]["after"] != found["diff"]["before"], len(warned)) == (True, 1)
    programs.answers["look"] = firewall("finished", guarded=True)
    assert world.run("firewall", check=True)["changed"] is True


def test_a_change_that_nobody_confirmed_is_undone_first(world: World, programs: Programs) -> None:
    looks = [firewall("finished", guarded=True), firewall("finished")]
    programs.answers |= {"look": lambda *_: looks.pop(0), "undo": SETTLED}
    assert world.run("firewall")["changed"] is True
    assert programs.verbs() == ["look", "undo", "look"]


def test_packages_are_installed_before_anything_is_changed(world: World, programs: Programs, warned: list[str]) -> None:
    look = firewall("bare")
    look["ufw"] = None
    look["nftables_at_boot"] = False
    programs.answers["look"] = look
    found = world.run("firewall")
    assert (found["changed"], found["packages"], programs.verbs(), warned) == (False, ["ufw"], ["look"], [])
    assert world.run("firewall", check=True)["changed"] is True


def test_a_node_that_leaves_says_nothing_of_others(world: World, programs: Programs, warned: list[str]) -> None:
    looks = [listening(firewall("finished")), firewall("finished")]
    programs.answers["look"] = lambda *_: looks[0]
    found = world.run("firewall", check=True, mode="leave")
    assert (found["changed"], found["findings"], "msg" in found, warned) == (True, [], False, [])


def test_what_blocks_a_launch_is_named_and_nothing_changed(world: World, programs: Programs) -> None:
    look = firewall("finished")
    rules = look["said"]["iptables"]
    rules["out"] = rules["out"].replace("-A INPUT", "-A INPUT -s 10.0.0.12/32 -j DROP\n-A INPUT", 1)
    programs.answers["look"] = look
    found = world.run("firewall")
    assert (found["failed"], found["changed"], programs.verbs()) == (True, False, ["look"])
    assert found["msg"].splitlines()[-1] == "node1: nothing was changed."
    assert found["findings"]
    verified = world.run("firewall", mode="verify")
    assert (verified["failed"], verified["changed"]) == (True, False)
    assert verified["msg"].startswith(("node1: ", "- node1: "))
    programs.answers["look"] = firewall("bare")
    verified = world.run("firewall", mode="verify")
    assert (verified["failed"], verified["packages"]) == (True, [])


def test_a_firewall_that_cannot_be_changed_says_why(
    world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    short = "firewall_confirm_seconds is below 30, too short for a new connection."
    assert world.run("firewall", confirm_seconds=29)["msg"] == f"node1: {short}"
    programs.answers["look"] = firewall("bare")
    found = world.run("firewall")
    assert found["failed"] is True
    assert found["msg"].startswith("node1: the firewall was changed, but is not yet as it shall be: next is ")
    monkeypatch.setattr(guard.time, "sleep", lambda _: None)
    programs.answers["apply"] = {"failed": "ufw is broken"}
    assert world.run("firewall")["msg"] == (
        "node1: the change of the firewall was undone, because the change failed on the node (ufw is broken). The node"
        " answers and is as it was before. Compare the rules of others on the node (docs/ports.md) and run again."
    )
    programs.answers["look"] = NodeError("it has no Python", reachable=True)
    assert world.run("firewall")["msg"] == "node1: it has no Python"
    programs.answers["look"] = CUT_OFF
    with pytest.raises(AnsibleConnectionFailure, match="no route to host"):
        world.run("firewall")


# ---------------------------------------------------------------- the MTU


def interface(mtu: int = 1500, *, kept: int = 0, known: bool = True, guarded: bool = False) -> dict[str, Any]:
    written = f'if [ "$IFACE" = "eth1" ]; then\n    ip link set dev "eth1" mtu {kept}\n' if kept else ""
    return {
        "interface": "eth1",
        "link": json.dumps([{"ifname": "eth1", "mtu": mtu, "min_mtu": 68, "max_mtu": 9978}]),
        **dict.fromkeys(("netplan", "networkctl", "nmcli", "nmcli_files", "nmcli_mtu"), ""),
        "interfaces": "iface eth1 inet static\n" if known else "",
        "written": {"ifupdown": written, "networkd": ""},
        "guarded": guarded,
    }


def test_an_mtu_is_set_under_guard_and_waits_for_its_paths(world: World, programs: Programs) -> None:
    programs.answers["look"] = interface()
    found = world.run("training_mtu", mtu=9000, confirm_seconds=50)
    assert programs.verbs() == ["look", "arm", "apply"]
    look, arm = programs.asked[0][2], programs.asked[1][2]
    assert look == {"interface": "", "address": "10.0.0.11", "guard": "/var/lib/muster/guard/mtu"}
    assert (arm["seconds"], arm["files"]) == (50, ["/etc/network/if-up.d/muster-mtu"])
    assert arm["commands"] == [{"argv": ["ip", "link", "set", "dev", "eth1", "mtu", "1500"], "text": ""}]
    assert (found["changed"], found["token"], found["interface"], found["before"]) == (True, arm["id"], "eth1", 1500)
    assert found["diff"] == {
        "before": "1500 now, as the system has it after the next start\n",
        "after": "9000 now, 9000 after the next start\n",
        "before_header": "node1: MTU of eth1",
        "after_header": "node1: MTU of eth1",
    }
    check = world.run("training_mtu", check=True, mtu=9000)
    assert (check["changed"], check["token"], check["diff"]) == (True, "", found["diff"])
    assert programs.verbs()[3:] == ["look"]


def test_an_mtu_that_is_as_it_shall_be_is_left_alone(world: World, programs: Programs) -> None:
    as_it_is = {"changed": False, "interface": "eth1", "before": 9000, "token": ""}
    programs.answers["look"] = interface(9000, kept=9000)
    assert world.run("training_mtu", mtu=9000) == world.run("training_mtu", mtu=9000, mode="verify") == as_it_is
    looks = [interface(guarded=True), interface(9000, kept=9000)]
    programs.answers |= {"look": lambda *_: looks.pop(0), "undo": SETTLED}
    assert world.run("training_mtu", mtu=9000) == {**as_it_is, "changed": True}
    assert programs.verbs()[2:] == ["look", "undo", "look"]
    programs.answers["look"] = interface(9000, kept=9000, guarded=True)
    for options in ({"check": True}, {"mode": "verify"}):
        assert world.run("training_mtu", mtu=9000, **options) == as_it_is
    assert programs.verbs().count("undo") == 1


def test_an_mtu_that_cannot_be_set_says_why(world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.answers["look"] = interface()
    assert fails(world, "training_mtu", mtu=9000, mode="verify") == (
        "node1: the MTU of eth1 is 1500, and mtu_training is 9000; after the next start ifupdown would give eth1 another"
        " MTU than 9000. To change it, set mtu_mode to manage."
    )
    programs.answers["look"] = interface(known=False)
    assert fails(world, "training_mtu", mtu=9000).startswith("node1: nothing is known here of what sets up eth1: ")
    assert fails(world, "training_mtu", mtu=9000, mode="verify").startswith("node1: the MTU of eth1 is 1500, ")
    programs.answers["look"] = {**interface(), "link": ""}
    assert fails(world, "training_mtu", mtu=9000) == (
        "node1: its training interface eth1 cannot be looked at. Set cluster_interface to the one that carries the"
        " training."
    )
    monkeypatch.setattr(guard.time, "sleep", lambda _: None)
    programs.answers |= {"look": interface(), "apply": {"failed": "ip: not permitted"}}
    assert fails(world, "training_mtu", mtu=9000).startswith(
        "node1: the change of the mtu was undone, because the change failed on the node (ip: not permitted). "
    )


def paths(world: World, name: str, full: bool, small: bool = True, why: str = "") -> None:
    peers = {"node2": {"address": "10.0.0.12", "small": small, "full": full}} if not why else {}
    world.registered(name, "paths", {"paths": peers, "why": why})


def test_paths_are_tried_to_the_next_nodes_of_the_play(world: World, programs: Programs) -> None:
    world.registered("node1", "set", {"interface": "eth1", "token": "t"})
    world.vars["ansible_play_hosts_all"] = ["node1", "node2"]
    programs.answers["ping"] = {"came": {"node2": {"small": True, "full": False}}}
    found = world.run("training_mtu", mtu=9000, step="try", changes="set")
    assert programs.asked[0][2] == {"interface": "eth1", "mtu": 9000, "peers": {"node2": "10.0.0.12"}}
    tried = {"node2": {"small": True, "full": False, "address": "10.0.0.12"}}
    assert found == {"changed": False, "paths": tried, "why": ""}
    programs.answers["ping"] = CUT_OFF
    found = world.run("training_mtu", mtu=9000, step="try", changes="set")
    assert found == {"changed": False, "paths": {}, "why": "no route to host"}


def test_an_mtu_stays_where_all_paths_carry_it(
    world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle() -> dict[str, Any]:
        return world.run("training_mtu", mtu=9000, step="settle", changes="set", paths="paths")

    def set_to(token: str) -> None:
        world.registered("node1", "set", {"interface": "eth1", "token": token, "began": guard.time.monotonic()})

    monkeypatch.setattr(guard.time, "sleep", lambda _: None)
    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    set_to("t")
    for name in ("node1", "node3"):
        paths(world, name, full=True)
    assert (settle(), programs.asked) == ({"changed": False}, [("node1", "confirm", {"what": "mtu", "id": "t"})])
    paths(world, "node1", full=False, small=False)
    note = "node1: node2 did not answer at all, so nothing is known of the MTU on the way there."
    assert settle() == {"changed": False, "warnings": [note]}
    paths(world, "node1", full=False)
    with pytest.raises(AnsibleActionFail, match="because a packet of 9000 bytes does not reach node2"):
        settle()
    assert "undo" in programs.verbs()
    set_to("")
    with pytest.raises(AnsibleActionFail, match="^node1: a packet of 9000 bytes does not reach node2"):
        settle()
    # Another node did not say how its paths are: nobody keeps what another one may not have.
    paths(world, "node1", full=True)
    paths(world, "node3", full=True, why="no route")
    assert settle() == {"changed": False}
    set_to("t")
    with pytest.raises(AnsibleActionFail, match=r"because node3 could not be asked for its paths \(no route\)\."):
        settle()


# ---------------------------------------------------------------- sshd, and what nodes know of each other


def test_settings_of_sshd_are_kept_under_guard(world: World, programs: Programs) -> None:
    programs.answers["look"] = {"before": ""}
    options = {"path": "/etc/ssh/x.conf", "settings": "UseDNS no\n", "seconds": 33}
    found = world.run("ssh_mesh_sshd", **options)
    header = {"before_header": "/etc/ssh/x.conf", "after_header": "/etc/ssh/x.conf"}
    assert found == {"changed": True, "diff": {"before": "", "after": "UseDNS no\n", **header}}
    assert programs.verbs() == ["undo", "look", "arm", "apply", "confirm"]
    arm = programs.asked[2][2]
    reload = {"argv": ["systemctl", "try-reload-or-restart", "ssh.service"], "text": ""}
    assert (arm["what"], arm["files"], arm["commands"], arm["seconds"]) == ("sshd", ["/etc/ssh/x.conf"], [reload], 33)
    assert programs.asked[3][2] == {"path": "/etc/ssh/x.conf", "settings": "UseDNS no\n"}
    programs.asked.clear()
    assert world.run("ssh_mesh_sshd", check=True, **options) == found
    assert programs.verbs() == ["look"]
    assert world.run("ssh_mesh_sshd", **{**options, "settings": ""}) == {"changed": False}
    programs.answers["look"] = {"before": "UseDNS yes\n"}
    gone = world.run("ssh_mesh_sshd", **{**options, "settings": ""})
    assert (gone["changed"], gone["diff"]["before"], gone["diff"]["after"]) == (True, "UseDNS yes\n", "")


def test_settings_that_sshd_does_not_take_are_undone(
    world: World, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard.time, "sleep", lambda _: None)
    programs.answers |= {"look": {"before": ""}, "apply": {"failed": "sshd -t: bad"}}
    said = fails(world, "ssh_mesh_sshd", path="/etc/ssh/x.conf", settings="x", seconds=40)
    assert said.startswith(
        "node1: the change of the sshd was undone, because the change failed on the node (sshd -t: bad). The node"
        " answers and is as it was before. A controller that knows the node by its ecdsa key alone cannot come back, "
    )


def test_members_of_the_mesh_are_all_that_stay(world: World) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEp/Kq7JMActy0Ycv8l1qWR2g4GfKuM2DG18jTlwgPIa"
    for name in ("node1", "node2"):
        seen = {"key": f"{key}{name}", "host_keys": [key], "port": 22, "hostname": name, "sources": []}
        world.registered(name, "keys", seen)
    world.vars["cluster_leaving"] = ["node3"]
    found = world.run("ssh_mesh_members", looks="keys")
    assert [(one["name"], one["address"], one["seen"]) for one in found["members"]] == [
        ("node1", "10.0.0.11", True),
        ("node2", "10.0.0.12", True),
    ]
    assert len(found["warnings"]) == 1
    world.vars["cluster_leaving"] = []
    world.registered("node2", "keys", {})
    found = world.run("ssh_mesh_members", looks="keys")
    assert [one["seen"] for one in found["members"]] == [True, False, False]
    assert "warnings" not in found
