"""A launch that stalls, or appears to, while a file exists.

--how=sleep: one rank sleeps before its next collective. --how=print: the same, while a thread still prints.
--how=compute: all ranks compute without output.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def wait_here(gate: Path) -> None:
    while gate.exists():
        time.sleep(0.2)


def compute_here(gate: Path) -> None:
    while gate.exists():
        for _ in range(1000):
            pass


def print_on() -> None:
    while True:
        print("progress", flush=True)
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path, required=True)
    parser.add_argument("--gate", type=Path, required=True)
    parser.add_argument("--how", choices=["sleep", "print", "compute"], required=True)
    options = parser.parse_args()
    dist.init_process_group(os.environ["MUSTER_BACKEND"], timeout=timedelta(seconds=900))
    rank = dist.get_rank()
    if options.how == "print" and rank == 3:
        threading.Thread(target=print_on, daemon=True).start()
    while True:
        if options.gate.exists() and options.how == "compute":
            print("computes", flush=True)
            compute_here(options.gate)
        elif options.gate.exists() and rank == 3:
            print("waits", flush=True)
            wait_here(options.gate)
        value = torch.tensor([int(options.until.exists())])
        dist.all_reduce(value)
        if value[0]:
            break
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
