"""Known lines that programs print when a launch fails, by program. The diagnosis and docs/errors.md use them."""

from __future__ import annotations

from . import before, cuda, gloo, nccl, program, python, store, system, tools

TEXTS = (
    *(*store.TEXTS, *gloo.TEXTS, *nccl.TEXTS, *cuda.TEXTS),
    *(*program.TEXTS, *python.TEXTS, *system.TEXTS, *tools.TEXTS, *before.TEXTS),
)
