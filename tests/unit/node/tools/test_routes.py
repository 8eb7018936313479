"""By which interface the kernel sends: asked of this machine's own, and told what others said."""

from __future__ import annotations

import socket
import struct

import pytest

from muster_node.tools import routes


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9"])
def test_what_is_for_this_machine_leaves_by_lo(address: str) -> None:
    assert routes.way(address) == "lo"


@pytest.mark.parametrize("address", ["", "node2", "10.0.0.256"])
def test_what_is_no_address_has_no_way(address: str) -> None:
    assert routes.way(address) == ""


def said(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    body = bytes(routes.ROUTE.size)
    body += b"".join(routes.ATTRIBUTE.pack(4 + len(data), name) + data for name, data in attributes)
    return routes.HEADER.pack(routes.HEADER.size + len(body), kind, 0, 1, 0) + body


def test_the_interface_is_found_behind_other_attributes() -> None:
    number = struct.pack("=I", socket.if_nametoindex("lo"))
    answer = said(routes.RTM_NEWROUTE, (routes.RTA_DST, bytes(4)), (routes.RTA_OIF, number))
    assert routes.interface_in(answer) == "lo"


@pytest.mark.parametrize(
    "answer",
    [said(2), said(routes.RTM_NEWROUTE), said(routes.RTM_NEWROUTE, (routes.RTA_DST, bytes(4)))],
    ids=["an error", "nothing", "no interface"],
)
def test_an_answer_without_an_interface(answer: bytes) -> None:
    assert routes.interface_in(answer) == ""
