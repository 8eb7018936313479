"""All known causes by group. docs/errors.md lists them."""

from __future__ import annotations

from . import (
    access,
    address,
    agreement,
    drift,
    ended,
    fabric,
    gpu,
    head,
    interference,
    lacking,
    names,
    network,
    process,
    program,
    resources,
    suspected,
)

CAUSES = (
    *(*head.CAUSES, *names.CAUSES, *agreement.CAUSES, *agreement.OF_ABSENT, *address.CAUSES, *network.CAUSES),
    *(*access.CAUSES, *interference.CAUSES),
    *(*process.CAUSES, *lacking.CAUSES, *ended.CAUSES),
    *(*program.CAUSES, *program.OF_CODE, *resources.CAUSES),
    *(*gpu.CAUSES, *gpu.OF_MEMORY, *fabric.CAUSES, *drift.CAUSES),
    *suspected.CAUSES,
)
