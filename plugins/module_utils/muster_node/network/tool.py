"""The programs of OpenSSH, with a time limit."""

from __future__ import annotations

import subprocess

TOOL_TIMEOUT = 30


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=TOOL_TIMEOUT
    )
