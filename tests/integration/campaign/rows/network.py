"""Rows with faults of ports, packets and interfaces, during the rendezvous or once the ranks are in step."""

from __future__ import annotations

from damage import black_hole_at, cut_off, ephemeral_dropped, packets_are_dropped, reconnect, slow_at
from row import Row
from rows.head import BLIND_START

ROWS = (
    Row(
        "network-ephemeral",
        "a node drops packets to the ports of Gloo",
        right=("network.ports_filtered @ node2 - node3",),  # packets back to node3's connections are dropped, too
        twin="connectFullMesh",
        arguments=("--timeout=20",),
        variables=BLIND_START,
        before=ephemeral_dropped("node3", ("node2",)),
    ),
    Row(
        "network-interface-lo",
        "GLOO_SOCKET_IFNAME is lo on every node",
        right=("address.interface_other @ no node",),
        twin="connectFullMesh",
        arguments=("--timeout=20",),
        variables={**BLIND_START, "launch_env": {"GLOO_SOCKET_IFNAME": "lo"}},
    ),
    Row(
        "network-interface-unknown",
        "GLOO_SOCKET_IFNAME names a missing interface",
        right=("address.interface_missing @ no node",),
        arguments=("--timeout=20",),
        variables={**BLIND_START, "launch_env": {"GLOO_SOCKET_IFNAME": "eno1"}},
        in_ci=True,
    ),
    Row(
        "network-black-hole",
        "large packets to one node are lost",
        right=("network.large_packets @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--size=100000", "--timeout=20"),
        variables={"launch_probe": False},
        before=black_hole_at("node2", ("node1", "node3"), 1000),
    ),
    Row(
        "network-slow",
        "one node's link is limited to 200 kbit/s, and a collective times out",
        right=("network.slow @ node2",),
        twin="Timed out waiting for recv",
        arguments=("--size=3000000", "--timeout=10"),
        before=slow_at("node2", "200kbit"),
    ),
    Row(
        "network-cut",
        "two nodes lose their connection during the launch",
        right=("network.ports_filtered @ node2 - node3",),
        twin="Timed out waiting for recv",
        arguments=("--timeout=15",),
        strike=cut_off("node3", "ip saddr {node2}"),
        proof=packets_are_dropped("node3"),
        undo=reconnect("node3"),
    ),
)
