"""Actions that change the network of nodes: firewall, MTU, sshd, and SSH between nodes.

Simulated nodes answer as the real node programs do. Firewall inspections were recorded on real nodes.
"""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from acting import Programs
from firewall_looks import LOOKS
from muster_controller.network import guard
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from acting import World

SETTLED = {"undone": True, "failed": []}
CUT_OFF = NodeError("no route to host", reachable=False)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Return nodes that confirm every change immediately."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    changed = {"arm": {"armed": True}, "confirm": {"confirmed": True}, "apply": {"failed": ""}}
    undone: dict[str, Any] = {"armed": False, "id": None, "failed": []}
    return Programs(monkeypatch, **changed, undo={"undone": False, "failed": []}, state=undone)


@pytest.fixture
def world(world: World) -> World:
    for number in (1, 2, 3):  # as in the recorded firewalls
        world.registered(f"node{number}", "cluster_address", f"10.0.0.1{number}")
    return world


# ---------------------------------------------------------------- the firewall


def firewall(name: str, listens: int = 0, *, guarded: bool = False) -> dict[str, Any]:
    """Return a recorded firewall inspection by its name. listens: a port on which a service accepts other hosts."""
    look = {**copy.deepcopy(LOOKS[name]), "guarded": guarded}
    if listens:
        look["said"]["listeners"]["out"] += (
            f'tcp LISTEN 0 128 0.0.0.0:{listens} 0.0.0.0:* users:(("web",pid=99,fd=3))\n'
        )
    return look


def test_firewall_change_is_guarded(world: World, programs: Programs, displayed: list[str]) -> None:
    looks = [firewall("bare", 8080), firewall("finished")]
    programs.answers["look"] = lambda *_: looks.pop(0) if len(looks) > 1 else looks[0]
    stopped = world.run("firewall")
    assert (stopped["changed"], stopped["failed"], programs.verbs()) == (False, True, ["look"])
    assert "firewall_allow: [{port: 8080, comment: web}]" in stopped["msg"]
    programs.asked.clear()
    looks.insert(0, firewall("bare", 8080))
    found = world.run("firewall", cut=["8080"])
    assert (found["changed"], found["backend"], found["packages"]) == (True, "ufw", [])
    assert programs.verbs() == ["look", "arm", "apply", "confirm", "look"]
    arm, steps = programs.of("arm")["node1"], programs.of("apply")["node1"]["steps"]
    assert (arm["what"], arm["seconds"], bool(arm["commands"])) == ("firewall", 40, True)
    assert {step["write"] for step in steps if "write" in step} <= set(arm["files"])
    assert found["diff"]["before_header"] == found["diff"]["after_header"] == "node1: allowed incoming traffic"
    assert (found["diff"]["after"].splitlines()[0], found["diff"]["before"][-1]) == (
        "ufw: active, deny (incoming)",
        "\n",
    )
    assert (displayed, "msg" in found) == ([], False)
    assert "web with PID 99, port 8080/tcp [in firewall_cut]" in found["findings"][-1]["summary"]
    # Nothing is changed on a node without differences, or in check mode.
    for options in ({}, {"check": True}, {"mode": "verify"}):
        again = world.run("firewall", **options)
        assert (again["changed"], "diff" in again, "msg" in again, again["packages"]) == (False, False, False, [])
    assert (again["warnings"], {one["status"] for one in again["findings"]}) == ([], {"pass"})
    looks[0] = firewall("bare", 8080, guarded=True)
    check = world.run("firewall", check=True)
    assert (check["changed"], check["diff"], programs.verbs()[5:]) == (True, found["diff"], ["look"] * 4)
    assert "the firewall (default deny) would block a service for other hosts: web with PID 99" in check["msg"]
    looks[0] = firewall("finished", 8080)
    leaves = world.run("firewall", check=True, mode="leave")
    assert (leaves["changed"], leaves["findings"]) == (True, [])
    assert leaves["msg"].startswith("node1: ufw stays active, because the state of the firewall before Muster is not")


def test_failed_firewall_change_is_explained(world: World, programs: Programs, displayed: list[str]) -> None:
    looks = [firewall("finished", guarded=True), firewall("finished")]
    programs.answers |= {"look": lambda *_: looks.pop(0), "undo": SETTLED}
    assert (world.run("firewall")["changed"], programs.verbs()) == (True, ["look", "undo", "look"])
    programs.answers["look"] = {**firewall("bare"), "ufw": None, "nftables_at_boot": False}
    found = world.run("firewall")  # the role installs the package and runs the action again
    assert (found["changed"], found["packages"], displayed) == (False, ["ufw"], [])
    assert world.run("firewall", check=True)["changed"] is True
    blocked = firewall("finished")
    rules = blocked["said"]["iptables"]["out"]
    blocked["said"]["iptables"]["out"] = rules.replace("-A INPUT", "-A INPUT -s 10.0.0.12/32 -j DROP\n-A INPUT", 1)
    programs.answers["look"] = blocked
    found = world.run("firewall")
    assert (found["changed"], "apply" in programs.verbs()) == (False, False)
    assert found["msg"].splitlines()[-1] == "node1: nothing was changed."
    assert world.fails("firewall", mode="verify").startswith(("node1: ", "- node1: "))
    programs.answers["look"] = firewall("bare")
    first = world.fails("firewall")
    assert first.startswith("node1: the firewall was changed, but not completely (next step: ")
    programs.answers["apply"] = {"failed": "ufw is broken"}
    assert world.fails("firewall") == (
        "node1: the change of the firewall was undone, because the change failed on the node (ufw is broken). The node"
        " was restored and is reachable. Check the node for firewall rules that Muster does not manage (docs/ports.md)"
        " and run the command again."
    )
    short = "node1: firewall_confirm_seconds is too short for a new connection; the minimum is 30."
    assert world.fails("firewall", confirm_seconds=29) == short
    programs.answers["look"] = NodeError("it has no Python", reachable=True)
    assert world.fails("firewall") == "node1: it has no Python"
    programs.answers["look"] = CUT_OFF
    with pytest.raises(AnsibleConnectionFailure, match="no route to host"):
        world.run("firewall")


# ---------------------------------------------------------------- the MTU


def interface(mtu: int = 1500, *, known: bool = True, guarded: bool = False) -> dict[str, Any]:
    """Return the inspection of a node that keeps a large MTU once it is set."""
    kept = f'if [ "$IFACE" = "eth1" ]; then\n    ip link set dev "eth1" mtu {mtu}\n' if mtu > 1500 else ""
    nothing = dict.fromkeys(("netplan", "networkctl", "nmcli", "nmcli_files", "nmcli_mtu"), "")
    link = json.dumps([{"ifname": "eth1", "mtu": mtu, "min_mtu": 68, "max_mtu": 9978}])
    own = {"interfaces": "iface eth1 inet static\n" if known else "", "written": {"ifupdown": kept, "networkd": ""}}
    return {"interface": "eth1", "link": link, "guarded": guarded, **nothing, **own}


def test_mtu_change_is_guarded_and_waits_for_path_tests(world: World, programs: Programs) -> None:
    programs.answers["look"] = interface()
    found = world.run("training_mtu", mtu=9000, confirm_seconds=50)
    arm = programs.of("arm")["node1"]
    assert programs.of("look")["node1"] == {"interface": "", "address": "10.0.0.11", "guard": f"{guard.GUARD_ROOT}/mtu"}
    assert (arm["seconds"], arm["files"]) == (50, ["/etc/network/if-up.d/muster-mtu"])
    assert arm["commands"] == [{"argv": ["ip", "link", "set", "dev", "eth1", "mtu", "1500"], "text": ""}]
    assert (found["changed"], found["token"], found["interface"], found["before"]) == (True, arm["id"], "eth1", 1500)
    sides = {"before": "1500 now, system default after the next boot\n"}
    sides["after"] = "9000 now, 9000 after the next boot\n"
    assert found["diff"] == sides | dict.fromkeys(("before_header", "after_header"), "node1: MTU of eth1")
    check = world.run("training_mtu", check=True, mtu=9000)
    assert (check["changed"], check["token"], check["diff"]) == (True, "", found["diff"])
    assert programs.verbs() == ["look", "arm", "apply", "look"]
    as_it_is = {"changed": False, "interface": "eth1", "before": 9000, "token": ""}
    for guarded, options in ((False, {}), (True, {"check": True}), (True, {"mode": "verify"})):
        programs.answers["look"] = interface(9000, guarded=guarded)
        assert world.run("training_mtu", mtu=9000, **options) == as_it_is
    looks = [interface(guarded=True), interface(9000)]
    programs.answers |= {"look": lambda *_: looks.pop(0), "undo": SETTLED}
    assert world.run("training_mtu", mtu=9000) == {**as_it_is, "changed": True}
    assert programs.verbs()[7:] == ["look", "undo", "look"]


def test_failed_mtu_change_is_explained(world: World, programs: Programs) -> None:
    programs.answers |= {"look": interface(), "apply": {"failed": "ip: not permitted"}}
    undone = "node1: the change of the mtu was undone, because the change failed on the node (ip: not permitted). "
    assert world.fails("training_mtu", mtu=9000).startswith(undone)
    assert world.fails("training_mtu", mtu=9000, mode="verify") == (
        "node1: the MTU of eth1 is 1500, but mtu_training is 9000; ifupdown would not set the MTU of eth1 to"
        " 9000 at the next boot. To apply the changes, set mtu_mode to manage."
    )
    programs.answers["look"] = interface(known=False)
    assert world.fails("training_mtu", mtu=9000).startswith("node1: none of netplan, ")
    assert world.fails("training_mtu", mtu=9000, mode="verify").startswith("node1: the MTU of eth1 is 1500, ")
    programs.answers["look"] = {**interface(), "link": ""}
    fix = "Set cluster_interface to the training interface"
    said = f"node1: the training interface eth1 cannot be read. {fix}."
    assert world.fails("training_mtu", mtu=9000) == said


def test_paths_to_the_next_nodes_of_the_play_are_tested(world: World, programs: Programs) -> None:
    world.registered("node1", "set", {"interface": "eth1", "token": "t"})
    world.vars["ansible_play_hosts_all"] = ["node1", "node2"]
    programs.answers["ping"] = {"came": {"node2": {"small": True, "full": False}}}
    tried = {"node2": {"small": True, "full": False, "address": "10.0.0.12"}}
    given: dict[str, Any] = {"mtu": 9000, "step": "try", "changes": "set"}
    assert world.run("training_mtu", **given) == {"changed": False, "paths": tried, "why": ""}
    assert programs.asked[0][2] == {"interface": "eth1", "mtu": 9000, "peers": {"node2": "10.0.0.12"}}
    programs.answers["ping"] = CUT_OFF
    assert world.run("training_mtu", **given) == {"changed": False, "paths": {}, "why": "no route to host"}


def test_new_mtu_is_kept_if_packets_of_that_size_pass_on_all_paths(world: World, programs: Programs) -> None:
    given: dict[str, Any] = {"mtu": 9000, "step": "settle", "changes": "set", "paths": "paths"}

    def paths(name: str, *, full: bool = True, small: bool = True, why: str = "", of: str = "t") -> None:
        peers = {"node2": {"address": "10.0.0.12", "small": small, "full": full}} if not why else {}
        world.registered(name, "paths", {"paths": peers, "why": why})
        world.registered(name, "set", {"interface": "eth1", "token": of, "began": time.monotonic()})

    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    paths("node1")
    paths("node3")
    assert world.run("training_mtu", **given) == {"changed": False}
    assert programs.asked == [("node1", "confirm", {"what": "mtu", "id": "t"})]
    paths("node1", full=False, small=False)
    note = "node1: node2 did not respond, so the MTU of the path is unknown."
    assert world.run("training_mtu", **given) == {"changed": False, "warnings": [note]}
    paths("node1", full=False)
    lost = "packets of 9000 bytes do not reach node2 (10.0.0.12), but small packets do. "
    assert f"because {lost}" in world.fails("training_mtu", **given)
    assert programs.verbs()[2:] == ["undo", "state"]
    paths("node1", full=False, of="")
    assert world.fails("training_mtu", **given).startswith(f"node1: {lost}")
    # Another node did not report its paths: no node keeps the change.
    paths("node1", of="")
    paths("node3", why="no route")
    assert world.run("training_mtu", **given) == {"changed": False}
    paths("node1")
    assert "because the paths from node3 could not be tested (no route)." in world.fails("training_mtu", **given)


# ---------------------------------------------------------------- sshd, and SSH between nodes


def test_sshd_settings_change_is_guarded(world: World, programs: Programs) -> None:
    programs.answers["look"] = {"before": ""}
    options: dict[str, Any] = {"path": "/etc/ssh/x.conf", "settings": "UseDNS no\n", "seconds": 33}
    found = world.run("ssh_mesh_sshd", **options)
    headers = dict.fromkeys(("before_header", "after_header"), "/etc/ssh/x.conf")
    shown = {"changes": {"sshd": ["/etc/ssh/x.conf"]}, "diff": {"before": "", "after": "UseDNS no\n", **headers}}
    assert found == {"changed": True, **shown}
    assert programs.verbs() == ["undo", "look", "arm", "apply", "confirm"]
    reload = {"argv": ["systemctl", "try-reload-or-restart", "ssh.service"], "text": ""}
    arm = {"what": "sshd", "files": ["/etc/ssh/x.conf"], "commands": [reload], "seconds": 33, "texts": {}}
    assert programs.of("arm")["node1"] == {**arm, "id": programs.of("confirm")["node1"]["id"]}
    assert programs.of("apply")["node1"] == {"path": "/etc/ssh/x.conf", "settings": "UseDNS no\n"}
    assert world.run("ssh_mesh_sshd", check=True, **options) == found
    assert programs.verbs()[5:] == ["look"]
    assert world.run("ssh_mesh_sshd", **{**options, "settings": ""}) == {"changed": False}
    programs.answers |= {"look": {"before": "UseDNS yes\n"}, "apply": {"failed": "sshd -t: bad"}}
    gone = world.run("ssh_mesh_sshd", check=True, **{**options, "settings": ""})
    assert (gone["changed"], gone["diff"]["before"], gone["diff"]["after"]) == (True, "UseDNS yes\n", "")
    said = "node1: the change of the sshd was undone, because the change failed on the node (sshd -t: bad). The node"
    fix = "was restored and is reachable. If the controller has pinned only the node's ecdsa key, "
    assert world.fails("ssh_mesh_sshd", **options).startswith(f"{said} {fix}")


def test_leaving_nodes_are_excluded_from_the_ssh_mesh(world: World) -> None:
    for name in ("node1", "node2"):
        look = {"key": f"ssh-ed25519 AAAA{name}", "host_keys": ["ssh-ed25519 AAAA"], "port": 22, "hostname": name}
        world.registered(name, "keys", look)
    world.vars["cluster_leaving"] = ["node3"]
    found = world.run("ssh_mesh_members", looks="keys")
    seen = [("node1", "10.0.0.11", True), ("node2", "10.0.0.12", True)]
    assert [(one["name"], one["address"], one["seen"]) for one in found["members"]] == seen
    assert len(found["warnings"]) == 1  # about a shared host key
    world.vars["cluster_leaving"] = []
    world.registered("node2", "keys", {})
    found = world.run("ssh_mesh_members", looks="keys")
    assert ([one["seen"] for one in found["members"]], "warnings" in found) == ([True, False, False], False)
