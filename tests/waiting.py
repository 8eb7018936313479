"""Wait for conditions that stay true once they are true. The time limit is long enough for a busy machine. It only ends
hanging tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 300.0  # seconds


def until(condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "a condition") -> Any:
    """Wait until a condition is true. Return the condition's first true value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")
