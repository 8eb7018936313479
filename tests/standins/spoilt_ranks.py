"""Simulate hardware that computes wrong results: installed next to torch, this module corrupts one rank's collectives.

spoilt_ranks.txt in the same folder selects the fault: `result RANK` (the first value that the rank receives is 1 too
large), `contribution RANK` (the rank's contribution is lost), `broadcast RANK` (the rank's broadcast is lost),
`interface NAME` (Gloo uses this interface on the node). A .pth file imports the module in every Python of the
environment. Only ranks of the acceptance test are affected.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import Any

KIND, _, WHICH = (Path(__file__).parent / "spoilt_ranks.txt").read_text(encoding="utf-8").strip().partition(" ")
MODULE = "torch.distributed.distributed_c10d"
# Smaller tensors belong to the test's own bookkeeping.
LEAST = 1023


def spoil(module: Any) -> None:
    real = module.all_reduce

    def all_reduce(tensor: Any, *words: Any, **named: Any) -> Any:
        chosen = tensor.numel() >= LEAST and module.get_rank() == int(WHICH)
        if chosen and KIND == "contribution":
            tensor.zero_()
        done = real(tensor, *words, **named)
        if chosen and KIND == "result":
            tensor[0] += 1
        return done

    module.all_reduce = all_reduce
    send = module.broadcast

    def broadcast(tensor: Any, *words: Any, **named: Any) -> Any:
        if KIND == "broadcast" and tensor.numel() >= LEAST and module.get_rank() == int(WHICH):
            tensor.zero_()
        return send(tensor, *words, **named)

    module.broadcast = broadcast


class Finder(importlib.abc.MetaPathFinder):
    """Import hook that imports the module as usual, then patches it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != MODULE:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            spoil(module)

        spec.loader.exec_module = exec_module
        return spec


if KIND == "interface":
    if "RANK" in os.environ:
        os.environ["GLOO_SOCKET_IFNAME"] = WHICH
else:
    sys.meta_path.insert(0, Finder())
