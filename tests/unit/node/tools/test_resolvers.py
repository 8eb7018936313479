"""Queries to name servers that answer, refuse the connection or stay silent. Local sockets simulate them."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from muster_node.tools import resolvers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "resolv.conf"
    path.symlink_to("stub-resolv.conf")
    path.write_text("# by hand\nsearch lab\nnameserver 127.0.0.1\noptions edns0\n")
    return path


def test_any_response_proves_that_a_name_server_works(conf: Path) -> None:
    heard: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            asked, place = server.recvfrom(4096)
            heard.append(asked)
            server.sendto(b"??" + asked[2:], place)  # a reply with another query ID is ignored
            server.sendto(asked[:2] + b"\x81\x83" + asked[4:], place)

        thread = threading.Thread(target=answer)
        thread.start()
        found = resolvers.ask_all("10.0.0.1", str(conf), server.getsockname()[1])
        thread.join()
    assert isinstance(found["127.0.0.1"], float)
    assert b"\x010\x010\x010\x0210\x07in-addr\x04arpa\0\0\x0c\0\x01" in heard[0]


def test_silent_name_server_is_reported(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolvers, "SECONDS", 0.2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        assert resolvers.ask_all("10.0.0.1", str(conf), server.getsockname()[1]) == {"127.0.0.1": None}


def test_only_an_immediate_error_counts_as_refused(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    assert resolvers.ask_all("10.0.0.1", str(conf), port) == {"127.0.0.1": "refused"}
    monkeypatch.setattr(resolvers, "AT_ONCE", 0.0)  # any error is late
    assert resolvers.ask_all("10.0.0.1", str(conf), port) == {"127.0.0.1": None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("nameserver\n", []),
        ("nameserver 10.0.0.1 # ours\n  nameserver\t::1\n#nameserver 10.0.0.9\n", ["10.0.0.1", "::1"]),
        ("".join(f"nameserver 10.0.0.{number}\n" for number in range(5)), ["10.0.0.0", "10.0.0.1", "10.0.0.2"]),
    ],
)
def test_name_servers_are_read_like_the_c_library(text: str, found: list[str]) -> None:
    assert resolvers.servers(text) == found


def test_no_queries_are_sent_without_a_resolv_conf(tmp_path: Path) -> None:
    assert resolvers.ask_all("10.0.0.1", str(tmp_path / "nowhere")) == {}
