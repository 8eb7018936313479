"""Waiting for what stays as it is once it is so. A machine may be busy: the limit only ends what went wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 300.0  # seconds


def until(condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "what is waited for") -> Any:
    """Wait for a condition; its first true value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")
