"""Rows that repeat faults in user launches, in which no check runs as root."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rows import head, process, program, resources

if TYPE_CHECKING:
    from row import Row

WITHOUT_ROOT = (
    "process-raise",
    "process-raise-everywhere",
    "process-exit",
    "process-segv",
    "process-killed",
    "process-stopped",
    "process-launcher",
    "program-sleep",
    "program-unused",
    "resources-disk",
    "head-filtered",
    "absent-late",
)


def own(row: Row) -> Row:
    return replace(row, id=f"own-{row.id}", own=True, in_ci=False)


ROWS = tuple(own(row) for row in (*process.ROWS, *program.ROWS, *resources.ROWS, *head.ROWS) if row.id in WITHOUT_ROOT)
