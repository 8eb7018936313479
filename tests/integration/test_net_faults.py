"""The probe reports each real network fault with its node, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import net_faults
from drill import listening
from killable import Run
from machines import NODES, find_machine
from net_faults import EPHEMERAL, PORT
from outside import listeners, scan
from waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from machines import Machine, Play

pytestmark = pytest.mark.moment

PLAYBOOK = "tests/integration/payloads/net_probe.yml"
TASK = "Test all links between nodes"
AT_ONCE = 9  # an abandoned probe ends after 10 s
HEALTHY = 10  # runs in a row


class Network:
    """The three nodes and probes of their links."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.machines = [find_machine(name) for name in NODES]
        self.node1, self.node2, self.node3 = self.machines

    def probe(self, **requested: Any) -> dict[str, Any]:
        result = self.play(PLAYBOOK, **requested)
        assert result.rc == 0, result.stdout
        assert not result.changed
        return result.results(TASK)["localhost"]

    def found(self, **variables: Any) -> set[str]:
        """Return the findings that did not pass as "status id node" and the peer, if there is one."""
        return named(self.probe(extravars=variables))


def named(probed: dict[str, Any]) -> set[str]:
    return {
        " ".join(filter(None, (one["status"], one["id"], one["node"], one.get("peer"))))
        for one in probed["findings"]
        if one["status"] != "pass"
    }


def for_node(name: str, value: str, others: str = "") -> str:
    """Return a template for all nodes that has this value on one node."""
    return f"{{{{ {value!r} if inventory_hostname == {name!r} else {others!r} }}}}"


@pytest.fixture(scope="module")
def network(networked: list[Machine], play: Play) -> Iterator[Network]:
    network = Network(play)
    yield network
    net_faults.nothing_left(network.machines)


@pytest.fixture(autouse=True)
def nothing_stays(network: Network) -> Iterator[None]:
    yield
    until(
        lambda: not any(PORT in listening(machine.container) for machine in network.machines),
        AT_ONCE,
        "the port is free",
    )


def test_healthy_network_has_no_findings_in_ten_runs(network: Network) -> None:
    # The number of forks does not matter, because the probe contacts all nodes by itself.
    requested: list[dict[str, Any]] = [{"cmdline": "--forks 1"}, {"check": True}, *[{}] * (HEALTHY - 2)]
    for one in requested:
        probed = network.probe(**one)
        assert named(probed) == set()
        assert probed["verdict"]["status"] == "healthy"
        assert [one["node"] for one in probed["findings"]] == list(NODES)
        links = probed["network"]["links"]
        assert [(link["from"], link["to"]) for link in links] == [(a, b) for a in NODES for b in NODES if a != b]
        for link in links:
            assert len(link["ports"]) == 4
            missing = [name for name, value in link.items() if value is None]
            assert missing == (["gbps"] if one.get("check") else []), "check mode loads no link"
            assert (link["outcome"], link["interface"], link["path_mtu"]) == ("ok", "eth0", 1500)
            assert abs(link["offset_ms"]) < 100


@pytest.mark.pipeline
def test_dropped_master_port_on_the_head_node_is_a_failure(network: Network) -> None:
    with net_faults.shut(network.node1, network.node2, PORT, str(PORT), "drop", refused=False):
        assert network.found(net_throughput=False) == {"fail net.master_port.dropped node1"}


@pytest.mark.parametrize(
    ("place", "hook", "match", "side"),
    [
        ("node1", "input", "ip saddr {node2} tcp dport", "packet filter of node1"),
        ("node2", "output", "ip daddr {node1} tcp dport", "packet filter of node2"),
        ("node2", "input", "ip saddr {node1} tcp sport", "packet filter of node2"),
        ("node1", "output", "ip daddr {node2} tcp sport", "outgoing rules of node1, or the network in between"),
    ],
    ids=["arrival", "departure", "replies", "replies leave"],
)
def test_side_that_drops_packets_is_named(network: Network, place: str, hook: str, match: str, side: str) -> None:
    addresses = {machine.name: machine.address for machine in network.machines}
    rule = f"{match.format(**addresses)} {PORT} counter drop"
    with net_faults.rules(find_machine(place), rule, hook=hook):
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"fail net.master_port.dropped node1 node2"}
    [finding] = [one for one in probed["findings"] if one["status"] == "fail"]
    # For a second, the kernel still knows the connections whose replies its own filter drops.
    assert finding["observed"] in ((side, "replies of node1") if hook == "output" else (side,)), finding


def test_rejected_master_port_on_another_node_is_a_warning(network: Network) -> None:
    with net_faults.shut(network.node2, network.node1, PORT, str(PORT), "reject with tcp reset", refused=True):
        assert network.found(net_throughput=False) == {"warn net.master_port.refused node2"}


def test_prohibited_port_is_not_reported_as_a_missing_route(network: Network) -> None:
    verdict = "reject with icmpx type admin-prohibited"
    with net_faults.shut(network.node1, network.node3, PORT, str(PORT), verdict, refused=False):
        assert network.found(net_throughput=False) == {"fail net.master_port.prohibited node1"}


@pytest.mark.pipeline
def test_closed_ephemeral_ports_are_reported(network: Network) -> None:
    match = "32768-60999 ct state new"
    with net_faults.shut(network.node3, network.node1, EPHEMERAL, match, "drop", refused=False):
        assert network.found(net_throughput=False) == {"fail net.ephemeral_ports.dropped node3"}


@pytest.mark.pipeline
def test_one_way_link_is_reported(network: Network) -> None:
    with net_faults.one_way(network.node2, network.node1):
        assert network.found(net_throughput=False) == {"fail net.peer.dropped node2 node1"}


@pytest.mark.pipeline
def test_mtu_black_hole_is_reported(network: Network) -> None:
    with net_faults.black_hole(network.node2, [network.node1, network.node3], 1237):
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"fail net.path_mtu.black_hole node2"}
    sizes = {(link["from"], link["to"]): link["path_mtu"] for link in probed["network"]["links"]}
    assert sizes["node1", "node2"] == sizes["node3", "node2"] == 1237
    assert sizes["node2", "node1"] == sizes["node1", "node3"] == 1500


@pytest.mark.pipeline
def test_packet_loss_is_reported(network: Network) -> None:
    with net_faults.loss(network.node2, [network.node1, network.node3], 12):
        assert network.found(net_throughput=False) == {"warn net.loss node2"}


@pytest.mark.pipeline
def test_slow_link_is_reported(network: Network) -> None:
    with net_faults.slow(network.node3, "100mbit"):
        probed = network.probe()
    assert named(probed) == {"warn net.throughput.slow node3"}
    rates = {(link["from"], link["to"]): link["gbps"] for link in probed["network"]["links"]}
    assert rates["node3", "node1"] < 0.2
    assert rates["node1", "node3"] > 3 * rates["node3", "node1"]


@pytest.mark.pipeline
def test_wrong_hosts_line_is_reported(network: Network) -> None:
    with net_faults.hosts_line(network.node1, "node3", "192.0.2.3"):
        assert network.found(net_throughput=False) == {"warn net.name.wrong node1 node3"}


def test_name_with_a_second_address_is_reported(network: Network) -> None:
    with net_faults.hosts_line(network.node1, "node3", "192.0.2.3", beside=True):
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"warn net.name.wrong node1 node3"}
    [finding] = [one for one in probed["findings"] if one["status"] == "warn"]
    assert f"resolves to {network.node3.address} and to 192.0.2.3" in finding["summary"]


@pytest.mark.pipeline
def test_dead_name_server_is_reported(network: Network) -> None:
    with net_faults.dead_name_server(network.node2, "192.0.2.53"):
        assert network.found(net_throughput=False) == {"warn net.name.server node2"}


def test_absent_name_server_is_reported(network: Network) -> None:
    prefix = network.node1.address.rpartition(".")[0]
    with net_faults.absent_name_server(network.node2, f"{prefix}.177"):
        assert network.found(net_throughput=False) == {"warn net.name.server node2"}


def test_route_over_lo_is_not_reported_as_a_firewall_fault(network: Network) -> None:
    with net_faults.route_over_lo(network.node1, network.node3):
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"fail net.peer.other_interface node1 node3"}
    [finding] = [one for one in probed["findings"] if one["status"] == "fail"]
    assert "uses lo" in finding["summary"]


def test_wrong_neighbour_entry_is_not_reported_as_a_firewall_fault(network: Network) -> None:
    with net_faults.wrong_neighbour(network.node2, network.node3):
        assert network.found(net_throughput=False) == {"fail net.peer.neighbour node2 node3"}


@pytest.mark.pipeline
def test_wrong_route_is_not_reported_as_a_firewall_fault(network: Network) -> None:
    with net_faults.wrong_route(network.node1, network.node3):
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"fail net.peer.other_interface node1 node3"}
    [finding] = [one for one in probed["findings"] if one["status"] == "fail"]
    assert "uses astray0" in finding["summary"]


def test_hostname_with_a_loopback_address_is_reported(network: Network) -> None:
    with net_faults.hosts_line(network.node2, "node2", "127.0.1.1"):
        assert network.found(net_throughput=False) == {"warn net.name.loopback node2"}


@pytest.mark.parametrize(("interface", "finding"), [("eth7", "net.interface.missing"), ("lo", "net.interface.other")])
def test_missing_or_wrong_interface_is_reported(network: Network, interface: str, finding: str) -> None:
    seen = network.node2.inside("ls", "/sys/class/net").stdout.split()
    assert (interface in seen) == (interface == "lo")
    found = network.found(net_throughput=False, cluster_interface=for_node("node2", interface))
    assert found == {f"fail {finding} node2"}


def test_duplicate_address_is_reported(network: Network) -> None:
    prefix = network.node1.address.rpartition(".")[0]
    further = {f"{prefix}.{number}": [machine] for number, machine in enumerate(network.machines, 111)}
    training = f"{prefix}.11{{{{ inventory_hostname[-1] }}}}"
    with net_faults.addresses(further):
        assert network.found(net_throughput=False, cluster_address=training) == set()
        with net_faults.addresses({f"{prefix}.112": [network.node3]}):
            found = network.found(net_throughput=False, cluster_address=training)
    assert "fail net.address.duplicate node3 node2" in found
    # Which of the two receives a connection is random, except for the node with the address twice removed.
    assert {one.split()[1] for one in found} <= {"net.address.duplicate", "net.address.wrong_host"}


@pytest.mark.pipeline
def test_missing_address_is_reported(network: Network) -> None:
    nobody = f"{network.node1.address.rpartition('.')[0]}.177"
    variables = {"cluster_address": f"{{{{ {nobody!r} if inventory_hostname == 'node2' else ansible_host }}}}"}
    found = network.found(net_throughput=False, **variables)
    assert {"fail net.address.missing node2", "fail net.peer.unreachable node2"} <= found
    assert {one.split()[2] for one in found if one.startswith("fail")} == {"node2"}


@pytest.mark.pipeline
def test_clock_offset_is_reported(network: Network) -> None:
    with net_faults.wrong_clock(network.node2, 7.5) as python:
        interpreter = for_node("node2", python, "/usr/bin/python3")
        probed = network.probe(extravars={"net_throughput": False, "ansible_python_interpreter": interpreter})
    assert named(probed) == {"warn net.clock.offset node2"}
    [finding] = [one for one in probed["findings"] if one["status"] == "warn"]
    assert "7.5 s ahead" in finding["summary"]


@pytest.mark.pipeline
def test_foreign_process_on_the_master_port_is_reported(network: Network) -> None:
    with listeners(network.node1, [PORT]):
        assert scan(network.node2, network.node1.address, PORT).open == [PORT]
        probed = network.probe(extravars={"net_throughput": False})
    assert named(probed) == {"fail net.master_port.foreign node1"}
    ports = {(link["from"], link["to"]): link["ports"][str(PORT)] for link in probed["network"]["links"]}
    assert ports["node2", "node1"] == "foreign"
    assert ports["node1", "node2"] == "ok"


def test_killed_probe_leaves_nothing_and_the_next_probe_waits(network: Network, tmp_path: Path) -> None:
    # Two nodes, because this run knows only two.
    probed = network.machines[:2]
    with net_faults.held_answers(probed) as python:
        interpreter = f"{{{{ {python!r} if inventory_hostname != 'localhost' else ansible_playbook_python }}}}"
        killed = Run(tmp_path, PLAYBOOK, "-e", json.dumps({"ansible_python_interpreter": interpreter}))
        try:
            until(lambda: all(map(net_faults.has_called, probed)), PATIENCE, "the nodes have probed each other")
        finally:
            killed.kill()
        assert PORT in listening(network.node1.container)
    assert network.found(net_throughput=False) == set()
