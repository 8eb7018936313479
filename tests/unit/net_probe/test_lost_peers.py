"""Findings about a node that the controller lost contact with, based on connection tests by the other nodes."""

from __future__ import annotations

from typing import Any

import pytest

from muster.net_probe import lost_peers

TAKEN = {"error": "", "seconds": 0.001, "greeting": None, "spoke": True}
MUTE = {**TAKEN, "spoke": False}
REFUSED = {"error": "ECONNREFUSED", "seconds": 0.001, "greeting": None, "spoke": True}
DROPPED = {"error": "ETIMEDOUT", "seconds": 2.0, "greeting": None, "spoke": True}


def link(ssh: dict[str, Any], master: dict[str, Any]) -> dict[str, Any]:
    return {"ports": {"22": ssh, "29500": master}, "route_error": "", "neighbour": "", "way": "", "error": ""}


@pytest.mark.parametrize(
    ("called", "check"),
    [
        ({"node1": link(MUTE, REFUSED), "node3": link(MUTE, MUTE)}, "net.peer.hangs"),
        ({"node1": link(TAKEN, REFUSED), "node3": link(MUTE, REFUSED)}, ""),  # sshd responded to one node
        ({"node1": link(TAKEN, REFUSED)}, ""),
        ({"node1": link(DROPPED, REFUSED)}, ""),  # only SSH is closed
        ({"node1": link(DROPPED, DROPPED)}, "net.peer.dropped"),
        ({}, ""),
    ],
)
def test_lost_node_is_diagnosed_from_its_peers(called: dict[str, Any], check: str) -> None:
    assert [one.id for one in lost_peers.judge("node2", called)] == ([check] if check else [])
