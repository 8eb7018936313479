"""Simulate a GPU with silent errors: installed next to torch, this module flips a bit in results of torch.mm.

flipped_bit.txt in the same folder contains `RANK FIRST LAST`: in products FIRST to LAST of this rank's process, counted
from 1, bit 20 of the value in row 3, column 5 is flipped. A .pth file imports the module in every Python of the
environment. Only processes of this rank are affected.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from typing import Any

RANK, FIRST, LAST = map(int, (Path(__file__).parent / "flipped_bit.txt").read_text(encoding="utf-8").split())
ROW, COLUMN, BIT = 3, 5, 1 << 20


def flip(torch: Any) -> None:
    real, count = torch.mm, 0

    def mm(left: Any, right: Any) -> Any:
        nonlocal count
        product, count = real(left, right), count + 1
        if FIRST <= count <= LAST:
            product.view(torch.int32)[ROW, COLUMN] ^= BIT
        return product

    torch.mm = mm


class Finder(importlib.abc.MetaPathFinder):
    """Import hook that imports torch as usual, then patches it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != "torch":
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            flip(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("RANK") == str(RANK):
    sys.meta_path.insert(0, Finder())
