#!/usr/bin/python3
"""Stub of ibv_rc_pingpong, ib_write_bw and ib_write_lat. The name of the installed file selects the tool.

The stub accepts the options of the tool, connects both ends over TCP instead of RDMA, and prints results in the tool's
format. /etc/standin-rdma.json, or the file in STANDIN_RDMA, defines faults of this node's adapters for both ends; `log`
is a file that records the calls:

    {"mlx5_1": {"ibv_rc_pingpong": "Failed to modify QP to RTR"}, "mlx5_2": {"gbps": 41.2, "usec": 30.0}, "log": "/x"}
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

TOOL = Path(sys.argv[0]).name
SETTINGS = Path(os.environ.get("STANDIN_RDMA", "/etc/standin-rdma.json"))


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("-d", "-i", "-n", "-s", "-p", "-g", "-x", "--pkey_index", "--tclass"):
        parser.add_argument(option)
    for flag in ("-c", "-F", "--report_gbits"):
        parser.add_argument(flag, dest=f"flag_{flag.strip('-')}", action="store_true")
    parser.add_argument("server", nargs="?")
    given = parser.parse_args()
    settings = json.loads(SETTINGS.read_text()) if SETTINGS.exists() else {}
    own = settings.get(given.d, {})
    if own.get("absent"):
        sys.exit(f"IB device {given.d} not found")
    if "log" in settings:
        with Path(settings["log"]).open("a") as log:
            log.write(f"{getpass.getuser()} {TOOL} {given.d} {given.g or given.x or 'LID'}\n")
    try:
        theirs = call(given.server, int(given.p), own) if given.server else listen(int(given.p), own)
    except OSError:
        sys.exit(f"Couldn't connect to {given.server}:{given.p}")
    both = {**theirs, **own}
    if TOOL in both:
        sys.exit(both[TOOL])
    sys.stdout.write(result(both))


def listen(port: int, own: dict[str, Any]) -> dict[str, Any]:
    with socket.create_server(("", port)) as server:
        peer, _ = server.accept()
        return exchange(peer, own)


def call(server: str, port: int, own: dict[str, Any]) -> dict[str, Any]:
    return exchange(socket.create_connection((server, port), timeout=5), own)


def exchange(peer: socket.socket, own: dict[str, Any]) -> dict[str, Any]:
    with peer:
        peer.sendall(json.dumps(own).encode() + b"\n")
        theirs: dict[str, Any] = json.loads(peer.makefile().readline())
        return theirs


def result(own: dict[str, Any]) -> str:
    if TOOL == "ibv_rc_pingpong":
        return "8192000 bytes in 0.01 seconds = 8535.56 Mbit/sec\n1000 iters in 0.01 seconds = 7.68 usec/iter\n"
    if TOOL == "ib_write_bw":
        rate = own.get("gbps", 388.1)
        return (
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
            f" 1048576    2000             {rate:.2f}              {rate:.2f}              0.011041\n"
        )
    typical = own.get("usec", 2.05)
    return (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n"
        f" 8       1000          1.85           28.40          {typical:.2f}             2.11\n"
    )


main()
