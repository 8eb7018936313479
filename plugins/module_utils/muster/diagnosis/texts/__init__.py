"""Lines printed when a launch fails, by the program that prints them. Used by the diagnosis and docs/errors.md."""

from __future__ import annotations

from . import cuda, gloo, nccl, program, python, store, system

TEXTS = (
    *(*store.TEXTS, *gloo.TEXTS, *nccl.TEXTS, *cuda.TEXTS),
    *(*program.TEXTS, *python.TEXTS, *system.TEXTS),
)
