"""The MTU of the training interface, checked from a peer: set, kept, rejected by the path, and reverted if SSH is lost.

The bridge of the sandbox carries 1500 bytes. Smaller MTUs work, larger packets are lost.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpu_node import inside, put
from machines import find_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from machines import Machine, Play, Result

PLAYBOOK = "tests/integration/payloads/training_mtu.yml"
INTERFACES = "/etc/network/interfaces.d/training"
KEPT = "/etc/network/if-up.d/muster-mtu"
GUARD = "/var/lib/muster/guard/mtu/state.json"
USUAL = 1500
# Blocks new SSH connections while the MTU differs from the usual one, like a network with an MTU black hole.
TRAP = """\
#!/bin/sh
# Stub of ip for Muster's tests: the network loses ssh with a new MTU.
case "$*" in
*"mtu 1500") nft delete table inet trap ;;
*"mtu "*) nft 'add table inet trap; add chain inet trap in { type filter hook input priority -5; }'
          nft 'add rule inet trap in tcp dport 22 ct state new drop' ;;
esac
exec /usr/sbin/ip "$@"
"""


@pytest.fixture(scope="module")
def nodes(sandbox: None) -> Iterator[list[Machine]]:
    """Yield machines whose ifupdown configuration claims eth0. ifupdown does not run there."""
    found = [find_machine(name) for name in ("node1", "node2", "node3")]
    for node in found:
        put(node.container, INTERFACES, "auto eth0\niface eth0 inet manual\n")
    yield found
    for node in found:
        inside(node.container, f"rm -f {INTERFACES} {KEPT}; ip link set dev eth0 mtu {USUAL}")


@pytest.fixture(scope="module")
def set_mtu(nodes: list[Machine], play: Play) -> Callable[..., Result]:
    def run(mtu: int, *, check: bool = False, **extravars: object) -> Result:
        return play(PLAYBOOK, check=check, extravars={"mtu_training": mtu, **extravars})

    return run


@pytest.fixture(autouse=True)
def usual(nodes: list[Machine]) -> Iterator[None]:
    """Restore the initial MTU before each test."""
    for node in nodes:
        inside(node.container, f"rm -f {KEPT}; ip link set dev eth0 mtu {USUAL}")
    yield
    for node in nodes:
        assert not node.inside("ls", GUARD, check=False).stdout, "a guard is left"


def mtu_of(node: Machine) -> int:
    link = json.loads(node.inside("ip", "-json", "link", "show", "dev", "eth0").stdout)
    return int(link[0]["mtu"])


def test_mtu_is_set_and_second_run_changes_nothing(set_mtu: Callable[..., Result], nodes: list[Machine]) -> None:
    planned = set_mtu(1400, check=True)
    assert planned.rc == 0, planned.stdout
    assert "+1400 now, 1400 after the next boot" in planned.stdout
    assert [mtu_of(node) for node in nodes] == [USUAL] * 3
    result = set_mtu(1400)
    assert result.rc == 0, result.stdout
    assert [mtu_of(node) for node in nodes] == [1400] * 3
    for node in nodes:
        # As ifupdown runs the script, which ignores other interfaces.
        assert node.inside("env", "IFACE=eth7", KEPT).stdout == ""
        assert "mtu 1400" in node.inside("cat", KEPT).stdout
    # From a peer: a packet of the MTU arrives, and one byte more cannot be sent.
    tried = result.results("Test the paths to the other nodes")["node1"]["paths"]
    assert {name: (seen["small"], seen["full"]) for name, seen in tried.items()} == {
        "node2": (True, True),
        "node3": (True, True),
    }
    again = set_mtu(1400)
    assert again.rc == 0, again.stdout
    assert again.changed == []
    verified = set_mtu(1400, mtu_mode="verify")
    assert verified.rc == 0, verified.stdout


def test_mtu_above_the_path_mtu_is_reported_and_reverted(set_mtu: Callable[..., Result], nodes: list[Machine]) -> None:
    result = set_mtu(9000)
    assert result.rc != 0
    assert "the change of the mtu was undone, because packets of 9000 bytes do not reach node" in result.stdout
    assert "but small packets do. Raise the MTU of the switch ports" in result.stdout
    assert [mtu_of(node) for node in nodes] == [USUAL] * 3
    for node in nodes:
        assert not node.inside("ls", KEPT, check=False).stdout


def test_change_is_reverted_if_one_node_has_a_smaller_mtu(set_mtu: Callable[..., Result], nodes: list[Machine]) -> None:
    # No known tool manages the third node's interface, so the node keeps its MTU.
    inside(nodes[2].container, f"mv {INTERFACES} /var/tmp/training; ip link set dev eth0 mtu 1300")
    try:
        result = set_mtu(1400)
        assert result.rc != 0
        assert "node3: none of netplan, systemd-networkd, NetworkManager and ifupdown manages eth0" in result.stdout
        assert [mtu_of(node) for node in nodes] == [USUAL, USUAL, 1300]
    finally:
        inside(nodes[2].container, f"mv /var/tmp/training {INTERFACES}")


@pytest.mark.slow
def test_node_that_loses_ssh_reverts_its_change(set_mtu: Callable[..., Result], nodes: list[Machine]) -> None:
    node = nodes[1]
    put(node.container, "/usr/local/bin/ip", TRAP, "0755")
    try:
        result = set_mtu(1400, mtu_confirm_seconds=30)
        assert result.rc != 0
        assert (
            "node2: the change of the mtu was undone, because a new connection failed after the change ("
            in result.stdout
        )
        assert mtu_of(node) == USUAL
        assert not node.inside("ls", KEPT, check=False).stdout
    finally:
        inside(node.container, "rm -f /usr/local/bin/ip; nft delete table inet trap 2>/dev/null || true")
