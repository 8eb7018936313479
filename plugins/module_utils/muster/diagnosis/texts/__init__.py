"""The lines that people see when a launch fails, by who prints them: of the diagnosis, and of docs/errors.md."""

from __future__ import annotations

from . import cuda, gloo, nccl, program, python, store, system

TEXTS = (
    *(*store.TEXTS, *gloo.TEXTS, *nccl.TEXTS, *cuda.TEXTS),
    *(*program.TEXTS, *python.TEXTS, *system.TEXTS),
)
