"""Run collectives in a loop, without training. Once a file exists, one rank or all ranks cause a fault.

For external faults, such as network faults, the loop only keeps running.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable

FOREVER = 3600.0


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of a given size. kills: reading sample 40 kills the worker process that reads it."""

    def __init__(self, size: int, *, kills: bool) -> None:
        self.size, self.kills = size, kills

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.kills and index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(self.size)


def load(size: int = 1000, *, kills: bool = False) -> None:
    for _ in DataLoader(Samples(size, kills=kills), batch_size=8, num_workers=1):
        pass


def wrapped(features: int, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(torch.nn.Linear(features, 3), **options)


class Partly(torch.nn.Module):
    """A module with a layer that does not affect its result."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.used(value)


def unused() -> None:
    model = DistributedDataParallel(Partly())
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()


def broken(sample: str) -> None:
    raise RuntimeError(f"sample {sample or 17} is broken")


def fill(path: str) -> None:
    with Path(path, f"ballast-{os.environ['RANK']}").open("wb") as stream:
        while True:
            stream.write(b"\0" * 65536)
            stream.flush()


def many_files(path: str) -> None:
    for number in range(1_000_000):
        Path(path, f"sample-{number}").touch()


def hoard() -> None:
    """Allocate up to 4 GiB of memory, which exceeds the limit of a node but not the memory of the test machine."""
    kept: list[bytearray] = []
    while len(kept) < 256:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)
    sys.exit("no limit of memory was there")


def many_threads() -> None:
    for _ in range(100_000):
        threading.Thread(target=time.sleep, args=(FOREVER,), daemon=True).start()


def prints_on() -> None:
    """Block the main thread while another thread prints progress."""

    def show() -> None:
        while True:
            print("still at 41 %", flush=True)
            time.sleep(0.5)

    threading.Thread(target=show, daemon=True).start()
    time.sleep(FOREVER)


def spin() -> None:
    number = 1
    while True:
        number = number * 3 % 1_000_003


FAULTS: dict[str, Callable[[str], Any]] = {
    "raise": broken,
    "key": lambda name: dict.fromkeys(("momentum",), 0.9)[name or "learning_rate"],
    "exit": lambda _: sys.exit(3),
    "exit-words": lambda _: sys.exit("no licence was found"),
    "segv": lambda _: ctypes.string_at(0),
    "abort": lambda _: os.abort(),
    "illegal": lambda _: os.kill(os.getpid(), signal.SIGILL),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda _: os.kill(os.getpid(), signal.SIGTERM),
    "hoard": lambda _: hoard(),
    "allocate": lambda _: torch.empty(1 << 50, dtype=torch.uint8),
    "threads": lambda _: many_threads(),
    "files": lambda path: [os.open(path, os.O_RDONLY) for _ in range(2_000_000)],
    "fill": fill,
    "many-files": many_files,
    "open": lambda path: Path(path).read_text(),
    "import": importlib.import_module,
    "environment": lambda name: os.environ[name],
    "worker-killed": lambda _: load(kills=True),
    "workers": lambda _: load(4_000_000),
    "sleep": lambda _: time.sleep(FOREVER),
    "spin": lambda _: spin(),
    "progress": lambda _: prints_on(),
    "leave": lambda _: os._exit(0),
    "broadcast": lambda _: dist.broadcast(torch.zeros(3), 0),
    "shape": lambda _: dist.all_reduce(torch.zeros(100_000)),
    "type": lambda _: dist.all_reduce(torch.zeros(2, dtype=torch.float64)),
    "library": ctypes.CDLL,
    "barrier": lambda _: dist.barrier(),
    "parameters": lambda _: wrapped(5 if dist.get_rank() == 1 else 4),
    "ddp": lambda _: wrapped(4),
    "unused": lambda _: unused(),
    "load": lambda _: torch.nn.Linear(4, 3).load_state_dict(wrapped(4).state_dict()),
    "monitored": lambda _: dist.monitored_barrier(timeout=timedelta(seconds=10)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path, help="start the fault when a rank sees this file")
    parser.add_argument("--fault", default="", help="NAME or NAME=VALUE; without one, the loop finishes there")
    parser.add_argument("--rank", default="1", help="the faulty rank, or all")
    parser.add_argument("--others", default="", help="action of the other ranks instead of the next step")
    parser.add_argument("--before", action="store_true", help="start the fault before the rendezvous")
    parser.add_argument("--timeout", type=float, default=300.0, help="timeout of each collective in seconds")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between steps")
    parser.add_argument("--size", type=int, default=2, help="elements of each all-reduce")
    parser.add_argument("--late", type=float, default=0.0, help="delay of the last rank in seconds")
    parser.add_argument("--silent", type=float, default=0.0, help="seconds of silent computing after the third step")
    parser.add_argument("--longer", type=int, default=-1, help="rank with pauses four times as long")
    parser.add_argument("--load", action="store_true", help="use a data loader with workers in every fifth step")
    parser.add_argument("--warn", action="store_true", help="emit a Python warning in each step")
    parser.add_argument("--catch", action="store_true", help="catch and print an exception in each step")
    parser.add_argument("--hook", action="store_true", help="install hooks of the script")
    parser.add_argument("--words", default="", help="text to print in each step")
    loop(parser.parse_args())


def sound(options: argparse.Namespace, step: int) -> None:
    """Do what the options request: actions that look suspicious but are not faults."""
    if options.words:
        print(options.words, file=sys.stderr, flush=True)
    if options.silent and step == 3:
        until = time.monotonic() + options.silent
        while time.monotonic() < until:
            torch.ones(50, 50).mm(torch.ones(50, 50))
    if options.load and step % 5 == 0:
        load()
    if options.warn:
        warnings.warn("This DataLoader will create 8 worker processes in total", stacklevel=1)
    if options.catch:
        try:
            broken("")
        except RuntimeError:
            traceback.print_exc()


def loop(options: argparse.Namespace) -> None:
    rank = int(os.environ["RANK"])
    culprit = options.rank == "all" or rank == int(options.rank)
    if options.hook:
        sys.excepthook = lambda *_: None
    if options.late and rank == int(os.environ["WORLD_SIZE"]) - 1:
        time.sleep(options.late)
    if options.before and culprit:
        do(options.fault)
    backend = os.environ.get("MUSTER_BACKEND", "gloo")
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
    step = 0
    while True:
        due = bool(options.until) and options.until.exists()
        # All ranks act in the same step: the rank that sees the file tells the others.
        value = torch.zeros(options.size)
        value[0] = float(due)
        dist.all_reduce(value)
        print(f"step {step}", flush=True)
        sound(options, step)
        if value[0] and not options.fault:
            break
        if value[0] and not options.before:
            fault = options.fault if culprit else options.others
            if fault:
                do(fault)
        step += 1
        time.sleep(options.pause * (4 if rank == options.longer else 1))
    dist.destroy_process_group()


def do(fault: str) -> None:
    name, _, value = fault.partition("=")
    FAULTS[name](value)


if __name__ == "__main__":
    main()
