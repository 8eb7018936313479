#!/usr/bin/env python3
"""Stub of torchrun without PyTorch, for tests that do not need real ranks.

The stub accepts the options of a launch, connects the nodes on MASTER_PORT like the store, and starts the ranks with
torchrun's environment and log files. When one rank fails, it ends all ranks and prints the failure like torchrun.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

POLL = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("nnodes", "node-rank", "nproc-per-node", "master-port", "max-restarts", "redirects"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("master-addr", "local-addr", "rdzv-id", "rdzv-conf", "log-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    request = parser.parse_args()
    seconds = float(request.rdzv_conf.partition("timeout=")[2])
    store = meet(request, time.monotonic() + seconds)
    Path(request.log_dir).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{request.rdzv_id}_", dir=request.log_dir))
    ranks = [start_rank(request, folder / "attempt_0" / str(local), local) for local in range(request.nproc_per_node)]
    code = first_failure(ranks)
    for rank in ranks:
        if rank.poll() is None:
            if code:
                print(f"Sending process {rank.pid} closing signal SIGTERM", file=sys.stderr, flush=True)
            rank.terminate()
        rank.wait()
    store.close()
    sys.exit(1 if code else 0)


def meet(request: argparse.Namespace, deadline: float) -> socket.socket:
    """Connect the nodes: the head node listens until the end, like the store; other nodes connect and stay
    connected."""
    if request.node_rank == 0:
        store = socket.create_server(("", request.master_port), backlog=1024)
        store.settimeout(max(0.1, deadline - time.monotonic()))
        # The process keeps the connections open, because a closed one would mean that the head node is gone.
        request.members = [store.accept() for _ in range(request.nnodes - 1)]
        return store
    while True:
        try:
            return socket.create_connection((request.master_addr, request.master_port), timeout=1)
        except OSError as problem:
            if time.monotonic() > deadline:
                sys.exit(f"the store of {request.master_addr} did not answer: {problem}")
            time.sleep(POLL)


def start_rank(request: argparse.Namespace, folder: Path, local: int) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    size = request.nproc_per_node
    environment = {
        **os.environ,
        "RANK": str(request.node_rank * size + local),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(request.nnodes * size),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": str(request.node_rank),
        "MASTER_ADDR": request.master_addr,
        "MASTER_PORT": str(request.master_port),
        "TORCHELASTIC_RUN_ID": request.rdzv_id,
        "TORCHELASTIC_ERROR_FILE": str(folder / "error.json"),
    }
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        argv = [sys.executable, "-u", request.script, *request.arguments]
        return subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)


def first_failure(ranks: list[subprocess.Popen[bytes]]) -> int:
    """Return the exit code of the first rank that fails, or 0 after all have succeeded."""
    while True:
        codes = [rank.poll() for rank in ranks]
        failed = [local for local, code in enumerate(codes) if code]
        if failed:
            local, code = failed[0], codes[failed[0]] or 0
            what = (
                f"failed (exitcode: {code}) local_rank: {local} (pid: {ranks[local].pid}) of binary: {sys.executable}"
            )
            print(what, file=sys.stderr, flush=True)
            return code
        if None not in codes:
            return 0
        time.sleep(POLL)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
