"""Ids of runs and launches, in the format that the programs on the nodes require. A launch has the same id as its
run."""

from __future__ import annotations

import secrets
import time


def fresh_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
