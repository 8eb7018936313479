"""All causes that are known, by their groups; docs/diagnosis.md lists them."""

from __future__ import annotations

from . import head, process

CAUSES = (*process.CAUSES, *head.CAUSES)
