"""All causes that are known, by their groups; docs/diagnosis.md lists them."""

from __future__ import annotations

from . import ended, lacking, process

CAUSES = (
    *(*process.CAUSES, *lacking.CAUSES, *ended.CAUSES),  # group process
)
