"""The process that renews a run's claims on nodes, and releases them when the run has ended for any reason."""

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
FREED = 10.0  # seconds to wait for nodes at the end; on other nodes the lease expires
THREADS = 32  # nodes contacted at once
OPENING = 3.0  # seconds that a node waits for others, which may hang
GONE = "ansible-playbook is gone"


class Silent:
    """Replaces the queue to ansible-playbook, which reads the queue only while workers run."""

    def send_display(self, *_what: object, **_how: object) -> None:
        pass


class Keeper:
    """state: the file with the time when the claim on each node was last renewed, on the monotonic clock."""

    def __init__(self, connections: Sequence[NodeConnection], request: Json, state: Path, claimed: float) -> None:
        self.connections = {connection.name: connection for connection in connections}
        self.request = request
        self.state = state
        self.renewed = dict.fromkeys(self.connections, claimed)
        self.asked: dict[str, Future[None]] = {}
        self.asking = threading.BoundedSemaphore(THREADS)
        self.report()

    def run(self, alive: int, result: Callable[[], str]) -> None:
        """Renew the claims until the write end of the pipe `alive` is closed."""
        # Two threads for each node, one of them for the end, so that hanging nodes do not block others.
        pool = ThreadPoolExecutor(2 * len(self.renewed))
        poll = select.poll()
        poll.register(alive, select.POLLIN | select.POLLHUP)
        while not poll.poll(RENEWED * 1000):
            for name in self.renewed:
                if name not in self.asked or self.asked[name].done():
                    self.asked[name] = pool.submit(self.renew, name)
            with contextlib.suppress(OSError):  # full disk: the next step then contacts the nodes
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
    """Return the response of the node, or the error."""
    try:
        return PROGRAM.call(connection, verb, request, privileged=True)
    except NodeError as problem:
        return problem


def ask_all(connections: Sequence[NodeConnection], verb: str, request: Json) -> dict[str, Json | NodeError]:
    with ThreadPoolExecutor(THREADS) as pool:
        answers = pool.map(lambda connection: ask(connection, verb, request), connections)
        return {connection.name: answer for connection, answer in zip(connections, answers, strict=True)}


def begin(keeper: Keeper, alive: tuple[int, int], kept: tuple[int, int], result: Callable[[], str]) -> None:
    """Start the process. One pipe tells the process whether the run is alive, the other tells the run that the process
    is running."""
    if os.fork():
        return
    try:
        os.setsid()
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which its ssh processes would inherit
        os.close(alive[1])
        os.close(kept[0])
        # Output of a connection would block forever: the queue is no longer read, and a lock may belong to a thread of
        # the parent process.
        Display()._final_q = Silent()
        keeper.run(alive[0], result)
    finally:
        os._exit(0)
