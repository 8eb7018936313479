"""A run stops before the firewall blocks services of others, and removal restores the state before."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from conftest import UP_TO_NETWORK
from firewalls import PLAYBOOK, TASK, bare, state, unmanaged
from machines import find_machine
from outside import conversation, scan, stubs
from snapshot import differences, take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine, Play

# Stubs: listeners with the names and ports of the real programs. The first four are neighbours on the first node.
NEIGHBOURS = (
    {"slurmctld": "6817", "slurmd": "6818", "node_exporter": "9100", "prometheus": "9090"},
    {"rpc.mountd": "20048", "ollama": "11434", "k3s-agent": "10250 8472/udp", "raylet": "8076"},
)
DESKTOP = {"avahi-daemon": "5353/udp", "cupsd": "631", "rpcbind": "111 111/udp", "systemd-resolve": "5355 5355/udp"}
RECORD = "/var/lib/muster/firewall-before.json"
# A bridge of LXD with a machine behind it, and its NAT in an nftables table.
BEHIND = """
set -e
sysctl -q -w net.ipv4.ip_forward=1
ip link add lxdbr0 type bridge
ip address add 10.66.0.1/24 dev lxdbr0
ip link set lxdbr0 up
ip netns add behind
ip link add veth0 type veth peer name eth0 netns behind
ip link set veth0 master lxdbr0 up
ip -n behind address add 10.66.0.2/24 dev eth0
ip -n behind link set eth0 up
ip -n behind route add default via 10.66.0.1
nft 'add table ip lxd; add chain ip lxd out { type nat hook postrouting priority 100; }'
nft 'add rule ip lxd out ip saddr 10.66.0.0/24 oifname eth0 masquerade'
"""
NOT_BEHIND = "ip netns delete behind; ip link delete lxdbr0; nft delete table ip lxd"
CALL = "import socket, sys; socket.create_connection((sys.argv[1], 22), 5)"


@pytest.fixture(scope="module")
def outsider(play: Play) -> Machine:
    return find_machine("outsider")


@pytest.fixture(scope="module")
def nodes(play: Play) -> Iterator[list[Machine]]:
    with unmanaged(play, {}) as machines:
        yield machines


@pytest.fixture
def lab(nodes: list[Machine]) -> Iterator[list[Machine]]:
    """Yield two nodes with inactive firewalls, services of a lab and of a desktop, and without a record."""
    for machine in nodes:
        bare(machine)
        machine.inside("rm", "-f", RECORD)
    with ExitStack() as running:
        for machine, neighbours in zip(nodes, NEIGHBOURS, strict=True):
            running.enter_context(stubs(machine, {**neighbours, **DESKTOP}))
        yield nodes


def test_run_stops_before_any_change_if_it_would_block_services(
    play: Play, lab: list[Machine], outsider: Machine
) -> None:
    before = [take(machine) for machine in lab]
    with conversation(outsider, lab[0], 7001) as say:
        assert say("a user") == "a user"
        shown = play("playbooks/inspect.yml")
        checked = play("site.yml", tags="inspect", check=True)
        stopped = [play("site.yml", tags=UP_TO_NETWORK), play("playbooks/network.yml"), play(PLAYBOOK)]
    assert (shown.rc, checked.rc) == (0, 0), shown.stdout
    lines = [
        "node1: Slurm (slurmctld in slurmctld.service, slurmd in slurmd.service), ports 6817/tcp, 6818/tcp",
        "node1: Prometheus exporter (node_exporter in node_exporter.service), port 9100/tcp",
        "node1: Prometheus (prometheus in prometheus.service), port 9090/tcp",
        f"(connected now: {outsider.address})",
        "node2: NFS (rpcbind in rpcbind.service, rpc.mountd in rpc.mountd.service), ports 111/tcp, 111/udp, 20048/tcp",
        "node2: Ollama (ollama in ollama.service), port 11434/tcp",
        "node2: Kubernetes (k3s-agent in k3s-agent.service), ports 8472/udp, 10250/tcp",
        "node2: Ray (raylet in raylet.service), port 8076/tcp",
    ]
    tables = [next(iter(one.results("Evaluate the inspection").values()))["msg"] for one in (shown, checked)]
    said = [*tables, *(" ".join(result.stdout.split()) for result in stopped)]
    for line in lines:
        assert [line.removeprefix("node1: ").removeprefix("node2: ") in one for one in said[:4]] == [True] * 4, line
        assert all(line in one for one in said[2:4]), line
    for result, one in zip(stopped, said[2:], strict=True):
        assert result.rc != 0
        assert "{port: 6817, comment: slurmctld}, {port: 6818, comment: slurmd}" in one
        assert "to firewall_cut: firewall_cut: [" in one
    assert "mDNS (avahi-daemon in avahi-daemon.service), port 5353/udp [default installation]" in said[0]
    assert [differences(old, take(machine)) for old, machine in zip(before, lab, strict=True)] == [[], []]


def test_allowed_and_waived_services_and_defaults_do_not_stop_a_run(
    play: Play, lab: list[Machine], outsider: Machine
) -> None:
    """The state before is recorded once. Leaving restores it."""
    first, second = lab
    before = [state(machine) for machine in lab]
    allow = [{"port": 6817}, {"port": 6818, "from": [f"{outsider.address}/32"]}, {"port": 9100}, {"port": 9090}]
    decided: dict[str, Any] = {
        "firewall_allow": allow,
        "firewall_cut": ["NFS", "ollama", "10250/tcp", "8472/udp", "Ray"],
    }
    result = play("site.yml", tags=UP_TO_NETWORK, extravars=decided)
    assert result.rc == 0, result.stdout
    assert scan(outsider, first.address, 631, 6817, 6818, 9090, 9100).open == [6817, 6818, 9090, 9100]
    assert scan(outsider, second.address, 8076, 10250, 11434, 20048).open == []
    assert play("site.yml", tags=UP_TO_NETWORK, extravars=decided).changed == []
    records = [machine.inside("stat", "-c", "%a %U %Y %i", RECORD).stdout for machine in lab]
    assert [record.split()[:2] for record in records] == [["600", "root"]] * 2
    recorded = json.loads(first.inside("cat", RECORD).stdout)["ufw"]
    assert ("ENABLED=no" in recorded["conf"], "muster" in recorded["files"]["user.rules"]) == (True, False)
    decided["firewall_allow"] = allow[:1]
    decided["firewall_cut"] += ["Slurm", "Prometheus", "Prometheus exporter"]
    assert {f"node1: {TASK}", f"node2: {TASK}"} <= {*play(PLAYBOOK, extravars=decided).changed}
    assert [machine.inside("stat", "-c", "%a %U %Y %i", RECORD).stdout for machine in lab] == records
    first.inside("ufw", "allow", "7777/tcp")
    left = play(PLAYBOOK, extravars={"part": "forget"})
    assert left.rc == 0, left.stdout
    first.inside("ufw", "delete", "allow", "7777/tcp")
    assert [machine.inside("ufw", "status").stdout for machine in lab] == ["Status: inactive\n"] * 2
    assert [machine.inside("ls", RECORD, check=False).returncode for machine in lab] == [2, 2]
    assert [settings(state(machine)) for machine in lab] == [settings(one) for one in before]
    assert play(PLAYBOOK, extravars={"part": "forget"}).changed == []


def test_ufw_stays_active_without_a_record(play: Play, nodes: list[Machine]) -> None:
    machine = nodes[0]
    assert play(PLAYBOOK, limit=machine.name).rc == 0
    machine.inside("rm", "-f", RECORD)
    left = play(PLAYBOOK, limit=machine.name, extravars={"part": "forget"})
    assert left.rc == 0, left.stdout
    assert "ufw stays active, because the state of the firewall before Muster is not recorded" in left.stdout
    assert "Status: active" in machine.inside("ufw", "status").stdout
    assert play(PLAYBOOK, limit=machine.name).rc == 0


def test_run_stops_before_it_drops_forwarded_packets(play: Play, nodes: list[Machine], outsider: Machine) -> None:
    machine = nodes[0]
    bare(machine)
    machine.inside("sh", "-c", BEHIND)
    call = ["ip", "netns", "exec", "behind", "python3", "-c", CALL, outsider.address]
    try:
        machine.inside(*call)
        stopped = play(PLAYBOOK, limit=machine.name)
        assert stopped.rc != 0
        assert "node1: forwarded packets of LXD (interface lxdbr0, 10.66.0.1)" in " ".join(stopped.stdout.split())
        assert "sudo ufw route allow in on lxdbr0" in stopped.stdout
        machine.inside(*call)
        assert play(PLAYBOOK, limit=machine.name, extravars={"firewall_cut": ["LXD"]}).rc == 0
        assert machine.inside(*call, check=False).returncode != 0
        machine.inside("ufw", "--force", "disable")
        machine.inside("ufw", "route", "allow", "in", "on", "lxdbr0")
        assert play(PLAYBOOK, limit=machine.name).rc == 0
        machine.inside(*call)
        assert play(PLAYBOOK, limit=machine.name).changed == []
    finally:
        machine.inside("sh", "-c", NOT_BEHIND)
        bare(machine)


def settings(state: str) -> list[str]:
    """Return ufw's settings and rules in a state."""
    return [line for line in state.splitlines() if line.startswith(("DEFAULT_", "ENABLED=", "### tuple"))]
