"""The MTU of the training interface, as its steps change it: nodes answer as the programs on them do."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from acting import Programs
from muster_controller.network import guard
from muster_controller.playbook.node_error import NodeError

if TYPE_CHECKING:
    from acting import World

SETTLED = {"undone": True, "failed": []}
CUT_OFF = NodeError("no route to host", reachable=False)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Nodes on which each change is confirmed; nobody waits."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    changed = {"arm": {"armed": True}, "confirm": {"confirmed": True}, "apply": {"failed": ""}}
    undone: dict[str, Any] = {"armed": False, "id": None, "failed": []}
    return Programs(monkeypatch, **changed, undo={"undone": False, "failed": []}, state=undone)


def interface(mtu: int = 1500, *, known: bool = True, guarded: bool = False) -> dict[str, Any]:
    """Of a node that keeps a large MTU, once it has one."""
    kept = f'if [ "$IFACE" = "eth1" ]; then\n    ip link set dev "eth1" mtu {mtu}\n' if mtu > 1500 else ""
    nothing = dict.fromkeys(("netplan", "networkctl", "nmcli", "nmcli_files", "nmcli_mtu"), "")
    link = json.dumps([{"ifname": "eth1", "mtu": mtu, "min_mtu": 68, "max_mtu": 9978}])
    own = {"interfaces": "iface eth1 inet static\n" if known else "", "written": {"ifupdown": kept, "networkd": ""}}
    return {"interface": "eth1", "link": link, "guarded": guarded, **nothing, **own}


def test_an_mtu_is_set_under_guard_and_waits_for_its_paths(world: World, programs: Programs) -> None:
    programs.answers["look"] = interface()
    found = world.run("training_mtu", mtu=9000, confirm_seconds=50)
    arm = programs.of("arm")["node1"]
    assert programs.of("look")["node1"] == {"interface": "", "address": "10.0.0.1", "guard": f"{guard.GUARD_ROOT}/mtu"}
    assert (arm["seconds"], arm["files"]) == (50, ["/etc/network/if-up.d/muster-mtu"])
    assert arm["commands"] == [{"argv": ["ip", "link", "set", "dev", "eth1", "mtu", "1500"], "text": ""}]
    assert (found["changed"], found["token"], found["interface"], found["before"]) == (True, arm["id"], "eth1", 1500)
    sides = {"before": "1500 now, as the system has it after the next start\n"}
    sides["after"] = "9000 now, 9000 after the next start\n"
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


def test_paths_are_tried_to_the_next_nodes_of_the_play(world: World, programs: Programs) -> None:
    world.registered("node1", "set", {"interface": "eth1", "token": "t"})
    world.vars["ansible_play_hosts_all"] = ["node1", "node2"]
    programs.answers["ping"] = {"came": {"node2": {"small": True, "full": False}}}
    tried = {"node2": {"small": True, "full": False, "address": "10.0.0.2"}}
    given: dict[str, Any] = {"mtu": 9000, "step": "try", "changes": "set"}
    assert world.run("training_mtu", **given) == {"changed": False, "paths": tried, "why": ""}
    assert programs.asked[0][2] == {"interface": "eth1", "mtu": 9000, "peers": {"node2": "10.0.0.2"}}
    programs.answers["ping"] = CUT_OFF
    assert world.run("training_mtu", **given) == {"changed": False, "paths": {}, "why": "no route to host"}


def test_an_mtu_stays_where_all_paths_carry_it(world: World, programs: Programs) -> None:
    given: dict[str, Any] = {"mtu": 9000, "step": "settle", "changes": "set", "paths": "paths"}

    def paths(name: str, *, full: bool = True, small: bool = True, why: str = "", of: str = "t") -> None:
        peers = {"node2": {"address": "10.0.0.2", "small": small, "full": full}} if not why else {}
        world.registered(name, "paths", {"paths": peers, "why": why})
        world.registered(name, "set", {"interface": "eth1", "token": of, "began": time.monotonic()})

    world.vars["ansible_play_hosts"] = ["node1", "node3"]
    paths("node1")
    paths("node3")
    assert world.run("training_mtu", **given) == {"changed": False}
    assert programs.asked == [("node1", "confirm", {"what": "mtu", "id": "t"})]
    paths("node1", full=False, small=False)
    note = "node1: node2 did not answer at all, so nothing is known of the MTU on the way there."
    assert world.run("training_mtu", **given) == {"changed": False, "warnings": [note]}
    paths("node1", full=False)
    lost = "a packet of 9000 bytes does not reach node2 (10.0.0.2), and a small one does. "
    assert f"because {lost}" in world.fails("training_mtu", **given)
    assert programs.verbs()[2:] == ["undo", "state"]
    paths("node1", full=False, of="")
    assert world.fails("training_mtu", **given).startswith(f"node1: {lost}")
    # Another node did not say how its paths are: nobody keeps what another one may not have.
    paths("node1", of="")
    paths("node3", why="no route")
    assert world.run("training_mtu", **given) == {"changed": False}
    paths("node1")
    assert "because node3 could not be asked for its paths (no route)." in world.fails("training_mtu", **given)
