"""All causes that are known, by their groups; docs/diagnosis.md lists them."""

from __future__ import annotations

from . import code, drift, ended, fabric, gpu, head, lacking, process, program, resources

CAUSES = (
    *(*process.CAUSES, *lacking.CAUSES, *ended.CAUSES),
    *(*program.CAUSES, *code.CAUSES, *resources.CAUSES),
    *(*gpu.CAUSES, *fabric.CAUSES, *drift.CAUSES),
    *head.CAUSES,
)
