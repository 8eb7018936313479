"""Scan TCP ports of an address: scan.py ADDRESS PORT...

A PORT may be a range such as 1-65535. Prints {"open": [ports that accepted], "refused": number of refusals} as JSON.
All other ports timed out. Runs on a sandbox machine.
"""

from __future__ import annotations

import errno
import json
import resource
import select
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 1.5  # TCP repeats a lost SYN after one second
# More packets at once would overflow the queue of a machine (net.core.netdev_max_backlog).
PACKETS, PAUSE = 400, 0.005


def scan(address: str, ports: list[int]) -> dict[int, int]:
    """Return the error number of every port that answered. 0 means open."""
    at_once = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100
    family, _, _, _, target = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
    answers: dict[int, int] = {}
    for begin in range(0, len(ports), at_once):
        pending: dict[int, tuple[int, socket.socket]] = {}
        with select.epoll() as poll:
            for number, port in enumerate(ports[begin : begin + at_once], 1):
                connection = socket.socket(family, socket.SOCK_STREAM)
                connection.setblocking(False)
                connection.connect_ex((target[0], port, *target[2:]))
                pending[connection.fileno()] = (port, connection)
                poll.register(connection, select.EPOLLOUT)
                if number % PACKETS == 0:
                    time.sleep(PAUSE)
            deadline = time.monotonic() + PATIENCE
            # Answers that the kernel received in time count, even if this process was not scheduled in time.
            while pending and (heard := poll.poll(max(0, deadline - time.monotonic()))):
                for descriptor, _ in heard:
                    port, connection = pending.pop(descriptor)
                    answers[port] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    connection.close()
            for _, connection in pending.values():
                connection.close()
    return answers


def ports_of(words: list[str]) -> Iterator[int]:
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main() -> None:
    answers = scan(sys.argv[1], list(ports_of(sys.argv[2:])))
    open_ports = sorted(port for port, error in answers.items() if error == 0)
    print(json.dumps({"open": open_ports, "refused": list(answers.values()).count(errno.ECONNREFUSED)}))


if __name__ == "__main__":
    main()
