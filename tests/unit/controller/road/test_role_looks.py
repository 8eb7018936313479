"""Inspections determine which roles run on which nodes. The SSH mesh role runs on all nodes if one node differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acting import World
from muster.network import ssh_mesh
from muster.road.looks import LOOKS
from muster_controller.network.mesh_members import member_of
from muster_controller.road.role_looks import NO_ANSWER, RoleDecisions, RoleLooks

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["node1", "node2", "node3"]
IDENTITY = "/var/lib/muster/ssh/muster/id_ed25519"
MESH = next(look for look in LOOKS["network"] if look.role == "ssh_mesh")


class Tasks:
    """Role variables and arguments with their defaults."""

    def value(self, _look: object, _host: str, name: str, **_more: object) -> Any:
        return {"ssh_mesh_mode": "manage", "_ssh_mesh_everybody": ["muster"]}[name]

    def arguments(self, _look: object, _host: str, **_more: object) -> dict[str, str]:
        return {"identity": IDENTITY}


class Off:
    def value(self, _look: object, _host: str, _name: str) -> str:
        return "off"


def mesh_facts(name: str) -> dict[str, Any]:
    return {"host_keys": [f"ssh-ed25519 H{name[-1]}"], "port": 22, "key": f"ssh-ed25519 K{name[-1]}", "hostname": name}


def verified_login(name: str, peer: str) -> str:
    return ssh_mesh.way(f"out of {name}", f"into {peer}")


@pytest.fixture
def looks() -> RoleLooks:
    looks = RoleLooks.__new__(RoleLooks)
    stub: Any = Tasks()
    looks.names, looks.tasks = NAMES, stub
    looks.addresses = {name: f"10.0.0.{name[-1]}" for name in NAMES}
    looks.values = {
        name: {"cluster_name": "rack", "cluster_address": address, "ansible_host": address}
        for name, address in looks.addresses.items()
    }
    return looks


@pytest.fixture
def seen(looks: RoleLooks) -> dict[str, Any]:
    """Return inspections of nodes that are all OK, with all logins verified."""
    members = [member_of(name, looks.addresses[name], "", mesh_facts(name)) for name in NAMES]
    wanted = ssh_mesh.wanted("rack", "muster", members, IDENTITY, "", "", "")
    texts = {"authorized_keys": wanted.authorized_keys, "config": wanted.config, "known_hosts": wanted.known_hosts}
    return {
        name: {
            "ssh_mesh muster": {
                "why": [],
                "warnings": [],
                "look": mesh_facts(name),
                "texts": dict(texts),
                "ways": {"out": f"out of {name}", "in": f"into {name}"},
                "proved": {peer: verified_login(name, peer) for peer in NAMES if peer != name},
                "tried": {},
            }
        }
        for name in NAMES
    }


def roles_needed(looks: RoleLooks, seen: dict[str, Any]) -> dict[str, list[str]]:
    found = RoleDecisions()
    for name in NAMES:
        looks._judge(found, MESH, name, seen.get(name, {}))
    looks._judge_mesh(found, MESH, seen)
    return found.why.get("ssh_mesh", {})


def test_ssh_mesh_role_is_skipped_if_all_logins_are_verified(looks: RoleLooks, seen: dict[str, Any]) -> None:
    assert roles_needed(looks, seen) == {}


def test_ssh_mesh_role_runs_on_all_nodes_if_one_node_is_silent(looks: RoleLooks, seen: dict[str, Any]) -> None:
    del seen["node2"]
    assert roles_needed(looks, seen) == {
        "node2": [NO_ANSWER],
        "node1": ["a peer differs"],
        "node3": ["a peer differs"],
    }


@pytest.mark.parametrize(
    ("part", "value", "who", "says"),
    [
        ("ways", {"out": "out of node1", "in": "another way in"}, "node2", "muster on node1 have changed"),
        ("ways", {"out": "another way out", "in": "into node1"}, "node1", "muster on node2 have changed"),
        ("proved", {}, "node1", "muster on node3 have changed"),
        ("look", {**mesh_facts("node1"), "key": "ssh-ed25519 K2"}, "node1", "the same private key as node2"),
        ("look", {**mesh_facts("node1"), "host_keys": []}, "node2", "known_hosts of muster differs"),
        ("tried", {"node2": {"code": 255, "said": "Permission denied", "hostname": ""}}, "node1", "does not accept"),
        (
            "tried",
            {"node2": {"code": 0, "said": "", "hostname": "other"}},
            "node1",
            "the hostname other, not node2",
        ),
        ("texts", {"authorized_keys": "", "config": "", "known_hosts": ""}, "node1", "config of muster differs"),
        ("why", ["its key is not as it shall be"], "node1", "its key is not"),
        ("texts", "of another shape", "node1", "AttributeError"),
    ],
)
def test_ssh_mesh_role_runs_on_all_nodes_if_one_node_differs(
    looks: RoleLooks, seen: dict[str, Any], part: str, value: Any, who: str, says: str
) -> None:
    seen["node1"]["ssh_mesh muster"][part] = value
    why = roles_needed(looks, seen)
    assert set(why) == set(NAMES)
    assert any(says in sentence for sentence in why[who]), why


def test_changed_record_runs_only_its_role_on_that_node(looks: RoleLooks) -> None:
    looks.names = ["node1", "node2", "node3"]
    looks.values = {name: {"cluster_environments": {}, "workbench_nodes": []} for name in looks.names}
    off: Any = Off()
    looks.tasks = off
    same, other = ({"installed_record": {"why": why, "warnings": []}} for why in ([], ["it is another one"]))
    found = looks.judge("pytorch", {"node1": same, "node2": other})
    assert found.why == {"installed_record": {"node2": ["it is another one"], "node3": [NO_ANSWER]}}


def test_pytorch_of_a_gpu_node_is_inspected_in_the_pytorch_step(looks: RoleLooks) -> None:
    looks.values = {name: {"cluster_gpus": 8 if name == "node1" else 0} for name in NAMES}
    plain = ("network", "pytorch")
    assert looks.steps_of("network", plain) == {"node1": ("network",), "node2": plain, "node3": plain}
    assert set(looks.steps_of("pytorch", ["pytorch"]).values()) == {("pytorch",)}


def test_each_node_tests_the_login_to_another_node(looks: RoleLooks) -> None:
    assert looks.shift(check=True) == 0
    assert {looks.shift(check=False) for _ in range(50)} == {1, 2}
    looks.names = ["node1"]
    assert looks.shift(check=False) == 0


def test_inventory_values_are_read_for_all_nodes(tmp_path: Path) -> None:
    hosts = """
gpu_nodes:
  vars: {cluster_name: rack, ansible_connection: local}
  hosts:
    node1: {cluster_address: 10.0.0.1, ansible_host: 192.0.2.1, network_full: true}
    node2: {cluster_address: 10.0.0.2}
"""
    world = World(tmp_path, hosts)
    looks = RoleLooks(world.vars, world.templar, world.loader, ["node1"])
    assert looks.names == ["node1"]
    assert looks.addresses == {"node1": "10.0.0.1", "node2": "10.0.0.2"}
    assert {name: own["cluster_address"] for name, own in looks.values.items()} == looks.addresses
    assert {own["cluster_name"] for own in looks.values.values()} == {"rack"}
    assert not looks.is_off(MESH, "node1")
    assert looks.users(MESH, "node1") == ["muster"]
    assert looks.shift(check=False) == 0
    both = RoleLooks(world.vars, world.templar, world.loader, ["node1", "node2"])
    assert (both.shift(check=False), both.shift(check=True)) == (1, 0)
    assert set(both.values["node1"]) >= {"cluster_name", "cluster_address", "ansible_host"}
    # A request that cannot be built is omitted silently, so the role runs.
    requests = both._requests("node1", ["network", "pytorch"], 1)
    assert set(requests) >= {"cluster_hosts", "firewall", "installed_record", "pytorch"}
    assert requests["cluster_hosts"] == {
        "module": "hosts_file",
        "options": {"mode": "manage", "nodes": both.addresses, "own": "node1"},
    }
    assert requests["pytorch"]["options"]["root"] == "/opt/muster/pytorch"
