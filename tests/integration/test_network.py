"""The network step as seen from outside: nodes resolve, trust and reach each other. Other machines are blocked.

With --nodes=node1,node2 the nodes are tested in their current state: molecule uses this file to check nodes that it has
converged.
"""

from __future__ import annotations

import json
import subprocess
from itertools import permutations, product
from typing import TYPE_CHECKING

import pytest

from machines import find_machine
from outside import EVERY_PORT, link_local, listeners, scan
from paths import BIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machines import Machine

pytestmark = pytest.mark.pipeline

SSH = 22
MASTER_PORT = 29500
# Listening ports of torch's store, Gloo and NCCL: the master port and ephemeral ports.
TRAINING = [MASTER_PORT, MASTER_PORT + 1, 32768, 40001, 50021, 60999]
# Common ports of other programs on a node.
OTHERS = [80, 6006, 8080, 8265, 8888]
USER = "muster"


@pytest.fixture(scope="module")
def outsider(networked: list[Machine]) -> Machine:
    return find_machine("outsider")


@pytest.fixture(scope="module")
def listening(networked: list[Machine]) -> Iterator[list[Machine]]:
    """Yield two nodes with listeners on training ports and on other ports."""
    first, second, *_ = networked
    with listeners(first, TRAINING + OTHERS), listeners(second, TRAINING + OTHERS):
        yield [first, second]


def as_user(machine: Machine, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the training user in a login shell."""
    return machine.ssh(f"sudo -Hu {USER} sh -c {json.dumps(f'cd; {command}')}", check=False)


def test_every_name_resolves_to_its_address_on_every_node(networked: list[Machine]) -> None:
    for machine, named in product(networked, repeat=2):
        found = machine.ssh(f"getent ahosts {named.name} | cut -d' ' -f1", check=False).stdout.split()
        assert set(found) == {named.address}, f"{named.name} on {machine.name}"


def test_outsider_reaches_only_ssh(listening: list[Machine], outsider: Machine) -> None:
    for machine in listening:
        assert scan(outsider, machine.address, SSH, *TRAINING, *OTHERS).open == [SSH], machine.name
        found = scan(outsider, machine.address, EVERY_PORT)
        assert found.open == [SSH], machine.name
        assert found.refused == 0, machine.name


def test_outsider_reaches_only_ssh_over_ipv6(listening: list[Machine], outsider: Machine) -> None:
    for machine in listening:
        address = link_local(machine)
        if not address:
            pytest.skip(f"{machine.name} has no IPv6 address")
        assert scan(outsider, address, SSH, *TRAINING, *OTHERS).open in ([], [SSH]), machine.name


def test_peers_reach_the_training_ports(listening: list[Machine], networked: list[Machine]) -> None:
    for machine in listening:
        for peer in networked:
            if peer is not machine:
                assert scan(peer, machine.address, *TRAINING).open == TRAINING, f"{peer.name} -> {machine.name}"


def test_training_user_logs_in_between_all_nodes(networked: list[Machine]) -> None:
    for machine, peer in permutations(networked, 2):
        done = as_user(machine, f"ssh -oBatchMode=yes -oConnectTimeout=5 {peer.name} hostname")
        assert done.stdout.strip() == peer.name, f"{machine.name} -> {peer.name}: {done.stderr}"


def test_time_daemon_is_enabled(networked: list[Machine]) -> None:
    for machine in networked:
        units = "chrony.service ntpsec.service systemd-timesyncd.service"
        assert "enabled" in machine.ssh(f"systemctl is-enabled {units}", check=False).stdout.split(), machine.name


def test_logind_keeps_ipc_objects_after_logout(networked: list[Machine]) -> None:
    for machine in networked:
        login = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC"
        assert machine.ssh(f"busctl get-property {login}").stdout.strip() == "b false", machine.name


def test_limits_of_units_and_sockets_are_active(networked: list[Machine]) -> None:
    for machine in networked:
        assert machine.ssh("systemctl show --value --property=DefaultLimitNOFILE").stdout == "1048576\n", machine.name
        # The kernel limits the backlog of NCCL's listen call to this value.
        assert int(machine.ssh("/usr/sbin/sysctl -n net.core.somaxconn").stdout) >= 16384, machine.name


def test_ssh_audit_finds_no_failure(networked: list[Machine]) -> None:
    for machine in networked:
        argv = [str(BIN / "ssh-audit"), "--level=fail", machine.address]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        # 0: OK. 1: no connection. 2: warnings. 3: failures.
        assert done.returncode in (0, 2), done.stdout
