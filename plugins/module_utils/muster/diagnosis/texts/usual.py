"""The usual causes of a line, most frequent first. The order counts only while no check has confirmed a cause."""

from __future__ import annotations

USUAL: dict[str, tuple[str, ...]] = {}
