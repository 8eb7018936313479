"""The interface and the gateway of a route, from this machine's kernel and from handwritten netlink messages."""

from __future__ import annotations

import socket
import struct

import pytest

from muster_node.tools import routes


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9"])
def test_route_to_a_local_address_uses_lo(address: str) -> None:
    assert routes.route(address) == {"way": "lo", "gateway": ""}


@pytest.mark.parametrize("address", ["", "node2", "10.0.0.256"])
def test_no_route_is_found_for_an_invalid_address(address: str) -> None:
    assert routes.route(address) == {"way": "", "gateway": ""}


def reply(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    body = bytes(routes.ROUTE.size)
    body += b"".join(routes.ATTRIBUTE.pack(4 + len(data), name) + data for name, data in attributes)
    return routes.HEADER.pack(routes.HEADER.size + len(body), kind, 0, 1, 0) + body


def test_interface_and_gateway_are_found_after_other_attributes() -> None:
    number = struct.pack("=I", socket.if_nametoindex("lo"))
    gateway = (routes.RTA_GATEWAY, socket.inet_aton("192.0.2.1"))
    answer = reply(routes.RTM_NEWROUTE, (routes.RTA_DST, bytes(4)), (routes.RTA_OIF, number), gateway)
    assert routes.route_in(answer) == {"way": "lo", "gateway": "192.0.2.1"}


@pytest.mark.parametrize(
    "answer",
    [reply(2), reply(routes.RTM_NEWROUTE), reply(routes.RTM_NEWROUTE, (routes.RTA_DST, bytes(4)))],
    ids=["error", "no attributes", "no interface"],
)
def test_answer_without_an_interface_yields_none(answer: bytes) -> None:
    assert routes.route_in(answer) == {"way": "", "gateway": ""}
