"""All rows of the campaign."""

from __future__ import annotations

from rows import access, head, network, own, process, program, resources

ROWS = (
    *process.ROWS,
    *program.ROWS,
    *resources.ROWS,
    *head.ROWS,
    *network.ROWS,
    *access.ROWS,
    *own.ROWS,
)
