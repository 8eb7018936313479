"""Import parts of the acceptance test's payload that do not need torch, for unit tests."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

PAYLOAD = Path(__file__).parents[1] / "roles/ddp_smoke/files/acceptance/payload"


def part(name: str) -> Any:
    """Import a part of the payload that does not need torch."""
    if str(PAYLOAD.parent) not in sys.path:
        sys.path.append(str(PAYLOAD.parent))
    return importlib.import_module(f"payload.{name}")
