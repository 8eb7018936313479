"""Launches that were begun from another controller: nodes keep their plans beside their logs (see kept.py there)."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any


def packed(plan: dict[str, Any]) -> str:
    """A plan as it travels to a node: entries of many nodes are much the same."""
    return base64.b64encode(zlib.compress(json.dumps(plan).encode(), 9)).decode()
