"""All causes that are known, by their groups; docs/diagnosis.md lists them."""

from __future__ import annotations

from . import code, ended, head, lacking, process, program, resources

CAUSES = (
    *head.CAUSES,
    *(*process.CAUSES, *lacking.CAUSES, *ended.CAUSES),
    *(*program.CAUSES, *code.CAUSES, *resources.CAUSES),
    *head.CAUSES,
)
