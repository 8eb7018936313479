"""The files of the acceptance test's payload that need no torch, for its unit tests."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

PAYLOAD = Path(__file__).parents[1] / "roles/ddp_smoke/files/acceptance/payload"


def part(name: str) -> Any:
    """A file of the payload that needs no torch."""
    if str(PAYLOAD.parent) not in sys.path:
        sys.path.append(str(PAYLOAD.parent))
    return importlib.import_module(f"payload.{name}")
