"""A stand-in for hardware that computes or sends wrongly: put beside torch on a node, it spoils one rank's all-reduces.

spoilt_ranks.txt beside it says what: `result RANK` (the rank receives 1 too much at the first place), `contribution
RANK` (what the rank gives is lost), `broadcast RANK` (what the rank broadcasts is lost), `interface NAME` (the ranks of
this node have Gloo use this interface). A .pth file beside it imports it in every Python of that environment; only
ranks of the acceptance test are touched.
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
# Smaller ones are the test's own bookkeeping.
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
    """Finds the one module as it is found otherwise, and spoils it when it has been loaded."""

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
