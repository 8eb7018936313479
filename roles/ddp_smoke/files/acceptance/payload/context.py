"""What a stage has in hand: where it runs, its device, its peers, and ways to report."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .nccl_log import Log

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator


STORE_SECONDS = 60.0


class NotTriedError(Exception):
    """This cannot be tried here, and why not: one sentence."""


class Context:
    """rank, local_rank, node_rank, world_size, local_world_size: as torchrun has them. nodes: the node rank of every
    rank. device, backend: what is trained on and over. nccl_log: what NCCL says of its ways. wrong: sentences on what
    this rank saw to be wrong by itself.
    """

    def __init__(self, options: argparse.Namespace, send: Callable[[dict[str, Any]], None]) -> None:
        self.options = options
        self._send = send
        self.rank = int(os.environ["RANK"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.node_rank = int(os.environ.get("GROUP_RANK", "0"))
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
        self.backend = os.environ.get("MUSTER_BACKEND", "nccl" if torch.cuda.is_available() else "gloo")
        self.device = torch.device("cuda", self.local_rank) if self.backend == "nccl" else torch.device("cpu")
        self.wrong: list[str] = []
        self.store: dist.Store | None = None
        # NCCL reads its settings when the first group is formed.
        self.nccl_log = Log()
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def at(self, text: str) -> None:
        """Say where the stage is: that is told when it is killed there."""
        self._send({"is": "at", "text": text})

    def say(self, event: str, **facts: Any) -> None:
        """An event of its own, such as `step`."""
        self._send({"is": "say", "event": {"event": event, "rank": self.rank, **facts}})

    def wait(self) -> None:
        """Until the device is done with what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def gather(self, value: Any) -> list[Any]:
        """A small value of every rank, on all of them."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def turns(self) -> Iterator[None]:
        """The ranks of one node one after the other, for what they share: buses, cores."""
        for local in range(self.local_world_size):
            if local == self.local_rank:
                yield
            dist.barrier()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder of this rank's node, in --folder where that is given; it goes at the end, with all it holds."""
        with tempfile.TemporaryDirectory(prefix="acceptance-", dir=self.options.folder or None) as name:
            yield Path(name)

    def join_store(self) -> dist.Store:
        """The store that torchrun keeps for the ranks, which outlives their processes."""
        self.store, _, _ = next(
            dist.rendezvous("env://", self.rank, self.world_size, timeout=timedelta(seconds=STORE_SECONDS))
        )
        return self.store

    def form_group(self, name: str, seconds: float) -> None:
        """Have all ranks in one process group. name: the same on all of them, and new for each group.

        seconds: for one collective; a stage that hangs is ended before.
        """
        dist.init_process_group(
            self.backend,
            store=dist.PrefixStore(f"acceptance/group/{name}", self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=timedelta(seconds=seconds),
        )
