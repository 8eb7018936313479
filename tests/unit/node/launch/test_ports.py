"""Processes that hold ports on this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster_node.launch import facts, seats
from muster_node.tools import process

if TYPE_CHECKING:
    from collections.abc import Iterator

LAUNCH_ID = "20260101-120000-abcd"


@contextlib.contextmanager
def listener(family: socket.AddressFamily, address: str) -> Iterator[int]:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.bind((address, 0))
        sock.listen(1)
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")]
)
def test_listener_on_any_address_occupies_the_port(family: socket.AddressFamily, address: str) -> None:
    try:
        with listener(family, address) as port:
            found = facts.port_facts(port)
    except OSError:
        pytest.skip(f"nothing can listen on {address!r} here")
    assert found["free"] is False
    assert [holder["pid"] for holder in found["holders"]] == [os.getpid()]
    assert found["holders"][0]["user"] == pwd.getpwuid(os.getuid()).pw_name
    own = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    assert found["holders"][0]["command"].startswith(own)


def test_closed_listener_frees_the_port() -> None:
    with listener(socket.AF_INET, "127.0.0.1") as port:
        pass
    assert facts.port_facts(port) == {"port": port, "free": True, "holders": []}


def test_client_connection_occupies_its_port() -> None:
    with listener(socket.AF_INET, "127.0.0.1") as port, socket.create_connection(("127.0.0.1", port)) as client:
        found = facts.port_facts(client.getsockname()[1])
    assert found["free"] is False
    assert [holder["pid"] for holder in found["holders"]] == [os.getpid()]


def test_bound_port_without_listener_has_no_holders() -> None:
    with socket.socket() as sock:
        sock.bind(("", 0))
        found = facts.port_facts(sock.getsockname()[1])
    assert (found["free"], found["holders"]) == (False, [])


def test_user_and_launch_holding_a_port_are_found_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(process, "opened", lambda _pid: set())
    with listener(socket.AF_INET, "127.0.0.1") as port:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert facts.port_holders(port) == [seats.NOT_SEEN]
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        (found,) = facts.port_holders(port)
        assert (found["pid"], found["user"], found["launch_id"]) == (None, me, "")
        ours, own = process.LaunchUnit(LAUNCH_ID, os.getuid()), os.getpid()
        monkeypatch.setattr(process, "launch_at", lambda pid: ours if pid == own else None)
        (found,) = facts.port_holders(port)
    assert (found["pid"], found["user"], found["launch_id"]) == (os.getpid(), me, LAUNCH_ID)
