"""The process that renews a run's claims on nodes, and frees them when the run has ended, however it did."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from ansible.utils.display import Display

from muster.road.claims import LEASE
from muster_controller.playbook.interruption import SIGNALS
from muster_controller.playbook.node_error import NodeError
from muster_node.tools import files

from .program import NodeProgram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .connection import NodeConnection

Json = dict[str, Any]

PROGRAM = NodeProgram("claim")
RENEWED = LEASE / 4  # seconds from one renewal to the next
FREED = 10.0  # seconds that nodes have to answer in the end; the others' leases run out
THREADS = 32  # nodes that are asked at once
OPENING = 3.0  # seconds that one waits for others to be asked; those may hang, and may be as many
GONE = "its ansible-playbook is gone"


class Silent:
    """In the place of the queue to ansible-playbook, which reads that of its workers only as long as they run."""

    def send_display(self, *_what: object, **_how: object) -> None:
        pass


class Keeper:
    """state: the file in which it says of each node when that renewed the claim last, by the monotonic clock."""

    def __init__(self, connections: Sequence[NodeConnection], request: Json, state: Path, claimed: float) -> None:
        self.connections = {connection.name: connection for connection in connections}
        self.request = request
        self.state = state
        self.renewed = dict.fromkeys(self.connections, claimed)
        self.asked: dict[str, Future[None]] = {}
        self.asking = threading.BoundedSemaphore(THREADS)
        self.report()

    def run(self, alive: int, result: Callable[[], str]) -> None:
        """Go on until the pipe `alive` has nobody left to write into it."""
        # A thread for each node, and another for its end: those that hang must not keep the others from being asked.
        pool = ThreadPoolExecutor(2 * len(self.renewed))
        poll = select.poll()
        poll.register(alive, select.POLLIN | select.POLLHUP)
        while not poll.poll(RENEWED * 1000):
            for name in self.renewed:
                if name not in self.asked or self.asked[name].done():
                    self.asked[name] = pool.submit(self.renew, name)
            with contextlib.suppress(OSError):  # a full disk: the next step asks the nodes instead
                self.report()
        request = {**self.request, "result": result() or GONE}
        answer = [name for name, at in self.renewed.items() if at + LEASE > time.monotonic()]
        wait([pool.submit(self.ask, name, "free", request) for name in answer], FREED)

    def report(self) -> None:
        files.replace(str(self.state), json.dumps(self.renewed).encode(), mode=0o600)

    def renew(self, name: str) -> None:
        began = time.monotonic()
        answer = self.ask(name, "renew", self.request)
        if isinstance(answer, dict):
            held = answer.get("held") is True
            self.renewed[name] = began if held else 0.0
            if not held:
                self.report()

    def ask(self, name: str, verb: str, request: Json) -> Json | NodeError:
        slot = self.asking.acquire(timeout=OPENING)
        try:
            return ask(self.connections[name], verb, request)
        finally:
            if slot:
                self.asking.release()


def ask(connection: NodeConnection, verb: str, request: Json) -> Json | NodeError:
    """Return the node's answer, or why there is none."""
    try:
        return PROGRAM.call(connection, verb, request, privileged=True)
    except NodeError as problem:
        return problem


def ask_all(connections: Sequence[NodeConnection], verb: str, request: Json) -> dict[str, Json | NodeError]:
    with ThreadPoolExecutor(THREADS) as pool:
        answers = pool.map(lambda connection: ask(connection, verb, request), connections)
        return {connection.name: answer for connection, answer in zip(connections, answers, strict=True)}


def begin(keeper: Keeper, alive: tuple[int, int], kept: tuple[int, int], result: Callable[[], str]) -> None:
    """Start the process. Of each pipe it has one end: to read whether the run is alive, and to show that it is kept."""
    if os.fork():
        return
    try:
        os.setsid()
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)  # not ignored: the ssh that it starts would be deaf as well
        os.close(alive[1])
        os.close(kept[0])
        # What a connection displays would wait for ever: for a queue that nobody reads, or for a lock of the thread
        # that was left behind in the other process.
        Display()._final_q = Silent()
        keeper.run(alive[0], result)
    finally:
        os._exit(0)
