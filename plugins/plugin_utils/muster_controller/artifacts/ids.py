"""Names of runs and launches, as the programs on the nodes want them: a launch has its run's."""

from __future__ import annotations

import secrets
import time


def fresh_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
