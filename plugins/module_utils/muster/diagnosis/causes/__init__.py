"""All causes that are known, by their groups; docs/errors.md lists them."""

from __future__ import annotations

from . import (
    absent,
    access,
    address,
    agreement,
    code,
    drift,
    ended,
    fabric,
    gpu,
    gpu_memory,
    head,
    interference,
    lacking,
    names,
    network,
    process,
    program,
    resources,
)

CAUSES = (
    *(*head.CAUSES, *names.CAUSES, *agreement.CAUSES, *absent.CAUSES, *address.CAUSES, *network.CAUSES),
    *(*access.CAUSES, *interference.CAUSES),
    *(*process.CAUSES, *lacking.CAUSES, *ended.CAUSES),
    *(*program.CAUSES, *code.CAUSES, *resources.CAUSES),
    *(*gpu.CAUSES, *gpu_memory.CAUSES, *fabric.CAUSES, *drift.CAUSES),
)
