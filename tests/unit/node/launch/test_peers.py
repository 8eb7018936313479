"""Heartbeats between nodes of a detached launch: real connections on one machine, with a simulated clock."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from muster_node.launch import peers
from muster_node.launch.peers import Alone, Channel, Head, PeerNode, join
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = secrets.token_hex(16)
ANOTHER = secrets.token_hex(16)
NAMES = ["node1", "node2", "node3"]
FOREVER = float("inf")


class Clock:
    """Real clock that tests can move forward."""

    def __init__(self) -> None:
        self.moved = 0.0
        self.monotonic_ns = time.monotonic_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9 + self.moved

    def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(peers, "time", found)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


def part(rank: int, port: int, **other: Any) -> Any:
    spec = {"token": TOKEN, "address": "127.0.0.1", "port": port, "own": "127.0.0.1", "nodes": NAMES, "rank": rank}
    return join({**spec, **other})


def never() -> bool:
    return False


class Launch:
    """A launch on three nodes."""

    def __init__(self, port: int) -> None:
        self.head: Head = part(0, port)
        self.nodes: list[PeerNode] = [part(1, port), part(2, port)]
        until(lambda: self.step() and all(one.met() for one in self.nodes), 10.0, "all nodes have received heartbeats")

    def step(self, *without: Any) -> bool:
        for one in (self.head, *self.nodes):
            if one not in without:
                one.step()
        return True

    def close(self) -> None:
        for one in (*self.head.channels, *(node.channel for node in self.nodes)):
            if one:
                one.close()
        if self.head.listener:
            self.head.listener.close()


@contextmanager
def running(port: int) -> Iterator[Launch]:
    launch = Launch(port)
    try:
        yield launch
    finally:
        launch.close()


def test_single_node_or_supervised_launch_needs_no_heartbeats() -> None:
    for one in (join(None), part(0, 1, nodes=["node1"])):
        assert type(one) is Alone
        one.see_out(never, FOREVER, "torchrun exited with code 1")
        assert (one.step(), one.meet(never)) == ("", "")


def test_launch_continues_while_all_heartbeats_arrive(port: int, clock: Clock) -> None:
    with running(port) as launch:
        for _ in range(40):
            clock.moved += 1.0
            until(lambda: launch.step() and launch.step() is True, 1.0, "a step")
            clock.sleep(0.01)
        assert [one.step() for one in (launch.head, *launch.nodes)] == ["", "", ""]


def test_failed_node_ends_the_launch_on_all_nodes(port: int) -> None:
    with running(port) as launch:
        failed, other = launch.nodes
        last = threading.Thread(target=failed.see_out, args=(never, FOREVER, "torchrun exited with code 1"))
        last.start()
        until(lambda: launch.head.step() and other.step() and not last.is_alive(), 5.0, "all nodes are informed")
        assert launch.head.step() == other.step() == "node2: torchrun exited with code 1"


def test_stopping_node_informs_all_nodes(port: int) -> None:
    with running(port) as launch:
        stopped, other = launch.nodes
        stopped.tell("the unit was stopped")
        until(lambda: launch.step() and launch.head.over and other.over, 5.0, "all other nodes are informed")
        assert launch.head.over == other.over == "node2: the unit was stopped"


def test_failed_head_node_ends_the_launch_on_all_nodes(port: int) -> None:
    with running(port) as launch:
        last = threading.Thread(target=launch.head.see_out, args=(never, FOREVER, "the unit was stopped"))
        last.start()
        until(lambda: all(one.step() for one in launch.nodes), 5.0, "both other nodes are informed")
        for one in launch.nodes:
            one.see_out(never, FOREVER, one.over)
        last.join(10)
        assert not last.is_alive()
        assert {one.over for one in launch.nodes} == {"node1: the unit was stopped"}


def test_silent_node_ends_the_launch_after_the_timeout(port: int, clock: Clock) -> None:
    with running(port) as launch:
        gone, other = launch.nodes
        begun = clock.moved
        while not launch.head.over:
            clock.moved += 1.0
            for _ in range(3):
                launch.step(gone)
                clock.sleep(0.005)
            assert clock.moved - begun < peers.SILENCE + 5
        assert clock.moved - begun >= peers.SILENCE - 2
        until(lambda: bool(other.step()), 5.0, "the other node is informed")
        assert other.over == launch.head.over == f"no heartbeat from node2 for 20 s on port {port}"


def test_lost_head_node_ends_the_launch_on_all_nodes(port: int, clock: Clock) -> None:
    with running(port) as launch:
        begun = clock.moved
        for channel in launch.head.channels:
            channel.close()
        assert launch.head.listener
        launch.head.listener.close()
        while not all(one.over for one in launch.nodes):
            clock.moved += 1.0
            for _ in range(3):
                launch.step(launch.head)
                clock.sleep(0.005)
            assert clock.moved - begun < peers.SILENCE + 5
        assert clock.moved - begun >= peers.SILENCE - 2
        for one in launch.nodes:
            assert one.over.startswith(f"no heartbeat from the head node node1 for 20 s on port {port}")
            assert "refused" in one.over


def test_short_network_failure_is_tolerated(port: int, clock: Clock) -> None:
    with running(port) as launch:
        broken = launch.nodes[0]
        clock.moved += peers.SILENCE - 8
        assert broken.channel
        broken.channel.close()
        launch.step(broken)
        clock.moved += 5
        until(lambda: launch.step() and clock.monotonic() - broken.heard < 2, 5.0, "head node is heard")
        until(lambda: launch.step() and clock.monotonic() - launch.head.others[1].heard < 2, 5.0, "node is heard")
        clock.moved += peers.SILENCE - 8
        launch.step()
        assert [one.over for one in (launch.head, *launch.nodes)] == ["", "", ""]


def test_head_node_waits_for_other_nodes_after_one_succeeded(port: int, clock: Clock) -> None:
    with running(port) as launch:
        done, other = launch.nodes

        def heard() -> bool:
            assert other.step() == ""
            return min(other.heard, launch.head.others[2].heard) > clock.monotonic() - 1

        stays = threading.Thread(target=launch.head.see_out, args=(never, FOREVER))
        stays.start()
        done.see_out(never, FOREVER)
        assert done.got == "done"
        assert stays.is_alive()
        clock.moved += peers.SILENCE - 5
        until(heard, 5.0, "heartbeat and answer")
        clock.moved += peers.SILENCE - 5
        until(heard, 5.0, "heartbeat and answer")
        assert stays.is_alive()
        other.see_out(never, FOREVER)
        stays.join(10)
        assert not stays.is_alive()
        assert launch.head.over == ""


def test_launch_does_not_start_without_heartbeats(port: int, clock: Clock) -> None:
    node = part(1, port)
    clock.moved += peers.FIRST - 1
    begun = threading.Thread(target=lambda: None)
    begun.start()
    assert node.step() == ""
    clock.moved += 2
    why = node.meet(never)
    assert why.startswith(f"no heartbeat from the head node node1 for 60 s on port {port}")
    assert node.meet(lambda: True) == ""


def test_occupied_port_is_reported(port: int, clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", port)):
        head = part(0, port)
        head.step()
        clock.moved += peers.FIRST + 1
        assert "cannot listen: Address already in use" in head.step()


def test_caller_without_the_secret_is_ignored(port: int, clock: Clock) -> None:
    with running(port) as launch:
        stranger = part(1, port, token=ANOTHER)
        for _ in range(5):
            stranger.tell("forged")
            until(lambda: stranger.step() == "" and launch.step() and not stranger.channel, 5.0, "rejected")
            clock.moved += peers.RETRY
        assert launch.head.over == ""
        assert stranger.heard < clock.monotonic() - 0.1


def test_silent_callers_are_disconnected(port: int, clock: Clock) -> None:
    with running(port) as launch:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        for _ in range(5):
            launch.step()
        assert len(launch.head.channels) <= 2 * len(NAMES) + peers.ROOM
        assert sum(channel.known for channel in launch.head.channels) == 2
        clock.moved += peers.STRANGER + 1
        launch.step()
        assert len(launch.head.channels) == 2
        for one in silent:
            one.close()


# ---------------------------------------------------------------- connection


@contextmanager
def pair(head_token: str = TOKEN, node_token: str = TOKEN) -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    channels = Channel(one, head_token, head=True), Channel(other, node_token, head=False)
    yield channels
    for channel in channels:
        channel.close()


def talk(head: Channel, node: Channel) -> tuple[list[Any], list[Any]]:
    heard: tuple[list[Any], list[Any]] = [], []
    for _ in range(4):
        heard[0].extend(head.exchange())
        heard[1].extend(node.exchange())
    return heard


def test_messages_are_exchanged_in_both_directions() -> None:
    with pair() as (head, node):
        node.say({"rank": 1})
        head.say({"state": "runs"})
        assert talk(head, node) == ([{"rank": 1}], [{"state": "runs"}])
        assert head.known
        assert node.known


def test_wrong_secret_closes_the_connection() -> None:
    with pair(node_token=ANOTHER) as (head, node):
        node.say({"rank": 1})
        assert talk(head, node) == ([], [])
        assert head.closed
        assert not head.known


@pytest.mark.parametrize("change", ["again", "back", "other"])
def test_replayed_reflected_or_changed_message_closes_the_connection(change: str) -> None:
    with pair() as (head, node):
        node.say({"rank": 1})
        talk(head, node)
        node.say({"rank": 1})
        line = bytes(node.outbox)
        node.exchange()
        assert head.exchange() == [{"rank": 1}]
        if change == "back":
            assert node.read(line.rstrip(b"\n")) is None
            assert node.closed
        else:
            given = line if change == "again" else line.replace(b'"rank": 1', b'"rank": 2')
            assert head.read(given.rstrip(b"\n")) is None
            assert head.closed


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b"\n", b"\0" * 32 + b"\nfoo\n"])
def test_random_bytes_close_the_connection(noise: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        channel = Channel(one, TOKEN, head=True)
        other.sendall(noise)
        assert channel.exchange() == []
        channel.exchange()
        assert channel.closed
        assert not channel.known
