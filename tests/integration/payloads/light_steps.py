"""The loop of steps.py without PyTorch: ranks synchronise over sockets. Once a file exists, one rank fails."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

GROUP = 900  # offset from MASTER_PORT of the ranks' ports
LINE = 16


def broken(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("sample 17 is broken")
    if fault == "exit":
        sys.exit(3)
    if fault == "leave":
        sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    # Over half an hour, so that launches of killed tests end, too.
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--until", type=Path, help="finish when a rank sees this file")
    parser.add_argument("--fault", default="", help="fault of one rank at that file, instead of finishing")
    parser.add_argument("--rank", type=int, default=3)
    options = parser.parse_args()
    group = join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    for step in range(options.steps):
        due = options.until is not None and options.until.exists()
        if due and options.fault and int(os.environ["RANK"]) == options.rank:
            broken(options.fault)
        try:
            ends = total(group, int(due and not options.fault))
        except (OSError, EOFError):
            time.sleep(60)  # another rank has ended, and the launcher ends this one
            raise
        print(f"step {step}", flush=True)
        if ends:
            break
        time.sleep(0.1)


def join(rank: int, size: int) -> list[socket.socket]:
    """Return the connections of rank 0 to all others, or the connection of another rank to rank 0."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + GROUP)
    if rank == 0:
        server = socket.create_server(("", place[1]))
        return [server.accept()[0] for _ in range(size - 1)]
    while True:
        try:
            return [socket.create_connection(place)]
        except OSError:
            time.sleep(0.1)


def total(group: list[socket.socket], mine: int) -> int:
    """Return the sum of one number per rank. Blocks until all ranks have sent their number."""
    if os.environ["RANK"] != "0":
        send(group[0], mine)
        return receive(group[0])
    found = mine + sum(receive(one) for one in group)
    for one in group:
        send(one, found)
    return found


def send(peer: socket.socket, number: int) -> None:
    peer.sendall(str(number).ljust(LINE).encode())


def receive(peer: socket.socket) -> int:
    text = peer.recv(LINE, socket.MSG_WAITALL)
    if len(text) < LINE:
        raise EOFError
    return int(text)


if __name__ == "__main__":
    main()
