"""Run all-reduces in a loop, without training. Once a file exists, one rank causes a fault.

Like most user scripts, this script does not use torch's @record unless --record is set.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def broken(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("sample 17 is broken")
    if fault == "exit":
        sys.exit(3)
    if fault == "leave":
        os._exit(0)
    if fault == "sleep":
        print("waits", flush=True)
        wait_forever()
    if fault == "fill":
        with Path("ballast").open("wb") as stream:
            while True:
                stream.write(b"\0" * 65536)
                stream.flush()


def wait_forever() -> None:
    while True:
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    # Over half an hour, so that launches of killed tests end, too.
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--until", type=Path, help="finish when a rank sees this file")
    parser.add_argument("--fault", default="", help="fault of one rank at that file, instead of finishing")
    parser.add_argument("--rank", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    (record(loop) if options.record else loop)(options)


def loop(options: argparse.Namespace) -> None:
    dist.init_process_group(os.environ["MUSTER_BACKEND"], timeout=timedelta(seconds=300))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for step in range(options.steps):
        due = bool(options.until) and options.until.exists()
        if due and options.fault and rank == options.rank:
            broken(options.fault)
        value = torch.tensor([rank + 1, int(due and not options.fault)])
        dist.all_reduce(value)
        assert int(value[0]) == world_size * (world_size + 1) // 2
        print(f"step {step}", flush=True)
        if value[1]:
            break
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
