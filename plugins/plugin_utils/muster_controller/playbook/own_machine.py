"""Whether a node is the machine on which this runs, which no run starts anew."""

from __future__ import annotations

from pathlib import Path

from muster.inspect.facts import machine_digest

MACHINE_ID = Path("/etc/machine-id")


def is_own_machine(digest: str) -> bool:
    """digest: of the node's machine id, as its facts have it (identity)."""
    return bool(digest) and MACHINE_ID.exists() and digest == machine_digest(MACHINE_ID.read_text().strip())
